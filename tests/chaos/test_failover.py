"""The primary changes while work goes on: under Patroni, by plan and by accident."""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

import httpx
import psycopg
import pytest
from cluster import Cluster, Node, cluster, what_is_missing
from fleet import FULL, Fleet, Story, WorkerProcess, job

from evenbeat import Evenbeat
from evenbeat.domain.job import NewJob
from evenbeat.errors import DatabaseUnavailable
from loopback import served
from proxy import Proxy
from waiting import wait_for

WORKERS = 3
MOST_LINES = 50  # in the log of a process, about one spell
BACK_WITHIN = 5 if FULL else 30  # seconds; `make test` may share its machine


class Flow:
    """Adds jobs all the time, by call and over HTTP, and keeps what came of it."""

    def __init__(self, url: str) -> None:
        self._app = Evenbeat(url, name="flow")
        self.store = self._app.store
        self._over = threading.Event()
        self._flows: list[Future[None]] = []
        self._numbers = itertools.count()
        self.acknowledged: list[str] = []
        self.answers: Counter[str] = Counter()
        self.longest = 0.0

    def _next(self) -> NewJob:
        number = next(self._numbers)
        return job("nap" if number % 2 else "doze", {"seconds": number % 10 / 10})

    def _call(self) -> str | None:
        try:
            return str(self.store.add(self._next()).id)
        except DatabaseUnavailable:
            self.answers["DatabaseUnavailable"] += 1
        except Exception as error:
            self.answers[repr(error)] += 1
        return None

    def _post(self, client: httpx.Client) -> str | None:
        new = self._next()
        answer = client.post("/api/v1/jobs", json={"task": new.spec.task, "payload": new.payload})
        if answer.status_code == 201:
            return str(answer.json()["id"])
        self.answers[f"HTTP {answer.status_code}"] += 1
        return None

    def _run(self, add: Callable[[], str | None]) -> None:
        while not self._over.wait(0.05):
            begun = time.monotonic()
            if id_ := add():
                self.acknowledged.append(id_)
            self.longest = max(self.longest, time.monotonic() - begun)

    @contextmanager
    def running(self) -> Iterator[None]:
        # Besides: jobs that fall due all the time, whoever may be waiting to add more; and such as
        # return while there is no primary, or after that.
        due = [job("nap", start=timedelta(seconds=n / 4)) for n in range(200 if FULL else 60)]
        due += [job("nap", {"seconds": n if FULL else n / 4}) for n in range(30)]
        self.acknowledged += [str(added.id) for added in self.store.add_many(due)]
        with (
            self._app,
            served(self._app.asgi(auth=False)) as address,
            httpx.Client(base_url=address, timeout=60) as client,
            ThreadPoolExecutor(2) as threads,
        ):
            adds = (self._call, lambda: self._post(client))
            self._flows = [threads.submit(self._run, add) for add in adds]
            try:
                yield
            finally:
                self._over.set()

    def end(self) -> None:
        """Add no more; what was asked for has been answered."""
        self._over.set()
        for flow in self._flows:
            flow.result()


def takes_writes(url: str) -> bool:
    try:
        with psycopg.connect(url, connect_timeout=2, autocommit=True) as connection:
            connection.execute("SELECT txid_current()")  # refused by a standby
    except psycopg.Error:
        return False
    return True


def lines_of(worker: WorkerProcess) -> list[str]:
    """Its log, without what is said of each run."""
    runs = ("Executing job", "Job completed successfully", "Many runs, summed up")
    return [line for line in worker.said().splitlines() if not any(run in line for run in runs)]


class Watch:
    """Three workers under a steady flow, and what they make of a spell without a primary."""

    def __init__(self, fleet: Fleet, flow: Flow, caplog: pytest.LogCaptureFixture) -> None:
        self._fleet = fleet
        self._flow = flow
        self._caplog = caplog
        wait_for(lambda: len(fleet.ledger.entries("end")) > 100, "work goes on")
        self._lines = [len(lines_of(worker)) for worker in fleet.workers]

    def until_each_starts_again(self, since: float) -> list[float]:
        """How long after that moment each worker has started a handler."""

        def firsts() -> list[float]:
            first: dict[int, float] = {}
            for entry in self._fleet.ledger.entries("start"):
                if entry["at"] >= since:
                    first.setdefault(entry["pid"], entry["at"] - since)
            return sorted(first.values()) if len(first) == WORKERS else []

        return wait_for(firsts, "each worker starts handlers again", 180)

    def check(self, what: str, times: list[float]) -> None:
        """What is promised of every spell, when the last job is done."""
        self._flow.end()
        ledger, story = self._fleet.ledger, Story(self._flow.store)
        wait_for(lambda: story.counts().keys() == {"completed"}, "all complete", 180)
        lines = [
            len(lines_of(worker)) - before
            for worker, before in zip(self._fleet.workers, self._lines, strict=True)
        ]
        lines.append(len(self._caplog.records))  # of the process that adds jobs
        ends = ledger.entries("end")
        returned = Counter(entry["token"] for entry in ends if entry["returned"])
        recorded = Counter(str(id_) for id_ in story.completed_runs())
        jobs = Counter(entry["job"] for entry in ends if entry["returned"])
        lost = set(self._flow.acknowledged) - {str(id_) for id_ in story.completions()}
        unwritten = returned.keys() - recorded.keys()
        cut = [entry for entry in ends if not entry["returned"]]
        print(  # noqa: T201
            f"{what}: handlers start again after {', '.join(f'{t:.1f}' for t in times)} s; "
            f"{len(self._flow.acknowledged)} acknowledged, {len(lost)} lost; {len(returned)} "
            f"outcomes, {len(unwritten)} thrown away; {len(cut)} runs broken off; callers: "
            f"{dict(self._flow.answers)}, longest wait {self._flow.longest:.1f} s; "
            f"log lines: {lines}; codes: {story.error_codes()}"
        )
        assert lost == set()
        assert unwritten == set()
        assert recorded.keys() == returned.keys()
        assert set(jobs.values()) == {1}
        assert set(story.completions().values()) == {1}
        assert self._flow.answers.keys() <= {"DatabaseUnavailable", "HTTP 503"}
        assert max(lines) < MOST_LINES
        assert all(worker.alive for worker in self._fleet.workers)


@contextmanager
def watched(url: str, home: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Watch]:
    flow, fleet = Flow(url), Fleet(url, home)
    try:
        fleet.start_many(WORKERS)
        wait_for(lambda: len(flow.store.upkeep.workers()) == WORKERS, "all are at work")
        with flow.running():
            yield Watch(fleet, flow, caplog)
    finally:
        fleet.close()


def switch_over(cluster: Cluster, _primary: Node) -> None:
    cluster.switch_over()


def kill(_cluster: Cluster, primary: Node) -> None:
    primary.kill()


def cut_off(_cluster: Cluster, primary: Node) -> None:
    primary.cut_off()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("route", ["multi_host", "proxy"] if FULL else ["multi_host"])
@pytest.mark.parametrize("fail", [switch_over, kill, cut_off] if FULL else [switch_over])
def test_work_goes_on_with_the_new_primary(
    fail: Callable[[Cluster, Node], None],
    route: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if missing := what_is_missing(hosts=fail is cut_off):
        pytest.skip(missing)
    with cluster(hosts=fail is cut_off) as servers, ThreadPoolExecutor(1) as thread:
        primary, standby = servers.primary_and_standby()
        url = servers.multi_host_url if route == "multi_host" else servers.proxy_url
        with watched(url, tmp_path, caplog) as watch:
            failing = thread.submit(fail, servers, primary)
            begun = time.monotonic()
            wait_for(lambda: takes_writes(standby.url), "a new primary", 120)
            since = time.monotonic()
            failing.result()
            times = watch.until_each_starts_again(since)
            time.sleep(2)
            watch.check(
                f"{fail.__name__} via {route}, {since - begun:.1f} s without primary", times
            )
        assert times[-1] < BACK_WITHIN


@pytest.mark.skipif(not FULL, reason="make chaos")
@pytest.mark.timeout(600)
def test_work_goes_on_when_a_late_proxy_leads_to_the_new_primary(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Until then it leads to the old one, which takes no writes any more."""
    if missing := what_is_missing():
        pytest.skip(missing)
    with cluster() as servers:
        primary, standby = servers.primary_and_standby()
        proxy = Proxy(primary.url)
        with closing(proxy), watched(proxy.url, tmp_path, caplog) as watch:
            servers.switch_over()
            wait_for(lambda: "sync_standby" in servers.roles(), "the old one is a standby")
            time.sleep(20)
            proxy.lead_to(standby.url)
            times = watch.until_each_starts_again(time.monotonic())
            watch.check("late proxy", times)
            assert times[-1] < BACK_WITHIN


@pytest.mark.skipif(not FULL, reason="make chaos")
@pytest.mark.timeout(600)
def test_work_goes_on_after_connections_have_died_silently(
    database_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    proxy = Proxy(database_url)
    with closing(proxy), watched(proxy.url, tmp_path, caplog) as watch:
        proxy.fall_silent()
        moment = 0.5  # what was claimed just before may still start
        times = watch.until_each_starts_again(time.monotonic() + moment)
        watch.check("silent connections", [seconds + moment for seconds in times])
        assert times[-1] < 15
