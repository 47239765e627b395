"""What operators do to jobs: every verb from every state, alone and in bulk."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from evenbeat.domain import states
from evenbeat.domain.decision import decide
from evenbeat.domain.execution import Outcome
from evenbeat.domain.ids import uuid7_many
from evenbeat.domain.job import JobRecord, JobSpec, NewJob, OnFailure
from evenbeat.domain.retry import RetryPolicy
from evenbeat.domain.schedule import Cron, Interval, Once
from evenbeat.domain.scope import Scope
from evenbeat.domain.states import TRANSITIONS, ExecutionStatus, JobStatus
from evenbeat.domain.window import parse_window
from evenbeat.errors import Conflict, IllegalTransition, InvalidInput, NameTaken, NotFound
from evenbeat.store.lists import JobFilter
from evenbeat.store.rows import Release
from evenbeat.store.store import Store
from waiting import PATIENCE, wait_for

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
WORKER = uuid4()
NOOP = JobSpec("noop", retry=RetryPolicy(max_retries=0))
TENTH = JobSpec("noop", schedule=Interval(10 * MINUTE, anchor=T0))
FAILED = Outcome(ExecutionStatus.FAILED, error_message="no")


def claim_one(store: Store, now: datetime = T0) -> JobRecord:
    (job,) = store.claim(WORKER, 1, now=now)
    return job


def end(
    store: Store, job: JobRecord, outcome: Outcome | None = None, now: datetime = T0
) -> JobRecord:
    outcome = outcome or Outcome()
    assert store.finish([decide(job, outcome, now)], now=now)
    return store.read.job(job.id)


def run(store: Store, now: datetime = T0, outcome: Outcome | None = None) -> JobRecord:
    return end(store, claim_one(store, now), outcome, now)


def make(store: Store, state: str, **options: object) -> UUID:
    """A one-off job that came to this state the way jobs do."""
    job_id = store.add(NewJob(NOOP, **options), now=T0).id  # type: ignore[arg-type]
    if state == "scheduled":
        store.control.update(job_id, lambda s: replace(s, schedule=Once(T0 + HOUR)), now=T0)
    elif state == "running":
        claim_one(store)
    elif state == "paused":
        store.control.pause([job_id], now=T0)
    elif state == "completed":
        run(store)
    elif state == "failed":
        run(store, outcome=FAILED)
    elif state == "cancelled":
        store.control.cancel([job_id], now=T0)
    assert store.read.job(job_id).status == state
    return job_id


# -- every verb from every state -----------------------------------------------------------------

# For each verb: the state it asks for, and what becomes of a one-off job in the states it accepts.
VERBS = {
    "pause": ("paused", {"pending": "paused", "scheduled": "paused", "running": "running"}),
    "resume": ("scheduled", {"paused": "pending"}),
    "cancel": (
        "cancelled",
        dict.fromkeys(["pending", "scheduled", "running", "paused"], "cancelled"),
    ),
    "retry": ("pending", {"failed": "pending", "cancelled": "pending"}),
    "run_now": (
        "pending",
        dict.fromkeys(["pending", "scheduled", "completed", "failed", "cancelled"], "pending"),
    ),
}
CASES = [(verb, state) for verb in VERBS for state in JobStatus]


@pytest.mark.parametrize("verb", VERBS)
def test_the_cases_are_those_of_the_table(verb):
    declared = states.VERBS[verb.removesuffix("_now")]
    assert (declared.leads_to, declared.sources) == (VERBS[verb][0], set(VERBS[verb][1]))


LEGAL = [(verb, state) for verb, state in CASES if state in VERBS[verb][1]]
ILLEGAL = [case for case in CASES if case not in LEGAL]


@pytest.mark.parametrize(("verb", "state"), LEGAL)
def test_a_verb_does_its_work_in_the_states_it_is_for(store, verb, state):
    job_id = make(store, state)
    job = getattr(store.control, verb)([job_id], now=T0 + MINUTE).only()
    assert job == store.read.job(job_id)
    assert job.status == VERBS[verb][1][state]
    assert job.updated_at == T0 + MINUTE
    assert job.status in TRANSITIONS[JobStatus(state)] | {state}


@pytest.mark.parametrize(("verb", "state"), ILLEGAL)
def test_a_verb_in_any_other_state_changes_nothing_and_says_what_is_allowed(store, verb, state):
    job_id = make(store, state)
    before = store.read.job(job_id)
    changes = getattr(store.control, verb)([job_id], now=T0 + MINUTE)
    assert not changes.changed
    assert [(refused.id, refused.status) for refused in changes.refused] == [(job_id, state)]
    with pytest.raises(IllegalTransition) as caught:
        changes.only()
    assert (caught.value.state, caught.value.wanted) == (state, VERBS[verb][0])
    assert set(caught.value.allowed) == TRANSITIONS[JobStatus(state)]
    assert all(word in str(caught.value) for word in [state, *caught.value.allowed])
    assert store.read.job(job_id) == before


@pytest.mark.parametrize("state", JobStatus)
def test_priority_and_deletion_are_possible_in_every_state(store, state):
    job_id = make(store, state)
    assert store.control.set_priority([job_id], 40, now=T0).only().priority == 40
    assert store.control.boost([job_id], 20, now=T0).only().priority == 60
    assert store.read.job(job_id).status == state
    assert store.control.delete([job_id]).only().id == job_id
    assert store.read.jobs().total == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda c, ids: c.pause(ids),
        lambda c, ids: c.resume(ids),
        lambda c, ids: c.cancel(ids),
        lambda c, ids: c.retry(ids),
        lambda c, ids: c.run_now(ids),
        lambda c, ids: c.set_priority(ids, 5),
        lambda c, ids: c.boost(ids, 5),
        lambda c, ids: c.delete(ids),
    ],
)
def test_an_unknown_id_is_not_found(store, call):
    unknown = uuid4()
    changes = call(store.control, [unknown])
    assert changes.changed == []
    with pytest.raises(NotFound, match=str(unknown)):
        changes.only()
    assert call(store.control, []) == ([], [])


# -- pause and resume ----------------------------------------------------------------------------


def test_a_pause_takes_effect_after_the_run(store):
    job_id = store.add(NewJob(TENTH, name="tick"), now=T0).id
    job = claim_one(store, T0 + 10 * MINUTE)
    marked = store.control.pause([job_id], now=T0 + 11 * MINUTE).only()
    assert (marked.status, marked.is_paused, marked.lock_token) == ("running", True, job.lock_token)
    with pytest.raises(IllegalTransition, match="is paused"):
        store.control.pause([job_id]).only()

    after = end(store, job, now=T0 + 12 * MINUTE)
    assert (after.status, after.is_paused, after.paused_at) == ("paused", True, T0 + 11 * MINUTE)
    assert store.claim(WORKER, 1, now=T0 + HOUR) == []
    resumed = store.control.resume([job_id], now=T0 + HOUR).only()
    assert (resumed.status, resumed.next_run_at) == ("scheduled", T0 + 70 * MINUTE)
    assert (resumed.is_paused, resumed.paused_at) == (False, None)


def test_a_resume_during_the_run_takes_the_mark_away(store):
    job_id = store.add(NewJob(TENTH, name="tick"), now=T0).id
    job = claim_one(store, T0 + 10 * MINUTE)
    store.control.pause([job_id], now=T0 + 11 * MINUTE)
    resumed = store.control.resume([job_id], now=T0 + 11 * MINUTE).only()
    assert (resumed.status, resumed.is_paused) == ("running", False)
    assert (resumed.plan_time, resumed.lock_token) == (T0 + 10 * MINUTE, job.lock_token)
    after = end(store, job, now=T0 + 12 * MINUTE)
    assert (after.status, after.next_run_at) == ("scheduled", T0 + 20 * MINUTE)


def test_a_one_off_that_completes_while_it_was_to_be_paused_is_completed(store):
    store.add(NewJob(NOOP), now=T0)
    job = claim_one(store)
    store.control.pause([job.id], now=T0)
    after = end(store, job)
    assert (after.status, after.is_paused) == ("completed", False)


def test_a_failure_while_it_was_to_be_paused_keeps_its_retry_for_later(store):
    store.add(NewJob(JobSpec("noop")), now=T0)
    job = claim_one(store)
    store.control.pause([job.id], now=T0)
    after = end(store, job, FAILED)
    assert (after.status, after.current_retry_count) == ("paused", 1)
    resumed = store.control.resume([job.id], now=T0 + HOUR).only()
    assert (resumed.status, resumed.current_retry_count, resumed.plan_time) == ("pending", 1, T0)
    assert claim_one(store, T0 + HOUR).current_retry_count == 1


def test_a_new_plan_after_a_pause_has_no_retries_behind_it(store):
    store.add(NewJob(TENTH, name="tick"), now=T0)
    waiting = run(store, T0 + 10 * MINUTE, FAILED)
    assert waiting.current_retry_count == 1
    store.control.pause([waiting.id], now=T0 + 10 * MINUTE)
    resumed = store.control.resume([waiting.id], now=T0 + HOUR).only()
    assert (resumed.plan_time, resumed.current_retry_count) == (T0 + 70 * MINUTE, 0)


def test_a_retry_that_is_still_to_come_survives_a_pause(store):
    store.add(NewJob(TENTH, name="tick"), now=T0)
    waiting = run(store, T0 + 10 * MINUTE, FAILED)
    store.control.pause([waiting.id], now=T0 + 10 * MINUTE)
    resumed = store.control.resume([waiting.id], now=T0 + 10 * MINUTE).only()
    kept = (resumed.plan_time, resumed.next_run_at, resumed.current_retry_count)
    assert kept == (T0 + 10 * MINUTE, T0 + 11 * MINUTE, 1)


def test_a_run_handed_back_while_it_was_to_be_paused_is_paused(store):
    store.add(NewJob(NOOP), now=T0)
    job = claim_one(store)
    store.control.pause([job.id], now=T0)
    store.release([Release(job)], now=T0)
    assert store.read.job(job.id).status == "paused"
    store.control.resume([job.id], now=T0 + HOUR)
    assert run(store, T0 + HOUR).status == "completed"


# -- cancel --------------------------------------------------------------------------------------


def test_a_cancel_stops_the_run_and_fences_its_worker(store):
    store.add(NewJob(TENTH, name="tick"), now=T0)
    job = claim_one(store, T0 + 10 * MINUTE)
    cancelled = store.control.cancel([job.id], now=T0 + 11 * MINUTE).only()
    assert (cancelled.lock_token, cancelled.next_run_at) == (None, None)
    assert cancelled.cancelled_at == cancelled.completed_at == T0 + 11 * MINUTE
    closed = store.read.execution(job.lock_token)
    assert (closed.status, closed.error_code) == ("cancelled", "cancelled")
    assert (closed.completed_at, closed.duration_ms) == (T0 + 11 * MINUTE, 60_000)

    assert store.finish([decide(job, Outcome(), T0)]) == set()
    assert store.renew([job]) == {}
    assert store.release([Release(job)]) == set()
    assert store.read.job(job.id) == cancelled
    assert store.read.execution(job.lock_token) == closed


def test_a_cancelled_job_that_was_paused_is_paused_no_longer(store):
    job = store.control.cancel([make(store, "paused")], now=T0).only()
    assert (job.status, job.is_paused, job.paused_at) == ("cancelled", False, None)


# -- retry and run now ---------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["retry", "run_now"])
def test_a_retry_by_hand_starts_anew(store, verb):
    store.add(NewJob(JobSpec("noop", retry=RetryPolicy(1))), now=T0)
    run(store, T0, FAILED)
    failed = run(store, T0 + HOUR, FAILED)
    assert (failed.status, failed.error_message, failed.plan_time) == ("failed", "no", None)
    late = T0 + 2 * HOUR
    again = getattr(store.control, verb)([failed.id], now=late).only()
    assert (again.status, again.current_retry_count, again.error_message) == ("pending", 0, None)
    assert (again.plan_time, again.next_run_at) == (late, late)
    assert run(store, late, FAILED).current_retry_count == 1
    history = store.read.executions_of(failed.id).executions
    assert [(e.plan_time, e.retry_attempt) for e in history] == [(late, 0), (T0, 1), (T0, 0)]


def test_a_stopped_recurring_job_goes_on_with_its_rhythm_after_a_retry(store):
    stopping = replace(TENTH, on_failure=OnFailure.STOP, retry=RetryPolicy(0))
    job_id = store.add(NewJob(stopping, name="tick"), now=T0).id
    assert run(store, T0 + 10 * MINUTE, FAILED).status == "failed"
    store.control.retry([job_id], now=T0 + 33 * MINUTE)
    after = run(store, T0 + 34 * MINUTE)
    assert (after.status, after.plan_time) == ("scheduled", T0 + 40 * MINUTE)


def test_a_recurring_job_run_now_keeps_its_rhythm(store):
    job_id = store.add(NewJob(TENTH, name="tick"), now=T0).id
    now = T0 + 3 * MINUTE
    assert store.control.run_now([job_id], now=now).only().next_run_at == now
    after = run(store, now + MINUTE)
    assert (after.status, after.plan_time) == ("scheduled", T0 + 10 * MINUTE)
    assert store.read.executions_of(job_id).executions[0].plan_time == now


def test_run_now_does_not_wait_for_the_delay_nor_drop_the_plan_that_does(store):
    delayed = replace(TENTH, schedule_delay=5 * MINUTE)
    job_id = store.add(NewJob(delayed, name="tick"), now=T0).id
    now = T0 + 12 * MINUTE  # the plan of 0:10 is due at 0:15
    store.control.run_now([job_id], now=now)
    after = run(store, now)
    assert store.read.executions_of(job_id).executions[0].status == "completed"
    assert (after.plan_time, after.next_run_at) == (T0 + 10 * MINUTE, T0 + 15 * MINUTE)


def test_run_now_of_a_job_that_waits_for_a_retry_runs_that_retry(store):
    store.add(NewJob(TENTH, name="tick"), now=T0)
    waiting = run(store, T0 + 10 * MINUTE, FAILED)
    now = T0 + 10 * MINUTE + timedelta(seconds=5)
    for _ in range(2):  # people press buttons twice
        job = store.control.run_now([waiting.id], now=now).only()
        assert (job.status, job.plan_time, job.next_run_at) == ("pending", T0 + 10 * MINUTE, now)
        assert job.current_retry_count == 1
    claimed = claim_one(store, now)
    assert (claimed.plan_time, claimed.current_retry_count) == (T0 + 10 * MINUTE, 1)


def test_run_now_of_a_job_that_was_handed_back_goes_on_with_its_plan(store):
    store.add(NewJob(TENTH, name="tick"), now=T0)
    job = claim_one(store, T0 + 10 * MINUTE)
    store.release([Release(job)], now=T0 + 11 * MINUTE)
    store.control.run_now([job.id], now=T0 + 12 * MINUTE)
    again = claim_one(store, T0 + 12 * MINUTE)
    assert (again.plan_time, again.release_count) == (T0 + 10 * MINUTE, 1)


def test_listeners_hear_of_a_job_run_now(store):
    job_id = store.add(NewJob(JobSpec("noop", queue="mail"), start=HOUR)).id
    with store.listen() as listener:
        store.control.run_now([job_id])
        assert listener.wait(60) == [("due", "mail")]


@pytest.mark.parametrize("verb", ["retry", "run_now"])
def test_an_ended_job_does_not_live_again_beside_a_live_one_with_its_dedup_key(store, verb):
    ended = make(store, "failed", dedup_key="k")
    live = make(store, "pending", dedup_key="k")
    again = getattr(store.control, verb)
    changes = again([ended], now=T0)
    assert changes.changed == []
    with pytest.raises(Conflict, match=f"live job {live} has the dedup key"):
        changes.only()
    store.control.cancel([live])
    assert again([ended], now=T0).only().status == "pending"


def test_of_ended_jobs_with_one_dedup_key_only_the_newest_lives_again(store):
    old, new = (make(store, "failed", dedup_key="k", id=id_) for id_ in uuid7_many(2))
    plain = [make(store, "failed") for _ in range(3)]
    changes = store.control.retry([old, new, *plain], now=T0)
    assert {job.id for job in changes.changed} == {new, *plain}
    assert [(r.id, r.replaced_by) for r in changes.refused] == [(old, new)]


# -- priority ------------------------------------------------------------------------------------


@pytest.mark.parametrize("priority", [-1, 101, 1.5, "9", True])
def test_a_priority_out_of_bounds_is_refused(store, priority):
    with pytest.raises(InvalidInput, match="from 0 to 100"):
        store.control.set_priority([make(store, "pending")], priority)


@pytest.mark.parametrize("by", [0, -5, 101, 1.5, True])
def test_a_boost_out_of_bounds_is_refused(store, by):
    with pytest.raises(InvalidInput, match="from 1 to 100"):
        store.control.boost([make(store, "pending")], by)


def test_a_boost_ends_at_100(store):
    job_id = make(store, "pending")
    assert [store.control.boost([job_id], by).only().priority for by in (60, 60, 1)] == [
        60,
        100,
        100,
    ]


def aged(store: Store, priority: int) -> UUID:
    """A job of this priority that aging has raised by ten."""
    job_id = store.add(NewJob(replace(NOOP, priority=priority)), now=T0).id
    assert store.upkeep.age(now=T0 + 2 * HOUR) == 1
    return job_id


@pytest.mark.parametrize(
    ("change", "shown", "own"),
    [
        (lambda c, id_: c.set_priority([id_], 30), 30, 30),
        (lambda c, id_: c.boost([id_], 20), 80, 70),
        (lambda c, id_: c.boost([id_], 45), 100, 95),
        (lambda c, id_: c.boost([id_], 100), 100, 100),
        (lambda c, id_: c.update(id_, payload={"n": 1}), 60, 50),
        (lambda c, id_: c.update(id_, lambda s: replace(s, priority=5)), 15, 5),
        (lambda c, id_: c.update(id_, lambda s: replace(s, priority=97)), 100, 97),
    ],
)
def test_the_claim_takes_back_what_aging_added_and_nothing_else(store, change, shown, own):
    job_id = aged(store, 50)
    change(store.control, job_id)
    assert store.read.job(job_id).priority == shown
    assert claim_one(store, T0 + 3 * HOUR).priority == own


# -- update --------------------------------------------------------------------------------------


def test_an_update_writes_what_it_is_given_and_nothing_else(store):
    spec = replace(TENTH, window=parse_window("Mon-Fri 09:00-17:00 Europe/Berlin"))
    added = store.add(NewJob(spec, {"a": 1}, name="old", metadata={"m": 1}), now=T0)
    before = store.read.job(added.id)
    job = store.control.update(
        added.id,
        lambda s: replace(s, queue="slow", timeout=MINUTE, retry=RetryPolicy(delays=(MINUTE,))),
        payload={"b": 2},
        name="new",
        now=T0 + MINUTE,
    )
    assert job == before._replace(
        queue="slow", timeout_seconds=60, retry_delays_seconds=[60], payload={"b": 2}, name="new",
        updated_at=T0 + MINUTE,
    )  # fmt: skip
    assert store.read.job(added.id) == job
    assert store.control.update(added.id, metadata={"m": 2}, now=T0).metadata == {"m": 2}
    assert store.read.job(added.id).payload == {"b": 2}


def test_an_update_leaves_alone_what_python_could_not_write_again(store, connect):
    job_id = make(store, "pending")
    with connect() as connection:
        connection.execute("""UPDATE evenbeat.jobs SET payload = '{"n": 1e999}'""")
    store.control.update(job_id, lambda s: replace(s, queue="other"))
    with connect() as connection:
        (kept,) = connection.execute(
            "SELECT payload->>'n' = 1e999::text FROM evenbeat.jobs"
        ).fetchone()
    assert kept


def test_an_unchanged_schedule_keeps_its_plan(store):
    job_id = store.add(NewJob(TENTH, name="tick"), now=T0).id
    again = lambda s: replace(s, schedule=Interval(10 * MINUTE), priority=9)  # noqa: E731
    job = store.control.update(job_id, again, now=T0 + 5 * MINUTE)
    assert (job.plan_time, job.anchor_at, job.schedule_version) == (T0 + 10 * MINUTE, T0, 0)


@pytest.mark.parametrize(
    ("schedule", "plan", "anchor"),
    [
        (Interval(HOUR), T0 + 65 * MINUTE, T0 + 5 * MINUTE),
        (Interval(HOUR, anchor=T0), T0 + HOUR, T0),
        (Interval(10 * MINUTE, anchor=T0 + MINUTE), T0 + 11 * MINUTE, T0 + MINUTE),
        (Cron("30 12 * * *"), T0 + 30 * MINUTE, None),
        (Once(T0 + 3 * HOUR), T0 + 3 * HOUR, None),
    ],
)
def test_a_changed_schedule_is_planned_anew(store, schedule, plan, anchor):
    job_id = store.add(NewJob(TENTH, name="tick"), now=T0).id
    edit = lambda s: replace(s, schedule=schedule)  # noqa: E731
    job = store.control.update(job_id, edit, now=T0 + 5 * MINUTE)
    assert (job.status, job.plan_time, job.next_run_at) == ("scheduled", plan, plan)
    assert (job.anchor_at, job.schedule_version) == (anchor, 1)


def test_a_changed_delay_keeps_the_rhythm(store):
    job_id = store.add(NewJob(TENTH, name="tick"), now=T0).id
    edit = lambda s: replace(s, schedule_delay=2 * MINUTE)  # noqa: E731
    job = store.control.update(job_id, edit, now=T0 + 5 * MINUTE)
    assert (job.plan_time, job.next_run_at) == (T0 + 10 * MINUTE, T0 + 12 * MINUTE)


def test_a_one_off_keeps_its_moment_when_its_delay_changes(store):
    job_id = store.add(NewJob(NOOP, start=T0 + 20 * HOUR), now=T0).id
    edit = lambda s: replace(s, schedule_delay=2 * MINUTE)  # noqa: E731
    job = store.control.update(job_id, edit, now=T0)
    assert (job.status, job.plan_time) == ("scheduled", T0 + 20 * HOUR)
    assert job.next_run_at == T0 + 20 * HOUR + 2 * MINUTE


def test_a_new_plan_by_a_new_schedule_has_no_retries_behind_it(store):
    store.add(NewJob(TENTH, name="tick"), now=T0)
    waiting = run(store, T0 + 10 * MINUTE, FAILED)
    edit = lambda s: replace(s, schedule=Interval(HOUR))  # noqa: E731
    job = store.control.update(waiting.id, edit, now=T0 + 10 * MINUTE)
    assert (job.plan_time, job.current_retry_count) == (T0 + 70 * MINUTE, 0)


def test_a_retry_keeps_its_count_when_another_delay_leaves_its_plan_alone(store):
    store.add(NewJob(JobSpec("noop")), now=T0)
    waiting = run(store, T0, FAILED)
    edit = lambda s: replace(s, schedule_delay=2 * MINUTE)  # noqa: E731
    job = store.control.update(waiting.id, edit, now=T0)
    assert (job.plan_time, job.current_retry_count) == (T0, 1)
    assert claim_one(store, T0 + HOUR).current_retry_count == 1


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("pending", ("scheduled", T0 + HOUR)),
        ("running", ("running", T0 + HOUR)),
        ("paused", ("paused", T0 + HOUR)),
        ("completed", ("scheduled", T0 + HOUR)),
        ("failed", ("failed", None)),
        ("cancelled", ("cancelled", None)),
    ],
)
def test_a_new_schedule_wakes_waiting_and_completed_jobs_only(store, state, expected):
    job_id = make(store, state)
    edit = lambda s: replace(s, schedule=Interval(HOUR))  # noqa: E731
    job = store.control.update(job_id, edit, now=T0)
    assert (job.status, job.next_run_at) == expected
    assert job.schedule_kind == "interval"


def test_a_completed_job_does_not_wake_beside_a_live_one_with_its_dedup_key(store):
    ended = make(store, "completed", dedup_key="k")
    make(store, "pending", dedup_key="k")
    with pytest.raises(Conflict, match=r"\(dedup_key\)=\(k\)"):
        store.control.update(ended, lambda s: replace(s, schedule=Interval(HOUR)))
    assert store.read.job(ended).status == "completed"


def test_an_edit_of_a_running_job_leaves_its_run_alone(store):
    job_id = make(store, "running")
    token = store.read.job(job_id).lock_token
    job = store.control.update(job_id, lambda s: replace(s, priority=9), payload={"n": 2}, now=T0)
    assert (job.lock_token, job.status, job.payload) == (token, "running", {"n": 2})


def test_a_taken_name_is_refused_and_names_the_job_that_has_it(store):
    taken = make(store, "completed", name="report")
    mine = make(store, "pending", name="mine")
    with pytest.raises(NameTaken, match=str(taken)):
        store.control.update(mine, name="report", payload={"n": 1})
    assert store.read.job(mine).payload == {}
    abroad = make(store, "scheduled", name="other", scope=Scope("tenant", "acme"))
    assert store.control.update(abroad, name="report").name == "report"


@pytest.mark.parametrize("field", ["payload", "metadata"])
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"x": "a" * 300_000}, "at most 262,144"),
        ({"x": object()}, "not JSON"),
        ({"x": "\0"}, "hold"),
    ],
)
def test_data_that_cannot_be_stored_is_refused(store, field, value, reason):
    job_id = make(store, "pending")
    before = store.read.job(job_id)
    with pytest.raises(InvalidInput, match=reason):
        store.control.update(job_id, **{field: value})
    assert store.read.job(job_id) == before


def test_an_edit_that_raises_leaves_the_row_alone_and_unlocked(store):
    job_id = make(store, "pending")
    before = store.read.job(job_id)
    with pytest.raises(ZeroDivisionError):
        store.control.update(job_id, lambda s: replace(s, priority=1 // 0), payload={"n": 1})
    assert store.read.job(job_id) == before
    assert store.control.update(job_id, payload={"n": 1}).payload == {"n": 1}


def test_an_update_of_an_unknown_job_is_not_found(store):
    with pytest.raises(NotFound):
        store.control.update(uuid4())


def test_a_bad_name_is_refused_before_anything_else(store):
    with pytest.raises(InvalidInput, match="printable"):
        store.control.update(uuid4(), name=" ")
    with pytest.raises(InvalidInput, match="queue must be"):
        store.control.pause_queue("")


# -- delete --------------------------------------------------------------------------------------


def test_a_delete_takes_the_history_with_it_and_nothing_of_others(store):
    gone, kept = make(store, "completed"), make(store, "completed")
    store.control.delete([gone])
    assert store.read.executions_of(gone).total == 0
    assert store.read.executions_of(kept).total == 1
    with pytest.raises(NotFound):
        store.read.job(gone)


def test_the_worker_of_a_deleted_job_finds_its_claim_lost(store):
    store.add(NewJob(NOOP), now=T0)
    job = claim_one(store)
    store.control.delete([job.id])
    assert store.renew([job]) == {}
    assert store.finish([decide(job, Outcome(), T0)]) == set()


# -- many ----------------------------------------------------------------------------------------


def test_a_bulk_verb_does_what_it_can_and_answers_for_the_rest(store):
    failed, completed, cancelled = (make(store, s) for s in ("failed", "completed", "cancelled"))
    unknown = uuid4()
    changes = store.control.retry([failed, unknown, completed, failed, cancelled, unknown], now=T0)
    assert {job.id for job in changes.changed} == {failed, cancelled}
    assert [(refused.id, refused.status) for refused in changes.refused] == [
        (unknown, None),
        (completed, JobStatus.COMPLETED),
    ]
    assert "cannot be retried; one that is cancelled or failed can" in str(
        changes.refused[1].error()
    )


@pytest.mark.parametrize("verb", ["pause", "cancel", "run_now", "delete"])
def test_a_doubled_id_counts_once(store, verb):
    job_id = make(store, "pending")
    assert len(getattr(store.control, verb)([job_id, job_id]).changed) == 1


def test_a_doubled_id_is_resumed_once(store):
    job_id = make(store, "paused")
    changes = store.control.resume([job_id, job_id])
    assert (len(changes.changed), changes.refused) == (1, [])


def test_everywhere_reaches_all_that_match_though_they_match_no_more(store):
    mail = JobSpec("noop", queue="mail")
    store.add_many([NewJob(mail) for _ in range(2500)] + [NewJob(NOOP) for _ in range(10)])
    waiting = JobFilter(statuses=["pending"], queues=["mail"])
    assert store.control.everywhere(waiting, store.control.pause) == (2500, 0)
    assert store.read.counts_by_status() == {"paused": 2500, "pending": 10}
    paused = JobFilter(queues=["mail"])
    assert store.control.everywhere(paused, store.control.pause) == (0, 2500)
    assert store.control.everywhere(paused, store.control.delete) == (2500, 0)
    assert store.read.jobs().total == 10


def test_opposite_verbs_over_the_same_jobs_at_once_both_end(store):
    ids = [added.id for added in store.add_many([NewJob(NOOP) for _ in range(500)])]
    verbs = [store.control.pause, store.control.resume, store.control.cancel, store.control.run_now]
    backwards = ids[::-1]
    with ThreadPoolExecutor(2) as pool:
        for one, other in [(0, 1), (1, 0), (2, 3), (3, 2)]:
            calls = [pool.submit(verbs[one], ids), pool.submit(verbs[other], backwards)]
            for call in calls:
                changes = call.result(timeout=PATIENCE)
                assert len(changes.changed) + len(changes.refused) == 500


@pytest.mark.parametrize(
    ("state", "verb"),
    [
        ("pending", lambda control, ids: control.pause(ids)),
        ("paused", lambda control, ids: control.resume(ids)),
        ("pending", lambda control, ids: control.cancel(ids)),
    ],
    ids=["pause", "resume", "cancel"],
)
def test_the_victim_of_a_deadlock_tries_again(direct_url, connect, state, verb, caplog):
    caplog.set_level("INFO", "evenbeat.store.database")
    quick = Store(make_conninfo(direct_url, options="-c deadlock_timeout=1s"), timeout=10)
    first, second = (make(quick, state, id=id_) for id_ in uuid7_many(2))
    gate, rival = connect(), connect()
    # Who completes the circle finds the deadlock and ends by it: the verb, not its rival.
    rival.execute("SET deadlock_timeout = '1min'")
    lock(gate, first)
    lock(rival, second)
    with ThreadPoolExecutor(2) as pool:
        call = pool.submit(verb, quick.control, [first, second])
        wait_until_blocked(connect, 1)
        crossing = pool.submit(lock, rival, first)
        wait_until_blocked(connect, 2)
        gate.commit()
        crossing.result(timeout=PATIENCE)
        rival.commit()
        assert len(call.result(timeout=PATIENCE).changed) == 2
    quick.close()
    assert "deadlock" in caplog.text


def lock(connection: psycopg.Connection, job_id: UUID) -> None:
    connection.execute("SELECT FROM evenbeat.jobs WHERE id = %s FOR UPDATE", (job_id,))


def wait_until_blocked(connect: Callable[[], psycopg.Connection], sessions: int) -> None:
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with connect() as connection:
        connection.autocommit = True
        wait_for(lambda: connection.execute(waiting).fetchone() == (sessions,), "blocked sessions")


def test_idle_workers_hear_of_jobs_that_are_resumed_or_edited(store):
    job_id = store.add(NewJob(JobSpec("noop", queue="mail"), start=T0 + HOUR), now=T0).id
    with store.listen() as listener:
        store.control.pause([job_id], now=T0)
        store.control.update(job_id, lambda spec: replace(spec, priority=3), now=T0)
        assert listener.wait(0.2) == []
        store.control.resume([job_id], now=T0)
        assert listener.wait(60) == [("due", "mail")]
        store.control.update(job_id, lambda spec: replace(spec, queue="post"), now=T0)
        assert listener.wait(60) == [("due", "post")]


# -- what a failed job shows of its retries ------------------------------------------------------


def used_up(store: Store, spec: JobSpec, **options: object) -> JobRecord:
    """A job of one retry, given up after it."""
    retried_once = replace(spec, retry=RetryPolicy(max_retries=1))
    store.add(NewJob(retried_once, **options), now=T0)  # type: ignore[arg-type]
    run(store, T0, FAILED)
    return run(store, T0 + 2 * MINUTE, FAILED)


def test_a_failed_job_shows_its_retries_until_a_person_takes_it_up_again(store):
    failed = used_up(store, NOOP)
    assert (failed.status, failed.current_retry_count) == ("failed", 1)
    edited = store.control.update(failed.id, lambda s: replace(s, priority=9), now=T0 + HOUR)
    assert (edited.status, edited.current_retry_count) == ("failed", 1)
    again = store.control.retry([failed.id], now=T0 + HOUR).only()
    assert (again.status, again.current_retry_count) == ("pending", 0)
    assert run(store, T0 + HOUR, FAILED).current_retry_count == 1  # it has its retry again


def test_a_recurring_job_that_stops_shows_its_retries_and_one_that_goes_on_begins_anew(store):
    recurring = JobSpec("noop", schedule=Interval(10 * MINUTE, anchor=T0))
    stopped = used_up(store, replace(recurring, on_failure=OnFailure.STOP), start=T0)
    assert (stopped.status, stopped.current_retry_count) == ("failed", 1)
    goes_on = used_up(store, recurring, start=T0)
    assert (goes_on.status, goes_on.current_retry_count) == ("scheduled", 0)
