"""The log lines of a job's story, in the seeds' words, told by the real engine."""

import logging
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from evenbeat import Context, Evenbeat
from evenbeat.engine.reporter import MOST_LINES, RunLines


@pytest.fixture
def told(caplog):
    """The records of one event, as (level, fields)."""
    caplog.set_level(logging.DEBUG, logger="evenbeat")

    def of(event: str) -> list[logging.LogRecord]:
        return [
            record
            for record in caplog.records
            if getattr(record.msg, "words", record.getMessage()) == event
        ]

    return of


def test_a_run_is_told_from_its_claim_to_its_end(evenbeat_harness, told):
    app = Evenbeat(name="story")

    @app.task(retry_backoff="120s")
    async def crawl(ok: bool, ctx: Context) -> None:
        if not ok:
            raise ConnectionError("connection timeout")
        ctx.report(items_crawled=25)

    harness = evenbeat_harness(app)
    source = crawl.options(metadata={"source_name": "example.com"})
    done, failed = source.enqueue(True), source.enqueue(False)
    harness.drain()

    (claimed,) = told("Jobs claimed")
    assert (claimed.jobs, claimed.levelname) == (2, "DEBUG")
    started = {record.job_id: record for record in told("Executing job")}
    assert set(started) == {str(done.id), str(failed.id)}
    assert started[str(done.id)].source_name == "example.com"
    assert started[str(done.id)].retry_attempt == 0
    (completed,) = told("Job completed successfully")
    assert (completed.levelname, completed.job_id) == ("INFO", str(done.id))
    assert completed.items_crawled == 25
    assert completed.duration.endswith("s")
    (failure,) = told("Job execution failed")
    assert (failure.levelname, failure.error) == ("ERROR", "connection timeout")
    assert 90 <= int(failure.retry_in.removesuffix("s")) <= 150


def test_start_stale_locks_and_chores_are_told(database_url, told):
    app = Evenbeat(database_url, poll_seconds=10, lease_seconds=300, renew_seconds=100)

    @app.task
    def work() -> None: ...

    job = work.enqueue()
    app.store.claim(uuid4(), 1, now=datetime.now(UTC) + timedelta(seconds=1))
    app.store.database.query(
        "expire",
        "UPDATE evenbeat.jobs SET lock_acquired_at = now() - interval '6 minutes',"
        " lock_expires_at = now() - interval '1 minute' RETURNING id",
        {},
    )
    worker = app.worker()
    worker.maintenance.run_once()
    worker.start()
    worker.stop(grace=0)
    app.close()

    (cleared,) = told("Cleared stale lock")
    assert (cleared.levelname, cleared.job_id) == ("WARNING", str(job.id))
    assert 359 <= int(cleared.lock_age.removesuffix("s")) <= 400
    (starting,) = told("Starting interval scheduler")
    assert (starting.check_interval, starting.lock_duration) == ("10s", "300s")
    assert "figures" in {record.chore for record in told("Chore done")}


def test_every_start_of_a_scheduler_rebuilds_the_bucket_map(database_url, told):
    with Evenbeat(database_url) as app:

        @app.every("1h")
        def work() -> None: ...

        for starts in (1, 2):
            worker = app.worker()
            before = len(told("Bucket map rebuilt"))  # the new schedule was placed by a map, too
            worker.start()
            worker.stop(grace=0)
            *_, rebuilt = told("Bucket map rebuilt")
            assert len(told("Bucket map rebuilt")) == before + 1, starts
            assert (rebuilt.levelname, rebuilt.job_count) == ("INFO", 1)
            assert 0 < rebuilt.distribution_score <= 1


def test_a_source_named_in_the_payload_is_told_as_well(evenbeat_harness, told):
    app = Evenbeat(name="source")

    @app.task
    async def crawl(url: str, source_name: str | None = None) -> None: ...

    harness = evenbeat_harness(app)
    named, unnamed = crawl.enqueue("https://example.com", "example.com"), crawl.enqueue("x", None)
    harness.drain()
    started = {record.job_id: record for record in told("Executing job")}
    assert started[str(named.id)].source_name == "example.com"
    assert not hasattr(started[str(unnamed.id)], "source_name")


def test_many_runs_are_summed_up_and_all_are_there_at_debug(caplog):
    caplog.set_level(logging.INFO, logger="evenbeat.worker")
    seconds = 0.0
    lines = RunLines(lambda: seconds)
    assert lines.take("started", MOST_LINES - 10) == MOST_LINES - 10
    assert lines.take("completed", 30) == 10
    assert lines.take("started", 7) == 0
    lines.flush()
    assert not caplog.records  # the second is not over
    seconds = 1.5
    assert lines.take("started", 1) == 1
    (summed,) = caplog.records
    assert (summed.started, summed.completed, summed.within) == (7, 20, "1.5s")
    assert summed.getMessage().endswith("7 more started and 20 more completed within 1.5s")
    caplog.set_level(logging.DEBUG, logger="evenbeat.worker")
    assert lines.take("started", 5000) == 5000
    caplog.set_level(logging.WARNING, logger="evenbeat.worker")
    assert lines.take("started", 5) == 0


def test_an_outage_of_many_schedules_is_one_warning(evenbeat_harness, told):
    app = Evenbeat(name="many")
    names = [f"job {number}" for number in range(20)]
    for name in names:

        @app.every("1h", schedule_name=name, name=name, catch_up="latest_only")
        async def work() -> None: ...

    harness = evenbeat_harness(app)
    harness.clock.move_to(harness.now + timedelta(days=2))
    harness.drain()
    (skipped,) = told("Skipped missed plans")
    assert (skipped.levelname, skipped.jobs) == ("WARNING", 20)
    assert skipped.plans >= 20 * 46
