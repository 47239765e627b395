"""Rebalances beside workers that claim and nodes that add, pause and resume: real threads on the
real store, on one clock that goes on when everything due has run."""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from uuid import uuid4

from evenbeat.balance.balancer import Balancer
from evenbeat.domain.decision import decide
from evenbeat.domain.execution import Outcome
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.load_entry import LoadEntry
from evenbeat.domain.schedule import Interval
from evenbeat.settings import load_settings
from evenbeat.store.database import Connection
from evenbeat.store.store import Store

START = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
STEPS, STEP = 160, 6 * MINUTE
MOST = 24
INTERVALS = (1, 2, 3, 4)


class Node:
    """A process: a store with a balancer of its own, on the common clock."""

    def __init__(self, url: str, clock: Callable[[], datetime]) -> None:
        self.id = uuid4()
        self.clock = clock
        self.store = Store(url, placer=lambda: self.balancer, pool_size=4, timeout=10)
        self.balancer = Balancer(self.store, load_settings(), override=clock, look_seconds=0)

    def hold(self, lock: threading.Lock, over: threading.Event) -> None:
        """Let time stand still during transactions, which are short, but go on while a plan is
        made, which takes a while where there are a million jobs."""
        really, snapshot = self.store.database.atomically, self.store.placement.load_snapshot

        def held(work: Callable[[Connection], object]) -> object:
            with lock:
                return really(work)

        def long_ago(now: datetime) -> list[LoadEntry]:
            entries, until = snapshot(now), self.clock() + 40 * MINUTE
            while self.clock() < until and not over.is_set():
                time.sleep(0.001)
            return entries

        self.store.database.atomically = held
        self.store.placement.load_snapshot = long_ago

    def drain(self) -> int:
        """Run what is due, as a worker does."""
        total = 0
        while jobs := self.store.claim(self.id, 3, now=self.clock()):
            done = [decide(job, OUTCOME, self.clock()) for job in jobs]
            assert len(self.store.finish(done, now=self.clock())) == len(jobs)
            total += len(jobs)
        return total


OUTCOME = Outcome(duration_ms=60_000)


def spec(hours: int, anchor: datetime | None = None) -> JobSpec:
    return JobSpec("noop", schedule=Interval(hours * HOUR, anchor), cost=MINUTE)


class Turmoil:
    """Two workers, a node that adds, pauses and resumes, and one that rebalances without end."""

    def __init__(self, url: str) -> None:
        self.now = START
        self.workers = [Node(url, lambda: self.now) for _ in range(2)]
        self.planner, self.adder = (Node(url, lambda: self.now) for _ in range(2))
        self.moved: list[int] = []
        self.failures: list[BaseException] = []
        self._over = threading.Event()
        self._writing = threading.Lock()
        self.planner.hold(self._writing, self._over)

    def rebalance(self) -> None:
        balancer = self.planner.balancer
        done = balancer.rebalance(by="turmoil")
        self.moved.append(len(done.moved))
        if len(self.moved) % 3 == 0:
            balancer.undo(done.id)

    def add(self) -> None:
        hours, store = INTERVALS[len(self.moved) % 4], self.adder.store
        with self._writing:
            crowd = [NewJob(spec(hours, self.now + hours * HOUR)) for _ in range(3)]
            victim = store.add_many([NewJob(spec(hours)), *crowd], now=self.now)[0].id
            store.control.pause([victim], now=self.now)
            store.control.resume([victim], now=self.now)

    def run(self) -> None:
        beside = [self._thread(self._again, self.rebalance), self._thread(self._again, self.add)]
        for _ in range(STEPS):
            for worker in [self._thread(node.drain) for node in self.workers]:
                worker.join()
            with self._writing:  # no transaction takes minutes
                self.now += STEP
        self._over.set()
        for thread in beside:
            thread.join()

    def close(self) -> None:
        for node in (*self.workers, self.planner, self.adder):
            node.store.close()

    def _again(self, work: Callable[[], None]) -> None:
        for _ in range(MOST):
            if self._over.wait(0.01):
                return
            work()

    def _thread(self, work: Callable[..., object], *args: object) -> threading.Thread:
        def watched() -> None:
            try:
                work(*args)
            except BaseException as error:
                self.failures.append(error)

        thread = threading.Thread(target=watched)
        thread.start()
        return thread


def test_no_run_is_dropped_or_doubled_whatever_else_goes_on(database_url):
    turmoil = Turmoil(database_url)
    bunched = [NewJob(spec(n, START + 2 * HOUR)) for n in INTERVALS for _ in range(8)]
    turmoil.adder.store.add_many(bunched, now=START)
    turmoil.run()
    assert turmoil.failures == []
    assert sum(turmoil.moved) > 20, "the rebalances had nothing to do"

    read, end = turmoil.planner.store.read, turmoil.now
    for job in read.jobs(limit=1000).jobs:
        runs = read.executions_of(job.id, limit=1000).executions[::-1]
        every = timedelta(seconds=job.interval_seconds)
        plans = [run.plan_time for run in runs]
        assert plans == sorted(set(plans)), "a doubled run"
        assert {run.status for run in runs} <= {"completed"}
        gaps = [later - earlier for earlier, later in pairwise(plans)]
        # Half an interval at most, and once in each; one that was paused begins anew.
        assert all(gap <= 1.5 * every for gap in gaps), "a dropped run"
        assert all(gap >= every / 2 for gap in gaps), "a run too many"
        assert all(run.started_at - run.plan_time <= 2 * STEP for run in runs), "a late run"
        assert job.next_run_at > end - 2 * STEP, "a run that nobody takes"
        assert (plans[0] if plans else end) <= job.created_at + 1.5 * every + 2 * STEP
    turmoil.close()
