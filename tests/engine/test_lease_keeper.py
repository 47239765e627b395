"""How often leases are renewed: as a rule, and for jobs that want it otherwise."""

import pytest

from evenbeat import Context, Evenbeat


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
