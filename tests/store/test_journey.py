"""One job's way through the store: add, claim, renew, progress, finish, release, expire."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import psycopg
import pytest

from evenbeat.domain.decision import Decision, EndKind, RunEnd, decide, lost_lease
from evenbeat.domain.execution import Outcome
from evenbeat.domain.job import JobRecord, JobSpec, NewJob
from evenbeat.domain.schedule import Cron, Interval
from evenbeat.domain.scope import Scope
from evenbeat.domain.states import ExecutionStatus, JobStatus
from evenbeat.errors import InvalidInput, NameTaken
from evenbeat.store.rows import Release
from evenbeat.store.store import Store

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
WORKER = uuid4()
NOOP = JobSpec(task="noop")


def claim_one(store: Store, now: datetime | None = None) -> JobRecord:
    (job,) = store.claim(WORKER, 1, now=now)
    return job


def done(job: JobRecord) -> RunEnd:
    return RunEnd(job, EndKind.COMPLETED, Outcome(duration_ms=5), Decision(JobStatus.COMPLETED))


def test_a_one_off_job_runs_once(store):
    added = store.add(NewJob(NOOP, {"n": 1}), now=T0)
    job = claim_one(store, T0 + MINUTE)
    assert (job.id, job.payload, job.status, job.run_count) == (added.id, {"n": 1}, "running", 1)
    assert job.lock_expires_at == T0 + MINUTE + timedelta(seconds=30)
    assert store.claim(WORKER, 1, now=T0 + MINUTE) == []

    assert store.finish([done(job)], now=T0 + 2 * MINUTE) == {job.lock_token}
    after = store.read.job(job.id)
    assert after.status == "completed"
    assert after.completed_at == T0 + 2 * MINUTE
    assert (after.lock_token, after.next_run_at) == (None, None)
    run = store.read.execution(job.lock_token)
    assert (run.status, run.plan_time, run.wait_ms, run.duration_ms) == ("completed", T0, 60_000, 5)
    assert store.claim(WORKER, 1, now=T0 + 3 * MINUTE) == []


def test_a_job_has_the_same_row_added_alone_or_with_others(store, monkeypatch):
    monkeypatch.setattr("evenbeat.store.database._MOST_INSERTS", 2)
    jobs = [
        NewJob(NOOP),
        NewJob(JobSpec("noop", queue="mail", priority=5, timeout=MINUTE), {"n": 1}),
        NewJob(JobSpec("noop", schedule=Cron("5 4 * * *")), metadata={"a": "b"}),
        NewJob(NOOP, start=MINUTE, dedup_key="alone", created_by="me", scope=Scope("team", "7")),
    ]
    alone = [store.add(job, now=T0).id for job in jobs]
    assert len(store.database._inserts) == 2
    jobs[-1].dedup_key = "with others"
    batch = [added.id for added in store.add_many(jobs, now=T0)]
    for one, other in zip(alone, batch, strict=True):
        row, copied = (store.read.job(id_)._replace(id=one, dedup_key=None) for id_ in (one, other))
        assert row == copied


def test_a_future_job_is_not_claimed_before_its_time(store):
    store.add(NewJob(NOOP, start=timedelta(minutes=10)), now=T0)
    assert store.claim(WORKER, 1, now=T0 + 9 * MINUTE) == []
    assert store.next_due()[0] == T0 + 10 * MINUTE
    assert claim_one(store, T0 + 10 * MINUTE).plan_time == T0 + 10 * MINUTE


def test_claims_come_by_priority_then_by_age(store):
    for minute, priority in [(3, 0), (1, 0), (2, 50), (4, 100), (1, 50)]:
        store.add(NewJob(JobSpec("noop", priority=priority), {"m": minute, "p": priority},
                         start=T0 + minute * MINUTE), now=T0)  # fmt: skip
    jobs = store.claim(WORKER, 10, now=T0 + 10 * MINUTE)
    assert [(j.payload["p"], j.payload["m"]) for j in jobs] == [
        (100, 4), (50, 1), (50, 2), (0, 1), (0, 3),
    ]  # fmt: skip


def test_a_worker_claims_only_its_queues_and_tasks(store):
    for queue, task in [("a", "x"), ("a", "y"), ("b", "x")]:
        store.add(NewJob(JobSpec(task, queue=queue)))
    assert store.claim(WORKER, 9, queues=["c"]) == []
    assert store.claim(WORKER, 9, tasks=[]) == []
    (job,) = store.claim(WORKER, 9, queues=["a"], tasks=["x", "z"])
    assert (job.queue, job.task) == ("a", "x")
    assert len(store.claim(WORKER, 9)) == 2


def test_a_paused_queue_is_left_alone(store):
    store.add(NewJob(NOOP))
    store.control.pause_queue("default")
    assert store.claim(WORKER, 9) == []
    assert store.next_due()[0] is None
    store.control.resume_queue("default")
    assert len(store.claim(WORKER, 9)) == 1


def test_a_recurring_job_keeps_its_rhythm_through_a_late_and_long_run(store):
    spec = JobSpec("noop", schedule=Interval(10 * MINUTE, anchor=T0))
    store.add(NewJob(spec, name="tick"), now=T0)
    job = claim_one(store, T0 + 13 * MINUTE)
    assert job.plan_time == T0 + 10 * MINUTE

    end = T0 + 17 * MINUTE
    store.finish([decide(job, Outcome(), end)], now=end)
    after = store.read.job(job.id)
    assert (after.status, after.next_run_at) == ("scheduled", T0 + 20 * MINUTE)


def test_a_failure_waits_for_its_retry_and_keeps_its_plan(store):
    store.add(NewJob(NOOP), now=T0)
    job = claim_one(store, T0)
    failed = Outcome(ExecutionStatus.FAILED, error_code="ValueError", error_message="no")
    store.finish([decide(job, failed, T0)], now=T0)
    waiting = store.read.job(job.id)
    assert (waiting.status, waiting.current_retry_count) == ("scheduled", 1)
    assert (waiting.plan_time, waiting.next_run_at) == (T0, T0 + MINUTE)
    assert waiting.error_message == "no"
    retried = claim_one(store, T0 + MINUTE)
    page = store.read.executions_of(job.id)
    assert [(e.retry_attempt, e.status) for e in page.executions] == [(1, "running"), (0, "failed")]
    assert retried.plan_time == T0


@pytest.mark.parametrize("verb", ["finish", "renew", "progress", "release"])
def test_a_stale_token_changes_nothing_and_is_reported_lost(store, verb):
    store.add(NewJob(NOOP), now=T0)
    stale = claim_one(store, T0)
    lost = lost_lease(stale)
    late = T0 + 5 * MINUTE
    reaped = [decide(stale, lost, late)]
    assert store.finish(reaped, expired_only=True, now=late) == {stale.lock_token}
    fresh = claim_one(store, late + 5 * MINUTE)
    before = (store.read.job(stale.id), store.read.execution(stale.lock_token))

    calls = {
        "finish": lambda: store.finish([done(stale)]),
        "renew": lambda: store.renew([stale]),
        "progress": lambda: store.progress([(stale.lock_token, '{"done": 1}')]),
        "release": lambda: store.release([Release(stale)]),
    }
    assert not calls[verb]()
    assert (store.read.job(stale.id), store.read.execution(stale.lock_token)) == before
    assert store.read.job(stale.id).lock_token == fresh.lock_token


def test_the_database_refuses_a_doubled_occurrence(store, connect):
    store.add(NewJob(NOOP), now=T0)
    job = claim_one(store, T0)
    insert = """INSERT INTO evenbeat.executions (id, job_id, plan_time, started_at, worker_id,
                execution_number, retry_attempt, status)
                VALUES (gen_random_uuid(), %s, %s, now(), gen_random_uuid(), 2, 0, 'running')"""
    with connect() as connection, pytest.raises(psycopg.errors.UniqueViolation):
        connection.execute(insert, (job.id, T0))


def test_renewing_extends_the_lease(store):
    store.add(NewJob(NOOP), now=T0)
    job = claim_one(store, T0)
    later = T0 + timedelta(seconds=20)
    assert store.renew([job], now=later) == {job.lock_token: True}
    assert store.read.job(job.id).lock_expires_at == later + timedelta(seconds=30)
    assert store.expired(now=T0 + timedelta(seconds=40)) == []
    assert [j.id for j in store.expired(now=later + timedelta(seconds=30))] == [job.id]


def test_a_job_may_have_a_lease_of_its_own_length(store):
    store.add(NewJob(JobSpec("noop", lease=timedelta(minutes=5))), now=T0)
    job = claim_one(store, T0)
    assert job.lock_expires_at == T0 + 5 * MINUTE
    store.renew([job], now=T0 + MINUTE)
    assert store.read.job(job.id).lock_expires_at == T0 + 6 * MINUTE


def test_the_reaper_cannot_take_a_lease_that_was_renewed_meanwhile(store):
    store.add(NewJob(NOOP), now=T0)
    job = claim_one(store, T0)
    (found,) = store.expired(now=T0 + MINUTE)
    store.renew([job], now=T0 + MINUTE)
    lost = lost_lease(found)
    reaped = [decide(found, lost, T0 + MINUTE)]
    assert store.finish(reaped, expired_only=True, now=T0 + MINUTE) == set()
    assert store.finish([done(job)]) == {job.lock_token}


def test_leases_of_dead_workers_end_at_once(store):
    store.add_many([NewJob(NOOP), NewJob(NOOP)], now=T0)
    mine, other = claim_one(store, T0), store.claim(uuid4(), 1, now=T0)[0]
    assert store.expire_leases_of([WORKER], now=T0) == 1
    assert [job.id for job in store.expired(now=T0)] == [mine.id]
    assert store.read.job(other.id).lock_expires_at > T0


def test_a_job_that_must_not_be_re_entered_waits_for_a_person(store):
    spec = JobSpec("noop", schedule=Interval(MINUTE), allow_stale_reentry=False)
    store.add(NewJob(spec, name="once at a time"), now=T0)
    job = claim_one(store, T0 + MINUTE)
    late = T0 + 3 * MINUTE
    (found,) = store.expired(now=late)
    lost = lost_lease(found)
    store.finish([decide(found, lost, late)], expired_only=True, now=late)
    assert store.read.job(job.id).status == "failed"
    assert store.read.execution(job.lock_token).error_code == "stale_timeout"


def test_a_released_run_costs_no_attempt(store):
    store.add(NewJob(NOOP), now=T0)
    first = claim_one(store, T0)
    assert store.release([Release(first)], now=T0) == {first.lock_token}
    again = claim_one(store, T0)
    assert (again.id, again.current_retry_count, again.plan_time) == (first.id, 0, T0)
    assert store.read.execution(first.lock_token).error_code == "released"
    assert store.finish([done(again)]) == {again.lock_token}
    assert store.read.job(first.id).status == "completed"


def test_a_claim_can_be_moved_to_a_later_plan_or_given_another_plan_time(store):
    spec = JobSpec("noop", schedule=Interval(MINUTE, anchor=T0))
    store.add_many([NewJob(spec, name="a"), NewJob(spec, name="b")], now=T0)
    late = T0 + timedelta(minutes=10, seconds=30)
    a, b = store.claim(WORKER, 2, now=late)
    assert store.revise([(a, T0 + 10 * MINUTE)]) == {a.lock_token}
    assert store.read.execution(a.lock_token).plan_time == T0 + 10 * MINUTE
    store.release([Release(b, T0 + 11 * MINUTE, T0 + 11 * MINUTE)], now=late)
    moved = store.read.job(b.id)
    assert (moved.status, moved.plan_time, moved.release_count) == (
        "scheduled",
        T0 + 11 * MINUTE,
        0,
    )


def test_progress_is_kept_while_the_run_lasts(store):
    store.add(NewJob(NOOP))
    job = claim_one(store)
    assert store.progress([(job.lock_token, '{"done": 3, "total": 9}')]) == {job.lock_token}
    assert store.read.execution(job.lock_token).progress == {"done": 3, "total": 9}


def test_a_schedule_changed_during_a_run_counts_from_then_on(store):
    spec = JobSpec("noop", schedule=Interval(10 * MINUTE, anchor=T0))
    store.add(NewJob(spec, name="tick"), now=T0)
    job = claim_one(store, T0 + 10 * MINUTE)
    daily = Cron("0 3 * * *")
    store.control.update(job.id, lambda s: JobSpec(s.task, schedule=daily), now=T0 + 11 * MINUTE)
    end = T0 + 12 * MINUTE
    store.finish([decide(job, Outcome(), end)], now=end)
    after = store.read.job(job.id)
    assert (after.status, after.next_run_at) == ("scheduled", daily.next_after(end))


def test_a_schedule_changed_during_a_run_does_not_swallow_its_retry(store):
    spec = JobSpec("noop", schedule=Interval(10 * MINUTE, anchor=T0))
    store.add(NewJob(spec, name="tick"), now=T0)
    job = claim_one(store, T0 + 10 * MINUTE)
    store.control.update(
        job.id, lambda s: JobSpec(s.task, schedule=Interval(60 * MINUTE)), now=T0 + 10 * MINUTE
    )
    failed = Outcome(ExecutionStatus.FAILED, error_message="no")
    end = T0 + 11 * MINUTE
    store.finish([decide(job, failed, end)], now=end)
    after = store.read.job(job.id)
    assert (after.plan_time, after.next_run_at) == (T0 + 10 * MINUTE, end + MINUTE)


def test_a_one_off_that_was_given_a_rhythm_during_its_run_goes_on_by_it(store):
    store.add(NewJob(NOOP), now=T0)
    job = claim_one(store, T0)
    store.control.update(job.id, lambda s: JobSpec(s.task, schedule=Interval(MINUTE)), now=T0)
    store.finish([done(job)], now=T0)
    after = store.read.job(job.id)
    assert (after.status, after.next_run_at) == ("scheduled", T0 + MINUTE)


def test_a_run_handed_back_after_its_schedule_changed_keeps_its_occurrence(store):
    spec = JobSpec("noop", schedule=Interval(10 * MINUTE, anchor=T0))
    store.add(NewJob(spec, name="tick"), now=T0)
    job = claim_one(store, T0 + 10 * MINUTE)
    store.control.update(
        job.id, lambda s: JobSpec(s.task, schedule=Cron("0 3 * * *")), now=T0 + 11 * MINUTE
    )
    store.release([Release(job)], now=T0 + 12 * MINUTE)
    again = claim_one(store, T0 + 12 * MINUTE)
    assert (again.plan_time, again.cron_expression) == (T0 + 10 * MINUTE, "0 3 * * *")


def test_a_run_postponed_with_its_plan_can_be_claimed_again(store):
    store.add(NewJob(NOOP), now=T0)
    job = claim_one(store, T0)
    store.release([Release(job, T0, T0 + 10 * MINUTE)], now=T0)
    assert store.claim(WORKER, 1, now=T0) == []
    assert claim_one(store, T0 + 10 * MINUTE).plan_time == T0


def test_a_child_made_for_a_plan_keeps_it_through_failure_retry_and_cancel(store):
    parent = store.add(NewJob(NOOP)).id
    claim_one(store)
    child = store.add(NewJob(NOOP, parent_id=parent, start=T0), now=T0 + MINUTE).id
    failed = Outcome(ExecutionStatus.FAILED, final=True)
    for _ in range(2):
        job = claim_one(store, T0 + MINUTE)
        assert (job.id, job.plan_time) == (child, T0)
        store.finish([decide(job, failed, T0 + MINUTE)], now=T0 + MINUTE)
        assert store.read.job(child).status == "failed"
        store.control.retry([child], now=T0 + MINUTE)
    store.control.cancel([child])
    with pytest.raises(psycopg.errors.UniqueViolation):
        _second_child(store, parent)


def _second_child(store, parent):
    with psycopg.connect(store.database.url) as connection:
        connection.execute(
            """INSERT INTO evenbeat.jobs (id, created_at, updated_at, status, task, parent_id,
               plan_time, next_run_at) VALUES (gen_random_uuid(), now(), now(), 'pending', 'noop',
               %s, %s, now())""",
            (parent, T0),
        )


def test_an_occurrence_that_has_run_is_set_aside_instead_of_stopping_all_claims(store, connect):
    doubled, innocent = store.add(NewJob(NOOP), now=T0).id, store.add(NewJob(NOOP), now=T0).id
    with connect() as connection:
        connection.execute(
            """INSERT INTO evenbeat.executions (id, job_id, plan_time, started_at, completed_at,
               worker_id, execution_number, status)
               VALUES (gen_random_uuid(), %s, %s, now(), now(), gen_random_uuid(), 1,
                       'completed')""",
            (doubled, T0),
        )
    assert store.claim(WORKER, 9, now=T0) == []
    assert [job.id for job in store.claim(WORKER, 9, now=T0)] == [innocent]
    after = store.read.job(doubled)
    assert after.status == "failed"
    assert "has run before" in after.error_message


# -- enqueue -------------------------------------------------------------------------------------


def test_a_live_dedup_key_returns_the_job_that_has_it(store):
    first = store.add(NewJob(NOOP, dedup_key="k"))
    again = store.add(NewJob(NOOP, dedup_key="k"))
    assert (again.id, again.created) == (first.id, False)
    assert store.read.jobs().total == 1
    store.finish([done(claim_one(store))])
    third = store.add(NewJob(NOOP, dedup_key="k"))
    assert third.created
    assert third.id != first.id


def test_a_taken_name_is_an_error_that_names_the_job(store):
    first = store.add(NewJob(NOOP, name="report"))
    with pytest.raises(NameTaken, match=str(first.id)):
        store.add(NewJob(NOOP, name="report"))


def test_add_many_answers_duplicates_with_the_job_that_stands(store):
    standing = store.add(NewJob(NOOP, dedup_key="a"))
    jobs = [NewJob(NOOP, dedup_key=k) for k in ("a", "b", "b")] + [NewJob(NOOP)]
    answers = store.add_many(jobs)
    assert [a.created for a in answers] == [False, True, False, True]
    assert answers[0].id == standing.id
    assert answers[2].id == answers[1].id
    assert store.read.jobs().total == 3


def test_add_many_stores_what_add_stores(store):
    spec = JobSpec(
        "noop", "q", 7, Cron("*/5 * * * *", "Europe/Berlin"), timeout=timedelta(seconds=1.5)
    )
    odd = {"text": 'tab\t, "quote", \\back\\slash, new\nline, ünï', "n": [1, None, {"x": True}]}
    one = store.add(NewJob(spec, odd, name="a\\b", metadata=odd, created_by="me\\"), now=T0)
    (many,) = store.add_many(
        [NewJob(spec, odd, dedup_key="x\\y", metadata=odd, created_by="me\\")], now=T0
    )
    store.add_many([NewJob(NOOP, odd)], now=T0)
    left, right = store.read.job(one.id), store.read.job(many.id)
    neutral = {"id": None, "name": None, "dedup_key": None}
    assert left._replace(**neutral) == right._replace(**neutral)
    assert (left.name, right.dedup_key) == ("a\\b", "x\\y")
    assert right.payload == odd


def test_a_job_is_stored_alike_with_a_start_and_in_a_batch(store):
    plain = store.add(NewJob(JobSpec("noop", "q", 3), {"n": 1}, dedup_key="a"), now=T0).id
    start = timedelta(0)
    full = store.add(NewJob(JobSpec("noop", "q", 3), {"n": 1}, dedup_key="b", start=start), now=T0)
    many = store.add_many([NewJob(JobSpec("noop", "q", 3), {"n": 1})], now=T0)[0]
    neutral = {"id": None, "dedup_key": None}
    one, two, three = (store.read.job(id_)._replace(**neutral) for id_ in (plain, full.id, many.id))
    assert one == two == three


def test_add_many_is_all_or_none(store):
    jobs = [NewJob(NOOP, {"n": n}) for n in range(2000)] + [NewJob(NOOP, {"bad": float("nan")})]
    with pytest.raises(InvalidInput, match=r"payload\.bad cannot be stored as JSON"):
        store.add_many(jobs)
    assert store.read.jobs().total == 0


def test_a_payload_that_contains_itself_is_told_so(store):
    payload: dict[str, object] = {}
    payload["self"] = payload
    with pytest.raises(InvalidInput, match="Circular reference"):
        store.add(NewJob(NOOP, payload))


@pytest.mark.parametrize("bulk", [False, True])
def test_enqueue_takes_part_in_the_callers_transaction(store, connect, bulk):
    jobs = [NewJob(NOOP), NewJob(NOOP, dedup_key="k")]

    def enqueue(connection):
        if bulk:
            store.add_many(jobs, connection=connection)
        else:
            for job in jobs:
                store.add(job, connection=connection)

    connection = connect()
    enqueue(connection)
    assert store.read.jobs().total == 0
    connection.rollback()
    assert store.read.jobs().total == 0
    enqueue(connection)
    connection.commit()
    assert store.read.jobs().total == 2


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ({"x": object()}, "not JSON serializable"),
        ({"x": float("inf")}, "JSON compliant"),
        ({"x": "a" * 300_000}, "at most 262,144"),
        ({"x": ["nul \x00"]}, r"cannot hold this value: the text payload.x.0 has a NUL"),
        ({"x": {"\0": 1}}, r"cannot hold this value: a key in payload.x has a NUL"),
        ({"x": [{"\ud800": 1}]}, "a key in payload.x.0 has half a surrogate pair"),
        ({"x": "\ud800 \U0001f600"}, "the text payload.x has half a surrogate pair"),
    ],
)
@pytest.mark.parametrize("bulk", [False, True])
def test_a_payload_that_cannot_be_stored_is_refused_with_the_reason(store, payload, reason, bulk):
    job = NewJob(NOOP, payload)
    with pytest.raises(InvalidInput, match=reason):
        _ = store.add_many([job]) if bulk else store.add(job)
    assert store.read.jobs().total == 0


def test_listeners_hear_of_due_jobs_and_cancelled_runs(store):
    with store.listen() as listener:
        store.add(NewJob(JobSpec("noop", queue="mail")))
        assert listener.wait(60) == [("due", "mail")]
        store.add(NewJob(NOOP, start=timedelta(hours=1)))
        job = claim_one(store)
        store.control.cancel([job.id])
        assert listener.wait(60) == [("cancel", str(job.id))]
        assert listener.wait(0.01) == []
