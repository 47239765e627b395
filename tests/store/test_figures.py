"""Outcomes are counted once each, whenever they end, and the figures say as of when."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from evenbeat.domain.decision import decide
from evenbeat.domain.execution import Outcome
from evenbeat.domain.job import JobRecord, JobSpec, NewJob
from evenbeat.domain.retry import RetryPolicy
from evenbeat.domain.states import ExecutionStatus
from evenbeat.engine.maintenance import CountRuns, Retention
from evenbeat.store.lists import JobFilter
from evenbeat.store.rows import Release
from evenbeat.store.store import Store
from evenbeat.store.summaries import ExecutionTotals, HourOutcomes
from evenbeat.testing import VirtualClock

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
WORKER = uuid4()
OK = Outcome(duration_ms=100)
FAILED = Outcome(ExecutionStatus.FAILED, duration_ms=900, error_message="no")
LOST = Outcome(ExecutionStatus.FAILED, error_code="lease_expired", error_message="gone")


def add(store: Store, count: int, task: str = "noop") -> None:
    spec = JobSpec(task, retry=RetryPolicy(0))
    store.add_many([NewJob(spec) for _ in range(count)], now=T0)


def claim(store: Store, now: datetime, count: int = 1) -> list[JobRecord]:
    return store.claim(WORKER, count, now=now)


def finish(store: Store, jobs: list[JobRecord], outcome: Outcome, now: datetime) -> None:
    store.finish([decide(job, outcome, now) for job in jobs], now=now)


def run(store: Store, now: datetime, outcome: Outcome = OK, count: int = 1) -> None:
    finish(store, claim(store, now, count), outcome, now)


def count(store: Store, now: datetime, batch: int = 50_000) -> int:
    return store.upkeep.count_outcomes(batch=batch, now=now)


def outcomes_by_task(connect) -> list[tuple[object, ...]]:
    return (
        connect()
        .execute(
            "SELECT task, sum(completed), sum(failed), sum(cancelled), sum(lost), "
            "sum(duration_ms), sum(wait_ms) FROM evenbeat.outcomes GROUP BY task"
        )
        .fetchall()
    )


def test_what_ended_is_counted_once_by_the_hour_of_its_end(store, connect):
    add(store, 5)
    run(store, T0, OK, 2)
    run(store, T0 + MINUTE, FAILED)
    assert count(store, T0 + 2 * MINUTE) == 3
    assert count(store, T0 + 3 * MINUTE) == 0
    run(store, T0 + HOUR, LOST)
    assert count(store, T0 + HOUR + MINUTE) == 1
    hours = store.read.hourly(hours=3, now=T0 + HOUR + MINUTE)
    assert hours == [
        HourOutcomes(T0 - HOUR, 0, 0, 0, 0),
        HourOutcomes(T0, 2, 1, 0, 0),
        HourOutcomes(T0 + HOUR, 0, 1, 0, 1),
    ]
    assert outcomes_by_task(connect) == [("noop", 2, 2, 0, 1, 200.0, 0.0)]
    assert store.read.execution_totals(counted_only=True) == ExecutionTotals(4, 2, 2, 100.0, 0.5)


def test_a_run_that_outlasts_the_count_is_counted_when_it_has_ended(store):
    add(store, 3)
    long, short, handed = claim(store, T0, 3)
    finish(store, [short], OK, T0)
    count(store, T0 + MINUTE)
    assert store.read.execution_totals(counted_only=True).total == 1
    for n in range(1, 4):
        count(store, T0 + n * MINUTE)
    assert store.read.execution_totals(counted_only=True).total == 1
    finish(store, [long], OK, T0 + 2 * HOUR)
    store.release([Release(handed)], now=T0 + 2 * HOUR)
    count(store, T0 + 2 * HOUR)
    assert store.read.hourly(hours=3, now=T0 + 2 * HOUR)[-1] == (T0 + 2 * HOUR, 1, 0, 1, 0)
    assert store.read.execution_totals(counted_only=True).total == 3
    count(store, T0 + 3 * HOUR)
    assert store.read.execution_totals(counted_only=True).total == 3


def test_exact_totals_add_what_the_count_does_not_hold_yet(store):
    add(store, 6)
    run(store, T0, OK, 2)
    (still,) = claim(store, T0)
    count(store, T0 + MINUTE)
    run(store, T0 + HOUR, FAILED)
    (fresh,) = claim(store, T0 + HOUR)
    assert store.read.execution_totals(counted_only=True).total == 2
    assert store.read.execution_totals() == ExecutionTotals(5, 2, 1, 100.0, 2 / 3)
    finish(store, [still, fresh], Outcome(duration_ms=400), T0 + HOUR)
    assert store.read.execution_totals() == ExecutionTotals(5, 4, 1, 250.0, 0.8)
    count(store, T0 + 2 * HOUR)
    assert store.read.execution_totals() == store.read.execution_totals(counted_only=True)


@pytest.mark.parametrize("batch", [1, 2, 3, 7])
def test_batches_together_count_everything(store, batch):
    add(store, 7)
    for n in range(7):
        run(store, T0 + n * MINUTE, FAILED if n % 3 == 0 else OK)
    seen = []
    while not seen or seen[-1] == batch:
        seen.append(count(store, T0 + HOUR, batch))
    assert sum(seen) == 7
    assert store.read.execution_totals(counted_only=True) == ExecutionTotals(7, 4, 3, 100.0, 4 / 7)


def test_history_that_goes_stays_in_the_totals(store):
    add(store, 2, "kept")
    run(store, T0, OK, 2)
    count(store, T0 + MINUTE)
    store.control.delete(store.read.ids(JobFilter()))
    count(store, T0 + HOUR)
    assert store.read.execution_totals().completed == 2


def test_a_running_job_that_is_deleted_is_no_longer_waited_for(store, connect):
    add(store, 1)
    (job,) = claim(store, T0)
    count(store, T0 + MINUTE)
    store.control.delete([job.id])
    count(store, T0 + HOUR)
    assert connect().execute("SELECT count(*) FROM evenbeat.uncounted").fetchone() == (0,)
    assert store.read.execution_totals().total == 0


def test_hours_of_long_ago_become_one_row_and_the_sums_stay(store, connect):
    add(store, 4)
    for day in (0, 3, 9, 10):
        run(store, T0 + day * DAY, FAILED if day == 3 else OK)
    count(store, T0 + 11 * DAY)
    before = outcomes_by_task(connect)
    for _ in range(2):
        store.upkeep.fold_outcomes(older_than=T0 + 5 * DAY)
        store.upkeep.fold_outcomes(older_than=T0 + 9 * DAY + HOUR)
    assert outcomes_by_task(connect) == before
    rows = connect().execute("SELECT hour, completed, failed FROM evenbeat.outcomes ORDER BY 1")
    assert rows.fetchall() == [(datetime(1970, 1, 1, tzinfo=UTC), 2, 1), (T0 + 10 * DAY, 1, 0)]


def test_without_a_given_moment_only_claims_that_are_surely_visible_are_passed(store, connect):
    add(store, 2)
    run(store, store.clock() - MINUTE)
    run(store, store.clock())
    assert store.upkeep.count_outcomes() == 1
    claiming = connect()
    claiming.execute("/* evenbeat:claim */ SELECT 1")
    (begun,) = claiming.execute("/* evenbeat:claim */ SELECT now()").fetchone()
    ((until,),) = store.database.rows("counting_horizon", {"now": None})
    assert until <= begun
    claiming.rollback()
    ((until,),) = store.database.rows("counting_horizon", {"now": None})
    assert store.clock() - until < MINUTE


def test_finishing_a_run_stays_on_its_page_though_errors_are_indexed(store, connect):
    """The index on error codes must not cost runs that succeed their place (HOT)."""
    add(store, 40)
    connection = connect()
    connection.autocommit = True
    jobs = claim(store, T0, 40)
    finish(store, jobs, OK, T0)
    store.close()
    changed, hot = 0, 0
    for _ in range(100):
        connection.execute("SELECT pg_stat_clear_snapshot(), pg_sleep(0.05)")
        changed, hot = connection.execute(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'executions'"
        ).fetchone()
        if changed:
            break
    assert changed >= 40
    assert hot >= 40


# -- the chore -------------------------------------------------------------------------------------


def test_the_chore_counts_and_the_figures_say_as_of_when(store):
    clock = VirtualClock(T0 + MINUTE)
    assert store.upkeep.figures() == {}
    add(store, 3)
    run(store, T0, OK)
    run(store, T0, LOST)
    assert CountRuns(store, clock).run_once() == 2
    kept = store.upkeep.figures()
    assert kept["jobs"] == ({"completed": 1, "failed": 1, "pending": 1}, T0 + MINUTE)
    assert kept["counting"].updated_at == T0 + MINUTE
    assert not kept["counting"].value["behind"]
    assert kept["executions"].value["total"] == 2
    assert store.read.execution_totals(counted_only=True) == ExecutionTotals(2, 1, 1, 100.0, 0.5)
    hours = store.read.hourly(now=T0 + MINUTE)
    assert (sum(h.failed for h in hours), sum(h.lost for h in hours), len(hours)) == (1, 1, 24)


def test_counting_all_jobs_takes_a_twentieth_of_the_time_at_most(store):
    clock = VirtualClock(T0)
    chore = CountRuns(store, clock)
    chore.run_once()
    store.upkeep.save_figure("job_counts", {"total": 0, "took_ms": 6000}, now=T0)
    add(store, 1)
    clock.move_to(T0 + timedelta(seconds=119))
    chore.run_once()
    assert store.upkeep.figures()["jobs"].value == {}
    clock.move_to(T0 + timedelta(seconds=120))
    chore.run_once()
    assert store.upkeep.figures()["jobs"].value == {"pending": 1}


def test_retention_folds_hours_after_eight_days(store, connect):
    add(store, 1)
    run(store, T0)
    count(store, T0 + HOUR)
    Retention(store, VirtualClock(T0 + 9 * DAY), days=30, executions=100).run_once()
    rows = connect().execute("SELECT extract(year FROM hour)::int FROM evenbeat.outcomes")
    assert rows.fetchall() == [(1970,)]
