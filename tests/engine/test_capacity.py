"""How much a runner would take: its free slots, and a little ahead of its pace."""

import time
from typing import Any

from evenbeat.engine import runners, slots
from evenbeat.engine.runners import Runner
from evenbeat.engine.slots import SharedSlots


class Counting(Runner):
    """A runner with a pace of our choice."""

    place = "loop"

    def __init__(self, pace: float) -> None:
        nobody: Any = None
        super().__init__(20, SharedSlots(20), ["noop"], nobody, nobody, worker_loop=nobody)
        for places in (self._slots, self._shared):
            places._pace = pace
            places._pace_at = time.monotonic() + 1000  # not measured while we look

    def start(self) -> None: ...

    def _start_waiting(self, new) -> None: ...

    def close(self) -> None: ...


def claims(runner: Runner, seconds: float) -> Runner:
    for _ in range(40):
        runner.claim_took(seconds)
    return runner


def test_a_runner_without_a_pace_takes_what_fits_its_slots():
    assert Counting(0).capacity() == 20


def test_short_jobs_are_fetched_a_little_ahead():
    assert claims(Counting(1000), 0.001).capacity() == 20 + 1000 * runners.AHEAD_SECONDS


def test_slow_claims_fetch_more_at_a_time():
    assert (
        claims(Counting(1000), 0.03).capacity() == 20 + 119
    )  # four claims of 30 ms, less a rounding


def test_but_never_far_ahead():
    assert claims(Counting(1000), 60).capacity() == 20 + 1000 * runners.MOST_AHEAD_SECONDS
    assert claims(Counting(1_000_000), 60).capacity() == 20 + slots.MOST_AHEAD


def test_one_slow_claim_is_soon_forgotten():
    runner = claims(Counting(1000), 0.001)
    runner.claim_took(1.0)
    assert claims(runner, 0.001).capacity() == 20 + 1000 * runners.AHEAD_SECONDS
