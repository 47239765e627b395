"""Maintenance: aging, retention, the registry of workers, the leases of chores."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import UUID, uuid4

import pytest

from evenbeat.domain.decision import decide
from evenbeat.domain.execution import Outcome
from evenbeat.domain.job import JobRecord, JobSpec, NewJob, OnFailure
from evenbeat.domain.retry import RetryPolicy
from evenbeat.domain.schedule import Interval
from evenbeat.domain.states import ExecutionStatus
from evenbeat.store.store import Store
from evenbeat.store.upkeep import NewWorker

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
WORKER = uuid4()
NOOP = JobSpec("noop", retry=RetryPolicy(0))
FAILED = Outcome(ExecutionStatus.FAILED)


def claim_one(store: Store, now: datetime) -> JobRecord:
    (job,) = store.claim(WORKER, 1, now=now)
    return job


def run(store: Store, now: datetime, outcome: Outcome | None = None) -> JobRecord:
    outcome = outcome or Outcome()
    job = claim_one(store, now)
    store.finish([decide(job, outcome, now)], now=now)
    return job


def every(interval: timedelta, name: str) -> NewJob:
    return NewJob(JobSpec("noop", schedule=Interval(interval, anchor=T0)), name=name)


# -- aging ---------------------------------------------------------------------------------------


def test_a_job_is_raised_when_it_has_waited_an_hour(store):
    job_id = store.add(NewJob(JobSpec("noop", priority=30)), now=T0).id
    assert store.upkeep.age(now=T0 + HOUR - MINUTE) == 0
    assert store.upkeep.age(now=T0 + HOUR) == 1
    job = store.read.job(job_id)
    assert (job.priority, job.aging_bonus) == (40, 10)


def test_aging_ends_at_100_and_the_claim_takes_all_of_it_back(store):
    job_id = store.add(NewJob(JobSpec("noop", priority=75)), now=T0).id
    raised = [store.upkeep.age(now=T0 + 2 * HOUR) for _ in range(4)]
    assert raised == [1, 1, 1, 0]
    job = store.read.job(job_id)
    assert (job.priority, job.aging_bonus) == (100, 25)
    claimed = claim_one(store, T0 + 2 * HOUR)
    assert (claimed.priority, claimed.aging_bonus) == (75, 0)


def test_an_aged_job_overtakes_a_newer_one_of_higher_priority(store):
    old = store.add(NewJob(JobSpec("noop", priority=5)), now=T0).id
    store.add(NewJob(JobSpec("noop", priority=10)), now=T0 + HOUR)
    assert store.upkeep.age(now=T0 + HOUR + MINUTE) == 1
    assert claim_one(store, T0 + HOUR + MINUTE).id == old


def test_only_jobs_that_wait_in_vain_are_raised(store):
    late = T0 + 5 * HOUR
    paused = store.add(NewJob(NOOP), now=T0).id
    store.control.pause([paused], now=T0)
    store.add(NewJob(NOOP), now=T0)
    running = claim_one(store, T0).id
    future = store.add(NewJob(NOOP, start=late), now=T0).id
    store.add(NewJob(NOOP), now=T0)
    done = run(store, T0).id
    assert store.upkeep.age(now=late) == 0
    assert {store.read.job(id_).priority for id_ in (paused, running, future, done)} == {0}
    assert store.upkeep.age(now=late + HOUR) == 1
    assert store.read.job(future).priority == 10


def test_the_wait_and_the_raise_can_be_chosen_and_a_call_is_bounded(store):
    store.add_many([NewJob(NOOP) for _ in range(3)], now=T0)
    assert store.upkeep.age(waited=5 * MINUTE, by=7, limit=2, now=T0 + 5 * MINUTE) == 2
    assert sorted(job.priority for job in store.read.jobs().jobs) == [0, 7, 7]


def test_a_job_that_someone_else_has_locked_is_not_waited_for(store, connect):
    job_id = store.add(NewJob(NOOP), now=T0).id
    with connect() as connection:
        connection.execute("SELECT FROM evenbeat.jobs WHERE id = %s FOR UPDATE", (job_id,))
        assert store.upkeep.age(now=T0 + 2 * HOUR) == 0


# -- retention -----------------------------------------------------------------------------------


def runs_of(store: Store, job_id: UUID) -> list[int]:
    return sorted(e.execution_number for e in store.read.executions_of(job_id).executions)


def test_history_goes_when_it_is_neither_young_nor_among_the_newest(store):
    job_id = store.add(every(HOUR, "tick"), now=T0).id
    for n in range(1, 11):
        run(store, T0 + n * HOUR)
    prune = store.upkeep.prune_executions
    assert prune(older_than=T0, keep=0) == 0
    assert prune(older_than=T0 + 4 * HOUR, keep=10) == 0
    assert prune(older_than=T0 + 4 * HOUR, keep=2) == 3  # old, not among the newest
    assert runs_of(store, job_id) == [4, 5, 6, 7, 8, 9, 10]
    assert prune(older_than=T0 + DAY, keep=5) == 2  # all old, the newest stay
    assert runs_of(store, job_id) == [6, 7, 8, 9, 10]


def test_a_slow_job_keeps_its_newest_runs_however_old(store):
    slow = store.add(every(DAY, "slow"), now=T0).id
    quick = store.add(every(HOUR, "quick"), now=T0).id
    for n in range(1, 49):
        for _ in range(2 if n % 24 == 0 else 1):
            run(store, T0 + n * HOUR)
    store.upkeep.prune_executions(older_than=T0 + 365 * DAY, keep=3)
    assert runs_of(store, slow) == [1, 2]
    assert runs_of(store, quick) == [46, 47, 48]


def test_a_run_in_progress_stays_however_old(store):
    job_id = store.add(NewJob(NOOP), now=T0).id
    job = claim_one(store, T0)
    assert store.upkeep.prune_executions(older_than=T0 + DAY, keep=0) == 0
    store.finish([decide(job, Outcome(), T0)], now=T0)
    assert store.upkeep.prune_executions(older_than=T0 + DAY, keep=0) == 1
    assert runs_of(store, job_id) == []


@pytest.mark.parametrize("batch", [1, 3, 4, 5, 100])
def test_batches_walk_on_over_what_stays(store, batch):
    kept = store.add(every(HOUR, "kept"), now=T0).id
    for n in range(1, 5):
        run(store, T0 + n * HOUR)
    store.control.pause([kept])
    store.add(every(HOUR, "pruned"), now=T0 + 5 * HOUR)
    for n in range(6, 14):
        run(store, T0 + n * HOUR)
    assert store.upkeep.prune_executions(older_than=T0 + DAY, keep=4, batch=batch) == 4
    assert runs_of(store, kept) == [1, 2, 3, 4]


def test_history_whose_job_is_gone_goes_when_it_is_old(store, connect):
    store.add(NewJob(NOOP), now=T0)
    run(store, T0)
    with connect() as connection:
        connection.execute("DELETE FROM evenbeat.jobs")
    assert store.upkeep.prune_executions(older_than=T0, keep=100) == 0
    assert store.upkeep.prune_executions(older_than=T0 + DAY, keep=100) == 1


@pytest.mark.parametrize(
    "moment", [datetime(1, 1, 1, tzinfo=UTC), datetime(1926, 1, 1, tzinfo=UTC)]
)
def test_a_century_of_retention_keeps_everything(store, moment):
    store.add(NewJob(NOOP), now=T0)
    run(store, T0)
    assert store.upkeep.prune_executions(older_than=moment, keep=0) == 0


def ended_jobs(store: Store) -> Iterable[UUID]:
    """A one-off job for each way to end, at T0."""
    yield from (store.add(NewJob(NOOP), now=T0).id for _ in range(3))
    run(store, T0)
    run(store, T0, FAILED)
    (waiting,) = (job.id for job in store.read.jobs().jobs if job.status == "pending")
    store.control.cancel([waiting], now=T0)


@pytest.mark.parametrize("batch", [1, 2, 3, 100])
def test_one_off_jobs_go_with_their_history_when_they_ended_long_ago(store, batch):
    ids = list(ended_jobs(store))
    assert store.read.counts_by_status() == {"completed": 1, "failed": 1, "cancelled": 1}
    assert store.upkeep.prune_jobs(older_than=T0, batch=batch) == 0
    assert store.upkeep.prune_jobs(older_than=T0 + MINUTE, batch=batch) == 3
    assert store.read.jobs().total == 0
    assert store.upkeep.prune_executions(older_than=T0 + MINUTE, batch=batch) == 2
    assert [runs_of(store, id_) for id_ in ids] == [[], [], []]


def test_one_off_jobs_with_a_retention_of_their_own_go_by_that(store):
    brief, usual, long = (
        store.add(NewJob(replace(NOOP, retention=retention)), now=T0).id
        for retention in (HOUR, None, 90 * DAY)
    )
    for _ in range(3):
        run(store, T0)

    def prune(now: datetime) -> int:
        """As the chore does it, with a retention of 30 days."""
        gone = store.upkeep.prune_jobs(older_than=now - 30 * DAY)
        return gone + store.upkeep.prune_jobs(older_than=now, own_rule=True)

    assert prune(T0 + HOUR) == 0
    assert prune(T0 + HOUR + MINUTE) == 1
    assert {job.id for job in store.read.jobs().jobs} == {usual, long}
    assert runs_of(store, brief) == [], "its history is gone with it"
    assert prune(T0 + 31 * DAY) == 1
    assert [job.id for job in store.read.jobs().jobs] == [long]
    assert prune(T0 + 90 * DAY) == 0
    assert prune(T0 + 91 * DAY) == 1


def test_runs_of_a_job_with_a_retention_of_its_own_go_by_that(store):
    def hourly(name: str, retention: timedelta | None) -> UUID:
        spec = JobSpec("noop", schedule=Interval(HOUR, T0), retention=retention)
        return store.add(NewJob(spec, name=name), now=T0).id

    brief, usual, long = hourly("brief", 2 * HOUR), hourly("usual", None), hourly("long", 90 * DAY)
    for n in range(1, 6):
        for _ in range(3):
            run(store, T0 + n * HOUR)

    def prune(now: datetime, keep: int) -> int:
        return store.upkeep.prune_executions(older_than=now - 30 * DAY, keep=keep, now=now)

    assert prune(T0 + 5 * HOUR + MINUTE, keep=5) == 0, "the newest stay"
    assert prune(T0 + 5 * HOUR + MINUTE, keep=1) == 3
    assert runs_of(store, brief) == [4, 5]
    assert prune(T0 + 40 * DAY, keep=1) == 1 + 4
    assert [runs_of(store, id_) for id_ in (brief, usual, long)] == [[5], [5], [1, 2, 3, 4, 5]]


def test_old_jobs_are_looked_for_once_in_twenty_batches(store):
    store.add_many([NewJob(NOOP)] * 45, now=T0)
    store.control.cancel([job.id for job in store.read.jobs(limit=45).jobs], now=T0)
    pauses = []
    prune = partial(store.upkeep.prune_jobs, older_than=T0 + DAY, batch=1)
    assert prune(between=lambda: pauses.append(None)) == 45
    assert len(pauses) == 45 + 3


def test_a_job_that_someone_else_has_locked_stays_for_the_next_time(store, connect):
    _, second, _ = ended_jobs(store)
    prune = partial(store.upkeep.prune_jobs, older_than=T0 + DAY, batch=1)
    with connect() as connection:
        connection.execute("SELECT FROM evenbeat.jobs WHERE id = %s FOR UPDATE", (second,))
        assert prune() == 2
        assert [job.id for job in store.read.jobs().jobs] == [second]
    assert prune() == 1


def test_recurring_and_live_jobs_stay(store):
    store.add(every(HOUR, "cancelled"), now=T0)
    stopping = JobSpec(
        "noop", schedule=Interval(HOUR, T0), retry=RetryPolicy(0), on_failure=OnFailure.STOP
    )
    store.control.cancel([store.read.job_by_name("cancelled").id], now=T0)
    store.add(NewJob(stopping, name="failed"), now=T0)
    run(store, T0 + HOUR, FAILED)
    store.add(every(HOUR, "scheduled"), now=T0)
    store.add(NewJob(NOOP, start=T0 + HOUR), now=T0)
    store.add(NewJob(JobSpec("noop")), now=T0)
    run(store, T0, FAILED)  # has ended once, and waits for its retry
    assert store.upkeep.prune_jobs(older_than=T0 + 365 * DAY) == 0
    assert store.read.counts_by_status() == {"cancelled": 1, "failed": 1, "scheduled": 3}


# -- workers -------------------------------------------------------------------------------------


def known(store: Store, now: datetime = T0, **options: object) -> UUID:
    worker = NewWorker(uuid4(), "host", 42, 1234.5, "1.0", 100)._replace(**options)
    store.upkeep.register_worker(worker, now=now)
    return worker.id


def test_a_registered_worker_is_known_with_all_it_said(store):
    id_ = known(store, queues=["a", "b"], tasks=("x",))
    (worker,) = store.upkeep.workers()
    assert worker == (
        id_, "host", 42, 1234.5, "1.0", ["a", "b"], ["x"], 100, 0, "active", T0, T0, T0, []
    )  # fmt: skip


def test_registering_again_refreshes(store):
    id_ = known(store)
    known(store, T0 + MINUTE, id=id_, concurrency=7)
    (worker,) = store.upkeep.workers()
    assert (worker.concurrency, worker.started_at, worker.heartbeat_at) == (7, T0, T0 + MINUTE)


def test_a_beat_is_noted_and_answers_with_the_status(store):
    id_ = known(store)
    assert store.upkeep.beat(id_, running=3, now=T0 + MINUTE) == "active"
    (worker,) = store.upkeep.workers()
    assert (worker.running, worker.heartbeat_at, worker.checked_at) == (3, T0 + MINUTE, T0 + MINUTE)
    store.upkeep.beat(id_, running=3, claim_age=90, now=T0 + 3 * MINUTE)
    assert store.upkeep.workers()[0].checked_at == T0 + 1.5 * MINUTE


def test_a_worker_learns_from_its_beat_that_it_is_to_drain(store):
    id_, other = known(store), known(store)
    assert store.upkeep.drain_worker(id_)
    assert store.upkeep.beat(id_, running=1) == "draining"
    assert store.upkeep.beat(id_, running=0) == "draining"
    assert store.upkeep.beat(other, running=0) == "active"
    assert not store.upkeep.drain_worker(uuid4())


def test_a_worker_can_say_itself_that_it_drains(store):
    id_ = known(store)
    assert store.upkeep.beat(id_, running=1, draining=True) == "draining"
    assert store.upkeep.workers()[0].status == "draining"


def test_a_forgotten_worker_learns_it_from_its_beat(store):
    id_, other = known(store), known(store)
    assert store.upkeep.forget_workers([id_, uuid4()]) == 1
    assert store.upkeep.beat(id_, running=0) is None
    assert [worker.id for worker in store.upkeep.workers()] == [other]


def test_workers_without_a_sign_of_life_are_silent(store):
    quiet, lively = known(store), known(store)
    store.upkeep.beat(lively, running=0, now=T0 + MINUTE)
    assert store.upkeep.silent_workers(MINUTE, now=T0 + MINUTE) == []
    late = T0 + MINUTE + timedelta(seconds=1)
    assert store.upkeep.silent_workers(MINUTE, now=late) == [quiet]


# -- chores --------------------------------------------------------------------------------------

ONE, OTHER = uuid4(), uuid4()


def attempt(store: Store, holder: UUID, now: datetime, name: str = "prune") -> bool:
    with store.upkeep.chore(name, holder, every=HOUR, now=now) as mine:
        return mine


def test_a_chore_is_done_once_in_its_interval_by_whoever_comes_first(store):
    assert attempt(store, ONE, T0)
    assert not attempt(store, ONE, T0 + 59 * MINUTE)
    assert not attempt(store, OTHER, T0 + 59 * MINUTE)
    assert attempt(store, OTHER, T0 + HOUR)
    assert attempt(store, ONE, T0 + HOUR, "another")


def test_a_clock_that_was_put_back_does_not_stop_the_chores(store):
    with store.upkeep.chore("prune", ONE, every=HOUR, now=T0 + 1000 * HOUR) as mine:
        assert mine
    for at, due in ((T0, True), (T0 + MINUTE, False), (T0 + HOUR, True)):
        with store.upkeep.chore("prune", ONE, every=HOUR, now=at) as mine:
            assert mine is due


def test_a_chore_has_one_holder(store):
    with store.upkeep.chore("prune", ONE, every=HOUR, now=T0) as mine:
        assert mine
        assert not attempt(store, OTHER, T0)
        assert not attempt(store, ONE, T0)


def test_a_chore_that_raises_stays_due(store):
    with pytest.raises(ZeroDivisionError), store.upkeep.chore("prune", ONE, every=HOUR, now=T0):
        _ = 1 / 0
    assert attempt(store, OTHER, T0)


def test_the_lease_of_a_lost_holder_is_taken_over_and_its_late_end_does_nothing(store):
    with store.upkeep.chore("prune", ONE, every=HOUR, lease=MINUTE, now=T0) as mine:
        assert mine
        assert not attempt(store, OTHER, T0 + MINUTE - timedelta(seconds=1))
        with store.upkeep.chore("prune", OTHER, every=HOUR, now=T0 + MINUTE) as taken:
            assert taken
            lost = {"name": "prune", "holder": ONE, "done": True, "now": T0 + MINUTE}
            assert store.database.rows("end_chore", lost) == []
            assert not attempt(store, ONE, T0 + MINUTE)
    # The last word was the new holder's, not the lost one's.
    assert not attempt(store, ONE, T0 + HOUR)
    assert attempt(store, ONE, T0 + HOUR + MINUTE)


def test_a_chore_that_is_refused_writes_nothing(store):
    attempt(store, ONE, T0)
    with store.upkeep.chore("prune", OTHER, every=HOUR, now=T0 + MINUTE) as mine:
        assert not mine
    assert attempt(store, ONE, T0 + HOUR)


def test_a_renewed_chore_is_not_taken_over_and_a_lost_one_is_not_renewed(store):
    with store.upkeep.chore("prune", ONE, every=HOUR, lease=MINUTE, now=T0):
        assert store.upkeep.renew_chore("prune", ONE, lease=MINUTE, now=T0 + MINUTE)
        assert not attempt(store, OTHER, T0 + MINUTE)
        assert attempt(store, OTHER, T0 + 2 * MINUTE)
        assert not store.upkeep.renew_chore("prune", ONE, now=T0 + 2 * MINUTE)
