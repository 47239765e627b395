"""A job that this node cannot read, in the midst of jobs that it can."""

from datetime import timedelta

import psycopg
import pytest

from evenbeat import Context, Evenbeat
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.schedule import Cron, Interval
from evenbeat.errors import DatabaseUnavailable

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


@pytest.fixture
def harness(evenbeat_harness):
    app, seen = Evenbeat(), []

    @app.task
    async def note(ctx: Context) -> None:
        seen.append(ctx.job.id)

    harness = evenbeat_harness(app)
    harness.seen = seen
    return harness


def in_zone(harness, job_id, zone):
    """What a node with other time zones may have stored."""
    database = harness.app.store.database
    with psycopg.connect(database.url) as connection:
        connection.execute(
            f'UPDATE "{database.schema}".jobs SET timezone = %s WHERE id = %s',  # noqa: S608
            (zone, job_id),
        )


def test_a_zone_that_is_unknown_here_costs_no_other_job_anything(harness, caplog):
    app, clock = harness.app, harness.clock
    odd = app.add(NewJob(JobSpec("note", schedule=Cron("0 * * * *", "Europe/Berlin")))).id
    late = app.add(NewJob(JobSpec("note", schedule=Interval(HOUR, clock.now())))).id
    in_zone(harness, odd, "Mars/Olympus_Mons")
    harness.skip("2h30m")
    plain = app.add(NewJob(JobSpec("note"))).id
    harness.drain()
    assert sorted(harness.seen) == sorted([plain, late])
    assert f"the schedule of job {odd} cannot be read" in caplog.text
    waiting = app.store.read.job(odd)
    assert (waiting.status, waiting.current_retry_count) == ("scheduled", 0)
    assert waiting.next_run_at == clock.now() + MINUTE
    assert app.store.read.executions_of(odd).executions[0].error_code == "unreadable"
    assert app.add(NewJob(JobSpec("note", schedule=Interval(HOUR)))).created
    assert app.balancer.distribution().total_jobs == 2
    assert app.balancer.preview().moves == []
    in_zone(harness, odd, "Europe/Berlin")
    harness.advance("1m")
    assert harness.seen[-1] == odd


def test_a_database_that_fails_at_the_second_look_costs_only_late_jobs_a_lease(
    harness, monkeypatch
):
    app = harness.app
    app.add(NewJob(JobSpec("note", schedule=Interval(HOUR, harness.clock.now()))))
    harness.skip("2h30m")
    plain = app.add(NewJob(JobSpec("note"))).id

    def gone(*_args: object) -> None:
        monkeypatch.undo()
        raise DatabaseUnavailable("gone")

    monkeypatch.setattr(app.store, "revise", gone)
    with pytest.raises(DatabaseUnavailable):
        harness.drain()
    harness.drain()
    assert harness.seen == [plain]
