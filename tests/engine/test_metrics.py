"""Metrics, read as Prometheus reads them, after real jobs ran on the real store."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from prometheus_client.parser import text_string_to_metric_families

from evenbeat import Context, Evenbeat, Retry
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.schedule import Interval
from evenbeat.engine.worker import Worker
from evenbeat.observe.metrics import METRICS
from evenbeat.store.upkeep import NewWorker
from evenbeat.testing import temporary_server
from waiting import PATIENCE, wait_for

Read = Callable[..., float | None]


def read(app: Evenbeat) -> Read:
    """Scrape once; the result gives the value of a sample by its name and labels."""
    text = app.metrics.render()[0].decode()
    samples = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    return lambda name, **labels: samples.get((name, frozenset(labels.items())))


@pytest.fixture
def app(database_url: str) -> Iterator[Evenbeat]:
    """An application on the test's database; its clock is the database's."""
    made = Evenbeat(database_url, name="metrics")
    yield made
    made.close()


@pytest.fixture
def work(app: Evenbeat) -> Iterator[Callable[..., Worker]]:
    """Starts workers of the app; they are stopped for you."""
    started: list[Worker] = []

    def start(**options: object) -> Worker:
        started.append(app.worker(**options))
        started[-1].start()
        return started[-1]

    yield start
    for worker in started:
        worker.stop(grace=0)


# -- what the engine did -------------------------------------------------------------------------


def test_every_kind_of_ending_is_counted_once(evenbeat_harness):
    app = Evenbeat(name="endings")

    @app.task(max_retries=1, retry_backoff="10s")
    async def work(how: str) -> None:
        if how == "fail":
            raise ValueError("no")
        if how == "retry":
            raise Retry(after="1s")

    @app.task(timeout="50ms", max_retries=0)
    async def slow() -> None:
        await asyncio.sleep(60)

    harness = evenbeat_harness(app)
    for how in ("ok", "ok", "ok", "fail", "retry"):
        work.enqueue(how)
    slow.enqueue()
    harness.drain()

    seen = read(app)
    assert seen("evenbeat_executions_total", task="work", outcome="completed") == 3
    assert seen("evenbeat_executions_total", task="work", outcome="failed") == 2
    assert seen("evenbeat_executions_total", task="work", outcome="cancelled") == 0
    assert seen("evenbeat_retries_total", task="work") == 2
    assert seen("evenbeat_executions_total", task="slow", outcome="failed") == 1
    assert seen("evenbeat_timeouts_total", task="slow") == 1
    assert seen("evenbeat_timeouts_total", task="work") == 0
    assert seen("evenbeat_retries_total", task="slow") == 0

    assert seen("evenbeat_retry_ends_total", task="work", outcome="failed") == 0
    harness.advance("1m")  # the second tries: both fail for good
    seen = read(app)
    assert seen("evenbeat_retry_ends_total", task="work", outcome="failed") == 2
    assert seen("evenbeat_retry_ends_total", task="work", outcome="completed") == 0
    assert seen("evenbeat_executions_total", task="work", outcome="failed") == 4
    assert seen("evenbeat_retries_total", task="work") == 2


def test_durations_and_pickup_delays_are_those_of_the_history(evenbeat_harness):
    app = Evenbeat(name="delays")

    @app.task
    def nap(seconds: float) -> None:
        time.sleep(seconds)

    harness = evenbeat_harness(app)
    added = [nap.enqueue(seconds) for seconds in (0.0, 0.03, 0.12)]
    harness.skip("45s")
    harness.drain()

    history = [app.store.read.executions_of(job.id).executions[0] for job in added]
    seen, labels = read(app), {"task": "nap", "outcome": "completed"}
    took = sum(execution.duration_ms for execution in history) / 1000
    waited = sum(execution.wait_ms for execution in history) / 1000
    name = "evenbeat_execution_duration_seconds"
    assert seen(f"{name}_count", **labels) == 3
    assert seen(f"{name}_sum", **labels) == pytest.approx(took)
    assert seen(f"{name}_bucket", le="0.025", **labels) == sum(e.duration_ms <= 25 for e in history)
    assert seen(f"{name}_bucket", le="0.1", **labels) == sum(e.duration_ms <= 100 for e in history)
    assert seen(f"{name}_bucket", le="+Inf", **labels) == 3
    assert seen("evenbeat_pickup_delay_seconds_sum", task="nap") == pytest.approx(waited)
    assert seen("evenbeat_pickup_delay_seconds_bucket", task="nap", le="30.0") == 0
    assert seen("evenbeat_pickup_delay_seconds_bucket", task="nap", le="60.0") == 3


def test_batches_are_counted_by_their_size(evenbeat_harness):
    app = Evenbeat(name="batches")

    @app.task
    async def work() -> None: ...

    harness = evenbeat_harness(app)
    app.enqueue_many(work.job() for _ in range(60))
    harness.drain()

    seen = read(app)
    assert seen("evenbeat_claim_batch_size_sum") == 60
    assert seen("evenbeat_finish_batch_size_sum") == 60
    assert seen("evenbeat_claim_batch_size_bucket", le="0.0") >= 1  # the last found nothing
    assert seen("evenbeat_claim_batch_size_bucket", le="50.0") == (
        seen("evenbeat_claim_batch_size_count") - 1
    )
    assert seen("evenbeat_finish_duration_seconds_count") == seen(
        "evenbeat_finish_batch_size_count"
    )
    assert seen("evenbeat_claim_duration_seconds_sum") > 0


def test_skipped_plans_are_counted(evenbeat_harness):
    app = Evenbeat(name="skipping")

    @app.every("10m")
    async def tick() -> None: ...

    harness = evenbeat_harness(app)
    harness.advance("10m")
    harness.skip("1h")
    harness.drain()
    assert read(app)("evenbeat_plans_skipped_total", task="tick") == 5


def test_a_cancelled_and_a_lost_run_are_told_apart(app, work):
    begun = threading.Semaphore(0)

    @app.task
    async def wait(ctx: Context) -> None:
        begun.release()
        await asyncio.sleep(60)

    worker = work()
    cancelled, lost = wait.enqueue().id, wait.enqueue().id
    begun.acquire(timeout=PATIENCE)
    begun.acquire(timeout=PATIENCE)
    app.store.control.cancel([cancelled])
    app.store.database.query(
        "steal",
        "UPDATE evenbeat.jobs SET lock_token = gen_random_uuid() WHERE id = %(id)s RETURNING id",
        {"id": lost},
    )
    worker.keeper.renew_all()
    wait_for(lambda: not worker.runs)

    wait_for(lambda: read(app)("evenbeat_leases_lost_total", task="wait") == 1)
    seen = read(app)
    assert seen("evenbeat_executions_total", task="wait", outcome="cancelled") == 1
    assert seen("evenbeat_executions_total", task="wait", outcome="failed") == 0
    assert seen("evenbeat_execution_duration_seconds_count", task="wait", outcome="failed") is None
    assert seen("evenbeat_renew_duration_seconds_count") >= 1


def test_a_stopping_worker_hands_back_and_that_is_counted(app):
    begun = threading.Event()

    @app.task
    async def wait() -> None:
        begun.set()
        await asyncio.sleep(60)

    worker = app.worker()
    worker.start()
    wait.enqueue()
    assert begun.wait(PATIENCE)
    worker.stop(grace=0)

    seen = read(app)
    assert seen("evenbeat_executions_released_total", task="wait") == 1
    assert seen("evenbeat_executions_total", task="wait", outcome="completed") == 0
    assert seen("evenbeat_process_workers") == 0
    assert seen("evenbeat_running", runner="loop") is None


def test_cleared_locks_are_counted_here_and_for_all(app):
    @app.task
    async def work() -> None: ...

    other, past = Evenbeat(app.store.database.url), datetime.now(UTC) - timedelta(hours=1)
    work.enqueue()
    assert app.store.claim(uuid4(), 1, now=datetime.now(UTC) + timedelta(seconds=1))
    app.store.database.query(
        "expire",
        "UPDATE evenbeat.jobs SET lock_expires_at = %(past)s RETURNING id",
        {"past": past},
    )
    worker = app.worker()
    worker.maintenance.run_once()
    for runner in worker.runners:
        runner.close()

    seen, elsewhere = read(app), read(other)
    assert seen("evenbeat_leases_reaped_total") == 1
    assert elsewhere("evenbeat_leases_reaped_total") == 0
    assert seen("evenbeat_stale_locks_cleared_total") == 1
    assert elsewhere("evenbeat_stale_locks_cleared_total") == 1
    assert seen("evenbeat_chore_duration_seconds_count", chore="figures") == 1
    other.close()


# -- this process now ----------------------------------------------------------------------------


def test_running_and_slots_are_those_of_this_moment(app, work):
    release = threading.Event()
    begun = threading.Semaphore(0)

    @app.task
    def hold() -> None:
        begun.release()
        release.wait(PATIENCE)

    @app.task
    async def idle() -> None: ...

    worker = work(concurrency=7)
    for _ in range(3):
        hold.enqueue()
    for _ in range(3):
        assert begun.acquire(timeout=PATIENCE)

    seen = read(app)
    assert seen("evenbeat_process_workers") == 1
    assert seen("evenbeat_running", runner="thread") == 3
    assert seen("evenbeat_slots", runner="thread") == 7
    assert seen("evenbeat_slots_free", runner="thread") == 4
    assert seen("evenbeat_running", runner="loop") == 0
    assert seen("evenbeat_leases") == 3
    assert seen("evenbeat_queue_running", queue="default") == 3
    assert seen("evenbeat_workers", status="active") == 1
    assert 0 <= seen("evenbeat_claim_age_seconds") < 60
    release.set()
    wait_for(lambda: not worker.runs)
    assert read(app)("evenbeat_running", runner="thread") == 0


def test_a_handler_that_blocks_the_loop_shows_as_lag(app, work):
    release, begun = threading.Event(), threading.Event()

    @app.task
    async def block() -> None:
        begun.set()
        release.wait(PATIENCE)

    work()
    assert read(app)("evenbeat_event_loop_lag_seconds") < 20
    block.enqueue()
    assert begun.wait(PATIENCE)
    wait_for(lambda: read(app)("evenbeat_event_loop_lag_seconds") > 0.6)
    release.set()
    wait_for(lambda: read(app)("evenbeat_event_loop_lag_seconds") < 0.5)


def test_the_pools_are_shown(app, work):
    @app.task
    async def work_() -> None: ...

    work()
    seen = read(app)
    for pool, most in (("general", 10), ("journey", 5)):
        assert 1 <= seen("evenbeat_pool_connections", pool=pool) <= most
        assert seen("evenbeat_pool_connections_max", pool=pool) == most
        wait_for(lambda p=pool: read(app)("evenbeat_pool_waiting", pool=p) == 0)
    with app.store.database.transaction():
        held = read(app)
    assert held("evenbeat_pool_connections_idle", pool="general") < held(
        "evenbeat_pool_connections", pool="general"
    )


# -- the whole database --------------------------------------------------------------------------


def test_jobs_queues_workers_and_tables_are_counted(app):
    now = datetime.now(UTC)
    for queue, count in (("mail", 3), ("default", 2)):
        for _ in range(count):
            app.store.add(
                NewJob(JobSpec("elsewhere", queue=queue)), now=now - timedelta(minutes=10)
            )
    app.store.add(NewJob(JobSpec("elsewhere"), start=timedelta(days=1)))
    app.store.control.pause_queue("mail")
    for age in (0, 3600):
        app.store.upkeep.register_worker(
            NewWorker(uuid4(), "host", 1, 0.0, "1", 1), now=now - timedelta(seconds=age)
        )

    seen = read(app)
    assert seen("evenbeat_database_up") == 1
    assert seen("evenbeat_jobs", state="pending") == 5
    assert seen("evenbeat_jobs", state="scheduled") == 1
    assert seen("evenbeat_jobs", state="failed") == 0
    assert seen("evenbeat_queue_due", queue="mail") == 3
    assert seen("evenbeat_queue_due", queue="default") == 2
    assert 590 < seen("evenbeat_queue_oldest_due_age_seconds", queue="mail") < 700
    assert seen("evenbeat_queue_paused", queue="mail") == 1
    assert seen("evenbeat_queue_paused", queue="default") == 0
    assert seen("evenbeat_workers", status="active") == 1
    assert seen("evenbeat_workers", status="silent") == 1
    assert seen("evenbeat_table_bytes", table="jobs") > 0
    assert seen("evenbeat_table_dead_tuples", table="executions") is not None
    assert seen("evenbeat_stale_locks_cleared_total") == 0


def test_due_jobs_are_shown_by_their_priority(app):
    for priority, number in ((0, 3), (15, 2), (100, 1)):
        for queue in ("a", "b"):
            jobs = [NewJob(JobSpec("elsewhere", priority=priority, queue=queue))] * number
            app.store.add_many(jobs)
    app.store.add(NewJob(JobSpec("elsewhere", priority=50), start=timedelta(days=1)))

    seen = read(app)
    bounds = {"0.0": 6, "10.0": 6, "20.0": 10, "90.0": 10, "100.0": 12, "+Inf": 12}
    assert {le: seen("evenbeat_due_priority_bucket", le=le) for le in bounds} == bounds
    assert seen("evenbeat_due_priority_count") == 12
    assert seen("evenbeat_due_priority_sum") == 2 * (2 * 15 + 100)


def test_what_breaks_a_rule_is_counted_by_task(app, connect):
    now = app.store.clock()
    app.store.add_many([NewJob(JobSpec("far"))] * 3, now=now - timedelta(hours=2))
    app.store.claim(uuid4(), 2, lease=timedelta(hours=9), now=now - timedelta(minutes=61))
    hourly = JobSpec("sync", schedule=Interval(timedelta(hours=1)))
    one, two = (app.store.add(NewJob(hourly, name=name)).id for name in ("one", "two"))
    connection = connect()
    noted = "INSERT INTO evenbeat.job_alerts VALUES (%s, %s, %s, now())"
    for row in ((one, "success_rate", 0.5), (two, "success_rate", 0.1), (one, "slower", 2.0)):
        connection.execute(noted, row)
    connection.execute(
        "INSERT INTO evenbeat.outcomes (hour, task, missed) "
        "VALUES (date_trunc('hour', now()), 'nightly', 4)"
    )
    connection.commit()

    seen = read(app)
    assert seen("evenbeat_long_runs", task="far") == 2
    assert seen("evenbeat_unreliable_jobs", task="sync") == 2
    assert seen("evenbeat_slower_jobs", task="sync") == 1
    assert seen("evenbeat_missed_starts", task="nightly") == 4
    assert seen("evenbeat_long_runs", task="sync") is None


def test_figures_that_the_workers_keep_are_shown_with_their_age(evenbeat_harness):
    app = Evenbeat(name="figures")

    @app.task(max_retries=0)
    async def work(ok: bool) -> None:
        if not ok:
            raise ValueError("no")

    harness = evenbeat_harness(app)
    for ok in (True, True, True, False):
        work.enqueue(ok)
    harness.drain()
    harness.skip("1s")
    harness.worker.maintenance.run_once()
    harness.skip("42s")

    seen = read(app)
    assert seen("evenbeat_jobs", state="completed") == 3
    assert seen("evenbeat_jobs", state="failed") == 1
    assert seen("evenbeat_all_executions_total", outcome="completed") == 3
    assert seen("evenbeat_all_executions_total", outcome="failed") == 1
    assert seen("evenbeat_all_executions_total", outcome="cancelled") == 0
    assert seen("evenbeat_success_ratio") == 0.75
    assert seen("evenbeat_average_duration_seconds") > 0
    assert seen("evenbeat_figures_age_seconds", figure="executions") == 42


def test_a_transaction_that_stays_open_is_seen(app, connect):
    idle = connect()
    idle.execute("SELECT 1")
    time.sleep(0.05)
    assert read(app)("evenbeat_oldest_transaction_age_seconds") >= 0.05


def test_a_scrape_is_kept_for_a_while(app):
    before = read(app)("evenbeat_jobs", state="pending")
    app.store.add(NewJob(JobSpec("elsewhere")))
    assert read(app)("evenbeat_jobs", state="pending") == before == 0
    assert 0 < read(app)("evenbeat_scrape_age_seconds") < 5


def test_many_queues_do_not_flood_the_scraper(app):
    app.store.add_many([NewJob(JobSpec("elsewhere", queue=f"q{n:03}")) for n in range(130)])
    seen = read(app)
    assert seen("evenbeat_queue_due", queue="q000") == 1
    assert seen("evenbeat_queue_due", queue="q129") is None
    assert seen("evenbeat_queue_due", queue="(others)") == 30


# -- placement -----------------------------------------------------------------------------------


def test_placements_are_counted_and_timed_and_the_distribution_is_shown(app):
    for n in range(6):
        app.add(NewJob(JobSpec("elsewhere", schedule=Interval(timedelta(hours=4))), name=f"j{n}"))

    seen = read(app)
    assert seen("scheduler_placements_total", type="new") == 6
    assert seen("scheduler_placements_total", type="reschedule") == 0
    assert seen("scheduler_placements_total", type="rebalance") == 0
    assert seen("scheduler_placement_duration_seconds_count") == 6
    told = app.balancer.distribution()
    assert seen("scheduler_distribution_score") == pytest.approx(told.score)
    assert seen("scheduler_peak_hour_job_count") == max(told.jobs_per_hour)
    hours = [seen("scheduler_slot_job_count", hour=str(hour)) for hour in range(24)]
    assert hours == list(told.jobs_per_hour)
    assert sum(hours) == 36  # six a day each
    assert seen("scheduler_rebalance_total") == 0
    assert seen("scheduler_rebalance_jobs_moved") == 0


def test_a_rebalance_is_counted_with_what_it_moved(app):
    now = datetime.now(UTC)
    for n in range(12):  # all at once, long ago: no protection window, no cooldown
        new = JobSpec("elsewhere", schedule=Interval(timedelta(hours=6)), cost=timedelta(minutes=5))
        app.store.add(NewJob(new, name=f"j{n}", start=now + timedelta(hours=3)))
    done = app.balancer.rebalance()

    seen = read(app)
    assert seen("scheduler_rebalance_total") == 1
    assert seen("scheduler_rebalance_jobs_moved") == len(done.moved)
    assert seen("scheduler_rebalance_jobs_skipped") == len(done.skipped)
    assert seen("scheduler_placements_total", type="rebalance") == len(done.moved)
    assert len(done.moved) + len(done.skipped) > 0


def test_the_distribution_that_a_worker_keeps_is_shown_by_all(app):
    app.add(NewJob(JobSpec("elsewhere", schedule=Interval(timedelta(hours=1))), name="hourly"))
    app.balancer.watch()
    app.store.control.delete([app.store.read.job_by_name("hourly").id])

    seen = read(app)  # as of the last count
    assert [seen("scheduler_slot_job_count", hour=str(hour)) for hour in range(24)] == [1] * 24
    assert seen("scheduler_peak_hour_job_count") == 1
    assert seen("evenbeat_figures_age_seconds", figure="distribution") >= 0


def test_the_distribution_is_never_older_than_a_rebalance_or_its_undoing(app, database_url):
    start = datetime.now(UTC) + timedelta(hours=3)
    for n in range(12):
        new = JobSpec("elsewhere", schedule=Interval(timedelta(hours=6)), cost=timedelta(minutes=5))
        app.store.add(NewJob(new, name=f"j{n}", start=start))
    app.balancer.watch()
    other = Evenbeat(database_url)  # another process, which is scraped as well
    score, peak = "scheduler_distribution_score", "scheduler_peak_hour_job_count"
    before = [read(one)(score) for one in (app, other)]
    peaks = [read(one)(peak) for one in (app, other)]

    done = app.balancer.rebalance()
    assert done.new_score > done.old_score
    for one in (app, other):
        seen = read(one)
        assert seen(score) == pytest.approx(done.new_score, abs=0.01)
        assert seen(peak) < peaks[0]
    app.balancer.undo(done.id)
    after = [read(one)(score) for one in (app, other)]
    assert after == pytest.approx(before, abs=0.01)
    assert [read(one)(peak) for one in (app, other)] == peaks
    other.close()


def test_a_distribution_that_no_worker_has_noted_for_long_is_computed(app):
    app.balancer.watch()
    app.add(NewJob(JobSpec("elsewhere", schedule=Interval(timedelta(hours=1))), name="hourly"))
    assert read(app)("scheduler_peak_hour_job_count") == 0
    app.store.database.query(
        "age",
        "UPDATE evenbeat.figures SET updated_at = now() - interval '11 minutes'"
        " WHERE name = 'distribution' RETURNING name",
        {},
    )
    assert read(app)("scheduler_peak_hour_job_count") == 1


# -- when things go wrong ------------------------------------------------------------------------


def test_without_its_database_the_process_still_reports():
    with temporary_server() as url:
        app = Evenbeat(url, name="outage")

        @app.task
        async def work() -> None: ...

        with_worker = app.worker()
        with_worker.start()
        job = work.enqueue()
        wait_for(lambda: app.store.read.job(job.id).status == "completed")
        wait_for(lambda: read(app)("evenbeat_database_up") == 1)
        with_worker.stop()

    # The server is gone, for good.
    wait_for(lambda: read(app)("evenbeat_database_up") == 0)
    begun = time.monotonic()
    seen = read(app)
    assert time.monotonic() - begun < 10  # a scraper's patience; a pool would keep us for 30
    assert seen("evenbeat_jobs", state="completed") is None
    assert seen("scheduler_distribution_score") is None
    assert seen("evenbeat_executions_total", task="work", outcome="completed") == 1
    checks = app.readiness.report().checks
    assert checks == {"database": "The database does not answer; the log says why."}
    app.close()


def test_steps_that_the_database_does_not_answer_are_counted(app):
    @app.task
    def work() -> None: ...

    worker = app.worker()
    worker.claimer.run_once()
    app.store.database.close()
    worker.claimer.start()
    try:
        wait_for(lambda: read(app)("evenbeat_database_errors_total", during="claim") >= 1)
    finally:
        worker.claimer.stop()
        worker.claimer.join(timeout=20)
    assert read(app)("evenbeat_database_errors_total", during="finish") == 0


def test_two_applications_in_one_process_do_not_collide(database_url):
    one, two = Evenbeat(database_url, name="one"), Evenbeat(database_url, name="two")
    one.counters.claimed(3, 0.1)
    assert read(one)("evenbeat_claim_batch_size_sum") == 3
    assert read(two)("evenbeat_claim_batch_size_sum") is None
    assert read(two)("evenbeat_database_up") == 1
    one.close()
    two.close()


# -- the whole exposition ------------------------------------------------------------------------


def test_only_documented_metrics_are_exposed_with_their_kind_and_labels(app, work):
    @app.task
    async def work_() -> None: ...

    worker = work()
    job = work_.enqueue()
    wait_for(lambda: app.store.read.job(job.id).status == "completed")
    worker.maintenance.run_once()
    families = list(text_string_to_metric_families(app.metrics.render()[0].decode()))
    for family in families:
        if family.name.startswith("evenbeat_process_") and family.name not in METRICS:
            continue  # prometheus-client's own
        name = f"{family.name}_total" if family.type == "counter" else family.name
        known = METRICS[name]
        assert (family.type, family.documentation) == (known.kind, known.help)
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(known.labels), sample
    assert len(families) > 40


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain; version=0.0.4"),
        ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text"),
        ("text/plain; version=rubbish, */*", "text/plain; version=0.0.4"),
        ("\x00;;,=", "text/plain; version=0.0.4"),
    ],
)
def test_the_format_is_the_scrapers_choice(app, accept, content_type):
    body, given = app.metrics.render(accept)
    assert given.startswith(content_type)
    assert b"evenbeat_database_up 1.0" in body
    assert body.endswith(b"# EOF\n") == ("openmetrics" in content_type)
