"""How often leases are renewed, as a rule and for jobs that want it otherwise; and given up."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from evenbeat import Context, Evenbeat
from evenbeat.engine.clock import DatabaseClock
from evenbeat.engine.lease_keeper import LeaseKeeper
from evenbeat.engine.run import ActiveRuns, Run, StopReason
from evenbeat.engine.run_logs import RunLogWriter


@pytest.mark.parametrize(
    ("lease", "heartbeat", "rhythm"),
    [(None, None, 10), (6.0, None, 2), (120.0, None, 10), (120.0, 3.0, 3), (120.0, 60.0, 10)],
)
def test_a_job_may_want_its_lease_renewed_more_often(evenbeat_harness, lease, heartbeat, rhythm):
    app = Evenbeat(name="keeper")
    seen = []

    @app.task
    def look(ctx: Context) -> None:
        keeper = harness.worker.keeper
        for run in harness.worker.runs.all():
            run.job = run.job._replace(lease_seconds=lease, heartbeat_seconds=heartbeat)
        seen.append(keeper._rhythm())

    harness = evenbeat_harness(app)
    look.enqueue()
    harness.drain()
    assert seen == [rhythm]
    assert harness.worker.keeper._rhythm() == 10


class Counted(ActiveRuns):
    """Counts how often it is gone over."""

    looks = 0

    def all(self) -> list[Run]:
        self.looks += 1
        return super().all()


def test_leases_that_run_out_are_given_up_in_one_look_at_each_run():
    runs = Counted()
    held: Any = SimpleNamespace(lease_seconds=None, heartbeat_seconds=None)
    nothing: Any = None

    def context() -> Any:
        return SimpleNamespace(execution_id=uuid4(), cancel=lambda: None)

    made = [Run(held, nothing, context()) for _ in range(100)]
    for run in made[:30]:
        run.leased_at -= 30
    made[0].ended = True
    runs.add(made)
    keeper = LeaseKeeper(
        nothing,
        runs,
        DatabaseClock(),
        nothing,
        lease=timedelta(seconds=30),
        renew_seconds=10,
        logs=RunLogWriter(nothing, runs, DatabaseClock(), level="off", prints=False),
    )
    assert keeper.give_up_expired() == made[1:30]
    assert {run.stop_reason for run in made[1:30]} == {StopReason.LOST}
    assert {run.stop_reason for run in [made[0], *made[30:]]} == {None}
    assert runs.looks <= 3
