"""How long a claimer rests, and what wakes it: never too long, and not in vain."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from evenbeat import Evenbeat
from evenbeat.engine.claimer import Claimer
from waiting import wait_for

SOON = timedelta(seconds=0.3)


class Looks:
    """A claimer at work, and how often it has looked for jobs."""

    def __init__(self, claimer: Claimer) -> None:
        self.alarm = claimer._alarm
        self.number = 0
        self._look = claimer.run_once
        claimer.run_once = self._counted  # type: ignore[method-assign]

    def _counted(self) -> float:
        rest = self._look()
        self.number += 1
        return rest

    def wait_for(self, number: int) -> None:
        wait_for(lambda: self.number >= number, f"look {number}")


@pytest.fixture
def looks(database_url: str) -> Iterator[Looks]:
    app = Evenbeat(database_url, poll_seconds=3600)

    @app.task
    async def nothing() -> None: ...

    with app:
        worker = app.worker()
        claimer = worker.claimer
        looks = Looks(claimer)
        claimer.start()
        looks.wait_for(1)
        yield looks
        claimer.stop()
        claimer.join(timeout=20)
        for runner in worker.runners:
            runner.close()


def test_it_looks_again_for_what_is_due_before_its_rest_ends(looks: Looks) -> None:
    looks.alarm.expect([None, datetime.now(UTC) + SOON])
    looks.wait_for(2)


def test_it_rests_on_for_what_is_due_later(looks: Looks) -> None:
    looks.alarm.expect([datetime.now(UTC) + timedelta(days=2), None])
    looks.alarm.expect([])
    looks.alarm.expect([datetime.now(UTC) + SOON])  # the only one that wakes it
    looks.wait_for(2)
    assert looks.number == 2


def test_a_slow_answer_does_not_make_it_oversleep(database_url: str) -> None:
    app = Evenbeat(database_url, poll_seconds=3600)

    @app.task
    async def later() -> None: ...

    with app:
        due = app.store.read.job(later.options(delay="30s").enqueue().id).next_run_at
        assert due is not None
        worker, answer = app.worker(), app.store.next_due
        left = []

        def slow(**given: Any) -> tuple[datetime | None, datetime]:
            answered = answer(**given)
            time.sleep(0.5)
            left.append((due - datetime.now(UTC)).total_seconds())
            return answered

        app.store.next_due = slow  # type: ignore[method-assign]
        assert worker.claimer.run_once() < left[0] + 0.1
        for runner in worker.runners:
            runner.close()


def test_a_job_that_is_put_behind_the_frontier_is_soon_found(database_url, monkeypatch):
    """Every look counts as slow, so that each claim begins where the last one saw something."""
    monkeypatch.setattr("evenbeat.store.rows.Frontier.SLOW_SECONDS", -1.0)
    monkeypatch.setattr("evenbeat.store.rows.Frontier.IN_VAIN_SECONDS", 0.0)
    app = Evenbeat(database_url, poll_seconds=60)

    @app.task
    async def noop() -> None: ...

    with app:
        worker = app.worker()
        worker.start()
        try:
            done = [noop.enqueue().id for _ in range(3)]
            past = app.store.clock() - timedelta(days=1)
            done.append(noop.options(run_at=past).enqueue().id)
            began = time.monotonic()
            wait_for(
                lambda: all(app.store.read.job(id_).status == "completed" for id_ in done), "all"
            )
            assert time.monotonic() - began < 20, "not only by the poll"
        finally:
            worker.stop()
