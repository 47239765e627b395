"""A chore that takes long keeps its lease, and ends early when it must."""

import threading
import time
from datetime import timedelta
from uuid import uuid4

import pytest

from evenbeat import Evenbeat
from evenbeat.engine.maintenance import Maintenance
from evenbeat.store.part import Between
from evenbeat.testing import Harness

MINUTE = timedelta(minutes=1)


class Slow:
    """A chore of three batches, with something that happens in each."""

    name = "slow"
    every = timedelta(hours=1)

    def __init__(self, in_batch) -> None:
        self.batches = 0
        self._in_batch = in_batch

    def run_once(self, between: Between, /) -> int:
        for _ in range(3):
            between()
            self.batches += 1
            self._in_batch()
        return self.batches


@pytest.fixture
def harness(database_url):
    with Harness(Evenbeat(database_url)) as harness:
        yield harness


def another(harness: Harness, chore: Slow) -> int | None:
    """What a second worker gets when it asks for the chore."""
    worker = harness.worker
    other = Maintenance(
        harness.app.store,
        harness.clock,
        worker.maintenance._reaper,
        [],
        worker_id=uuid4(),
        reap_seconds=1,
    )
    return other.do(chore)


def test_a_long_chore_keeps_its_lease(harness):
    taken = []

    def four_minutes() -> None:
        harness.clock.move_to(harness.clock.now() + 4 * MINUTE)
        taken.append(another(harness, Slow(lambda: None)))

    assert harness.worker.maintenance.do(Slow(four_minutes)) == 3
    assert taken == [None, None, None]


def test_a_holder_that_was_frozen_stops_before_its_next_batch(harness):
    def freeze() -> None:
        harness.clock.move_to(harness.clock.now() + 6 * MINUTE)
        assert another(harness, Slow(lambda: None)) == 3

    frozen = Slow(freeze)
    assert harness.worker.maintenance.do(frozen) is None
    assert frozen.batches == 1
    assert another(harness, Slow(lambda: None)) is None  # it was done


def test_neither_lost_runs_nor_other_chores_wait_for_the_end_of_a_long_one(harness):
    maintenance = harness.worker.maintenance
    quick = Slow(lambda: None)
    quick.name = "quick"
    seen = []
    slow = Slow(lambda: (reap_is_due(), seen.append((len(reaped), quick.batches))))

    def reap_is_due() -> None:
        maintenance._ticked_at = -maintenance._reap_seconds

    reaped = []
    maintenance._reaper.run_once = lambda: reaped.append(None) or []
    maintenance._chores = [slow, quick]
    maintenance.run_once()
    assert slow.batches == quick.batches == 3
    assert seen == [(1, 0), (2, 3), (3, 3)]


def test_a_long_chore_leaves_most_of_the_time_to_others(harness):
    maintenance = harness.worker.maintenance
    passed = 0.0

    def work() -> None:
        nonlocal passed
        passed += 0.05

    began = time.monotonic()
    maintenance._monotonic = lambda: began + passed
    rests = []
    maintenance.rest = rests.append
    assert maintenance.do(Slow(work)) == 3
    assert rests == pytest.approx([0, maintenance.pauses * 0.05, maintenance.pauses * 0.05])


def test_a_stop_waits_for_the_present_batch_only_and_leaves_the_chore_to_others(harness):
    in_batch, stopped = threading.Event(), threading.Event()

    def wait() -> None:
        in_batch.set()
        assert stopped.wait(10)

    slow, never = Slow(wait), Slow(lambda: None)
    never.name = "never"
    maintenance = harness.worker.maintenance
    maintenance._chores = [slow, never]
    maintenance.start()
    assert in_batch.wait(10)
    maintenance.stop()
    stopped.set()
    maintenance.join(10)
    assert (slow.batches, never.batches) == (1, 0)
    assert another(harness, Slow(lambda: None)) == 3


def test_a_stop_while_a_chore_rests_is_not_slept_through(harness):
    maintenance = harness.worker.maintenance
    maintenance._reap_seconds = 3600
    maintenance._chores = [Slow(lambda: None)]
    rest, rests = maintenance.rest, []

    def stopped_in_the_first(seconds: float) -> None:
        if not rests:
            maintenance.stop()
        rests.append(seconds)
        rest(seconds)

    maintenance.rest = stopped_in_the_first
    maintenance.start()
    maintenance.join(10)
    assert not maintenance._thread.is_alive()
