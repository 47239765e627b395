"""Webhooks in the store: what an end stores for whom, atomically and once, and what it costs."""

import re
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import psycopg
import pytest

from evenbeat.domain.decision import decide, lost_lease
from evenbeat.domain.execution import Outcome
from evenbeat.domain.job import JobRecord, JobSpec, NewJob
from evenbeat.domain.retry import RetryPolicy
from evenbeat.domain.schedule import Interval
from evenbeat.domain.states import ExecutionStatus
from evenbeat.domain.webhooks import QUEUE, TASK, WebhookEvent, key_of, message_id
from evenbeat.errors import Conflict, InvalidInput, NotFound
from evenbeat.store.lists import JobFilter
from evenbeat.store.rows import finish_params
from evenbeat.store.store import Store
from evenbeat.store.webhooks import COUNTED, MOST_GLOBAL, Attempted

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
WORKER = uuid4()
ALL = list(WebhookEvent)
URL = "https://receiver.example/hook"
FAILED = Outcome(ExecutionStatus.FAILED, error_code="ValueError", error_message="no", duration_ms=5)


def ran(store: Store, outcome: Outcome | None = None, now: datetime = T0, **filters) -> JobRecord:
    """Claim the next job that is no delivery, and end it so."""
    (job,) = store.claim(WORKER, 1, queues=["default"], now=now)
    outcome = outcome or Outcome(duration_ms=5)
    assert store.finish([decide(job, outcome, now)], now=now)
    return job


def events_of(store: Store, webhook_id: UUID) -> list[str]:
    page = store.webhooks.messages(webhook_id)
    assert page.total == len(page.messages)
    return [message.event for message in reversed(page.messages)]


def deliveries(store: Store) -> list[JobRecord]:
    return store.read.jobs(JobFilter(tasks=[TASK]), limit=1000).jobs


# -- what is told ----------------------------------------------------------------------------------


def test_a_completed_job_is_told_with_all_there_is_to_say_and_no_payload(store):
    hook = store.webhooks.add(URL, ALL, now=T0)
    store.add(NewJob(JobSpec("report"), {"password": "hidden"}, name="daily",
                     metadata={"tags": ["money", "night"], "key": "hidden"}), now=T0)  # fmt: skip
    job = ran(store, now=T0 + MINUTE)

    (message,) = store.webhooks.messages(hook.id).messages
    assert (message.event, message.state, message.attempts) == ("job.completed", "pending", 0)
    assert (message.job_id, message.execution_id) == (job.id, job.lock_token)
    found, payload, attempts = store.webhooks.message(message.id)
    assert (found, attempts) == (message, [])
    assert payload == {
        "type": "job.completed",
        "timestamp": "2026-03-01T12:01:00+00:00",
        "data": {
            "job": {
                "id": str(job.id), "name": "daily", "task": "report", "queue": "default",
                "scope": {"kind": "global", "id": "global"}, "tags": ["money", "night"],
                "parent_id": None,
            },
            "execution": {
                "id": str(job.lock_token), "number": 1, "attempt": 1,
                "plan_time": "2026-03-01T12:00:00+00:00",
                "started_at": "2026-03-01T12:01:00+00:00",
                "completed_at": "2026-03-01T12:01:00+00:00",
                "duration_ms": 5, "error_code": None, "error_message": None, "retry_at": None,
            },
            "deadline": None,
        },
    }  # fmt: skip
    assert "hidden" not in str(payload)
    assert list(payload) == ["type", "timestamp", "data"]


def test_the_delivery_is_a_job_of_its_own_that_is_due_at_once(store):
    hook = store.webhooks.add(URL, ALL, now=T0)
    store.add(NewJob(JobSpec("report")), now=T0)
    ran(store, now=T0 + MINUTE)
    (message,) = store.webhooks.messages(hook.id).messages
    (delivery,) = store.claim(WORKER, 9, now=T0 + MINUTE)
    assert (delivery.task, delivery.queue) == (TASK, QUEUE)
    assert delivery.payload == {"message": str(message.id)}
    assert (delivery.dedup_key, delivery.max_retries) == (f"webhook:{message.id}", 100)


def test_a_message_is_hinted_at(store):
    store.webhooks.add(URL, ALL)
    store.add(NewJob(JobSpec("report")))
    (job,) = store.claim(WORKER, 1)
    with store.listen() as listener:
        store.finish([decide(job, Outcome(), datetime.now(UTC))])
        signal = listener.wait(60)
        assert signal is not None
        assert (signal[0].kind, signal[0].subject) == ("due", QUEUE)


def test_each_failed_attempt_is_told_and_the_last_one_as_the_end(store):
    hook = store.webhooks.add(URL, ALL, now=T0)
    once_more = RetryPolicy(max_retries=1)
    store.add(NewJob(JobSpec("report", retry=once_more)), now=T0)
    ran(store, FAILED)
    ran(store, FAILED, now=T0 + 10 * MINUTE)
    assert events_of(store, hook.id) == ["job.retrying", "job.failed"]
    last, first = store.webhooks.messages(hook.id).messages
    retrying = store.webhooks.message(first.id)[1]["data"]["execution"]
    assert (retrying["attempt"], retrying["error_code"]) == (1, "ValueError")
    assert retrying["retry_at"] == "2026-03-01T12:01:00+00:00"
    over = store.webhooks.message(last.id)[1]["data"]["execution"]
    assert (over["attempt"], over["error_message"], over["retry_at"]) == (2, "no", None)


def test_a_recurring_job_that_goes_on_has_failed_all_the_same(store):
    hook = store.webhooks.add(URL, ALL, now=T0)
    spec = JobSpec("tick", schedule=Interval(MINUTE, anchor=T0), retry=RetryPolicy(max_retries=0))
    store.add(NewJob(spec), now=T0)
    job = ran(store, FAILED, now=T0 + MINUTE)
    assert store.read.job(job.id).status == "scheduled"
    ran(store, now=T0 + 2 * MINUTE)
    assert events_of(store, hook.id) == ["job.failed", "job.completed"]


def test_a_cancelled_job_is_told_with_its_run_if_it_had_one(store):
    hook = store.webhooks.add(URL, ALL, now=T0)
    running = store.add(NewJob(JobSpec("report")), now=T0).id
    (claimed,) = store.claim(WORKER, 1, now=T0)
    waiting = store.add(NewJob(JobSpec("report")), now=T0).id
    store.control.cancel([running, waiting], now=T0 + MINUTE)
    told = {m.job_id: m for m in store.webhooks.messages(hook.id).messages}
    assert {m.event for m in told.values()} == {"job.cancelled"}
    assert store.webhooks.message(told[waiting].id)[1]["data"]["execution"] is None
    run = store.webhooks.message(told[running].id)[1]["data"]["execution"]
    assert (run["id"], run["error_code"]) == (str(claimed.lock_token), "cancelled")
    assert run["duration_ms"] == 60_000
    store.control.cancel([waiting], now=T0 + MINUTE)
    assert len(events_of(store, hook.id)) == 2


def test_a_given_up_lease_is_told_by_whoever_reaps_it(store):
    hook = store.webhooks.add(URL, ALL, now=T0)
    store.add(NewJob(JobSpec("report")), now=T0)
    store.claim(WORKER, 1, now=T0)
    later = T0 + MINUTE
    (job,) = store.expired(now=later)
    outcome = lost_lease(job)
    reaped = decide(job, outcome, later)
    store.finish([reaped], expired_only=True, now=later)
    store.finish([reaped], expired_only=True, now=later)
    (message,) = store.webhooks.messages(hook.id).messages
    assert message.event == "job.retrying"
    told = store.webhooks.message(message.id)[1]["data"]["execution"]
    assert told["error_code"] == "lease_expired"


# -- who is told -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "heard"),
    [
        ({}, True),
        ({"events": ["job.failed", "job.retrying", "job.cancelled", "balance.low"]}, False),
        ({"tasks": ["other", "report"]}, True),
        ({"tasks": ["other"]}, False),
        ({"queues": ["default"]}, True),
        ({"queues": ["mail"]}, False),
        ({"tags": ["night", "day"]}, True),
        ({"tags": ["day"]}, False),
        ({"tasks": ["report"], "tags": ["day"]}, False),
        ({"enabled": False}, False),
        ({"tasks": [], "tags": []}, True),
    ],
)
def test_an_endpoint_hears_what_it_asked_for(store, options, heard):
    hook = store.webhooks.add(URL, options.pop("events", ALL), **options)
    store.add(NewJob(JobSpec("report"), metadata={"tags": ["night"]}), now=T0)
    ran(store)
    assert events_of(store, hook.id) == ["job.completed"] * heard
    assert len(deliveries(store)) == heard


def test_tags_that_are_none_do_no_harm(store):
    hook = store.webhooks.add(URL, ALL, tags=["x"])
    for metadata in ({}, {"tags": None}, {"tags": {"y": 1}}, {"tags": 7}):
        store.add(NewJob(JobSpec("report"), metadata=metadata), now=T0)
        ran(store)
    assert events_of(store, hook.id) == []


def test_one_endpoint_for_a_single_job_and_one_for_all(store):
    first, second = (store.add(NewJob(JobSpec("report")), now=T0).id for _ in range(2))
    own = store.webhooks.add(URL, ALL, job_id=first)
    every = store.webhooks.add(URL, ALL)
    ran(store)
    ran(store)
    assert [m.job_id for m in store.webhooks.messages(own.id).messages] == [first]
    heard = {m.job_id for m in store.webhooks.messages(every.id).messages}
    assert heard == {first, second}
    assert [hook.id for hook in store.webhooks.endpoints(job_id=first)] == [own.id]
    assert store.webhooks.count(job_id=first) == (1, 1)


def test_deliveries_are_not_told_of(store):
    hook = store.webhooks.add(URL, ALL)
    store.add(NewJob(JobSpec("report")), now=T0)
    ran(store)
    (delivery,) = store.claim(WORKER, 9, now=T0)
    store.finish([decide(delivery, FAILED, T0)], now=T0)
    store.control.cancel([delivery.id])
    assert events_of(store, hook.id) == ["job.completed"]


# -- exactly once, and at no cost ------------------------------------------------------------------


def test_a_thousand_ends_at_once_make_a_thousand_messages(store):
    hook = store.webhooks.add(URL, ["job.completed"])
    store.add_many([NewJob(JobSpec("report"))] * 1000, now=T0)

    def work(_: int) -> int:
        ended = 0
        while jobs := store.claim(uuid4(), 20, queues=["default"], now=T0):
            batch = [decide(job, Outcome(), T0) for job in jobs]
            store.finish(batch, now=T0)
            ended += len(store.finish(batch, now=T0)) + len(batch)  # the second time: all lost
        return ended

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(work, range(4))) == 1000
    page = store.webhooks.messages(hook.id, limit=2000)
    assert page.total == len({m.execution_id for m in page.messages}) == 1000
    waiting = [job.payload["message"] for job in deliveries(store)]
    assert len(waiting) == 1000
    assert set(waiting) == {str(m.id) for m in page.messages}


def test_one_endpoint_that_stalls_leaves_room_for_others(store):
    stalled, other = (store.webhooks.add(URL, ALL, now=T0).id for _ in range(2))
    for webhook_id in [stalled] * 30 + [other]:
        store.webhooks.test(webhook_id, now=T0)
    store.add(NewJob(JobSpec("report")), now=T0)
    claimed = Counter(job.concurrency_key for job in store.claim(WORKER, 100, now=T0))
    assert claimed == {f"webhook:{stalled}": 10, f"webhook:{other}": 1, None: 1}


def test_a_lost_lease_tells_nobody(store):
    hook = store.webhooks.add(URL, ALL)
    store.add(NewJob(JobSpec("report")), now=T0)
    (job,) = store.claim(WORKER, 1, now=T0)
    stale = job._replace(lock_token=uuid4())
    assert store.finish([decide(stale, Outcome(), T0)], now=T0) == set()
    assert events_of(store, hook.id) == []
    assert deliveries(store) == []


def test_an_end_that_cannot_be_written_tells_nobody(store):
    hook = store.webhooks.add(URL, ALL)
    store.add(NewJob(JobSpec("report")), now=T0)
    (job,) = store.claim(WORKER, 1, now=T0)
    broken = Outcome(result='"\\u0000"')
    with pytest.raises(InvalidInput):
        store.finish([decide(job, broken, T0)], now=T0)
    assert events_of(store, hook.id) == []


def test_whether_there_is_an_endpoint_is_one_look_for_a_whole_batch(store, connect):
    """And all that webhooks cost where there are none."""
    store.add_many([NewJob(JobSpec("report"))] * 50, now=T0)
    jobs = store.claim(WORKER, 50, now=T0)
    params = finish_params([decide(job, Outcome(), T0) for job in jobs])
    params |= {"expired_only": False, "now": T0}
    text = "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) " + store.database.statements["finish"].text
    with connect() as connection:
        plan = [line for (line,) in connection.execute(text, params).fetchall()]
    looks = [line for line in plan if "webhook" in line]
    assert len(looks) == 1, "\n".join(plan)
    assert re.search(r"on webhooks \(actual rows=0.* loops=1\)", looks[0])
    assert store.read.job(jobs[0].id).status == "completed"


# -- endpoints -------------------------------------------------------------------------------------


def test_endpoints_are_made_changed_and_listed(store):
    first = store.webhooks.add(URL, ["job.failed"], description="pager", created_by="ann", now=T0)
    second = store.webhooks.add(URL, ALL, tasks=["b", "a", "a"], now=T0)
    assert len(key_of(first.secret)) == 32
    assert first.secret != second.secret
    assert second.tasks == ["a", "b"]
    assert [hook.id for hook in store.webhooks.endpoints()] == [second.id, first.id]
    assert [hook.id for hook in store.webhooks.endpoints(limit=1, offset=1)] == [first.id]
    changed = store.webhooks.update(
        first.id, {"events": ["job.completed"], "enabled": False, "queues": ["mail"]}, now=T0
    )
    assert (changed.events, changed.enabled, changed.queues) == (["job.completed"], False, ["mail"])
    assert (changed.description, changed.secret) == ("pager", first.secret)
    assert store.webhooks.get(first.id) == changed
    with pytest.raises(InvalidInput, match="got x"):
        store.webhooks.update(first.id, {"events": ["x"]})


def test_what_does_not_exist_says_so(store):
    nobody = uuid4()
    for ask in (
        lambda: store.webhooks.get(nobody),
        lambda: store.webhooks.update(nobody, {"enabled": False}),
        lambda: store.webhooks.rotate(nobody),
        lambda: store.webhooks.delete(nobody),
        lambda: store.webhooks.test(nobody),
        lambda: store.webhooks.redeliver_failed(nobody, T0),
        lambda: store.webhooks.redeliver(nobody),
        lambda: store.webhooks.message(nobody),
    ):
        with pytest.raises(NotFound, match=f"{nobody}|{message_id(nobody)}"):
            ask()
    assert store.webhooks.outgoing(nobody) is None


def test_there_is_an_end_to_endpoints_for_all_jobs(store, connect):
    store.webhooks.add(URL, ALL)
    with connect() as connection:
        connection.execute(
            "INSERT INTO evenbeat.webhooks (id, created_at, updated_at, url, events, secret) "
            "SELECT gen_random_uuid(), now(), now(), url, events, secret "
            "FROM evenbeat.webhooks, generate_series(2, %s)",
            (MOST_GLOBAL,),
        )
    with pytest.raises(Conflict, match="100 webhooks for all jobs"):
        store.webhooks.add(URL, ALL)
    store.webhooks.add(URL, ALL, job_id=uuid4())


def test_a_rotated_secret_signs_along_for_a_day(store):
    hook = store.webhooks.add(URL, ALL, now=T0)
    message = store.webhooks.test(hook.id, now=T0).id
    rotated = store.webhooks.rotate(hook.id, now=T0)
    assert rotated.secret != hook.secret
    assert rotated.old_secret_until == T0 + timedelta(hours=24)
    soon = store.webhooks.outgoing(message, now=T0 + timedelta(hours=23))
    assert (soon.secret, soon.old_secret) == (rotated.secret, hook.secret)
    assert store.webhooks.outgoing(message, now=T0 + timedelta(hours=24)).old_secret is None


def test_a_deleted_endpoint_takes_its_messages_and_deliveries_along(store, connect):
    gone, stays = store.webhooks.add(URL, ALL), store.webhooks.add(URL, ALL)
    store.add(NewJob(JobSpec("report")), now=T0)
    ran(store)
    store.webhooks.delete(gone.id)
    assert [hook.id for hook in store.webhooks.endpoints()] == [stays.id]
    assert len(deliveries(store)) == 1
    assert events_of(store, stays.id) == ["job.completed"]
    with connect() as connection:
        assert connection.execute("SELECT count(*) FROM evenbeat.webhook_messages").fetchone() == (
            1,
        )


# -- deliveries ------------------------------------------------------------------------------------


def attempt(message: UUID, store: Store, at: datetime = T0, **how) -> UUID:
    delivered = how.pop("delivered", False)
    made = Attempted(uuid4(), at, 3.0, delivered, **how)
    store.webhooks.record(message, made, now=at)
    return made.id


def test_attempts_are_logged_and_the_endpoint_shows_since_when_it_fails(store):
    hook = store.webhooks.add(URL, ALL, now=T0)
    message = store.webhooks.test(hook.id, now=T0).id
    attempt(message, store, status_code=500, error_code="http_500", error="No.", response="oops")
    assert store.webhooks.get(hook.id).failing_since == T0
    attempt(message, store, T0 + MINUTE, error_code="http_timeout", error="Slow.")
    assert store.webhooks.get(hook.id).failing_since == T0
    last = attempt(message, store, T0 + 2 * MINUTE, delivered=True, status_code=204)
    assert store.webhooks.get(hook.id).failing_since is None

    found, _, attempts = store.webhooks.message(message)
    assert [(a.attempt, a.status_code, a.error_code) for a in attempts] == [
        (1, 500, "http_500"), (2, None, "http_timeout"), (3, 204, None),
    ]  # fmt: skip
    assert (found.state, found.attempts, found.status_code) == ("delivered", 3, 204)
    assert found.delivered_at == T0 + 2 * MINUTE

    again = Attempted(last, T0, 3.0, True)
    store.webhooks.record(message, again)
    assert store.webhooks.message(message)[0].attempts == 3


def test_a_late_failure_does_not_undo_a_delivery(store):
    """Of a worker that was taken for dead, while another has delivered the message."""
    hook = store.webhooks.add(URL, ALL, now=T0)
    message = store.webhooks.test(hook.id, now=T0).id
    attempt(message, store, delivered=True, status_code=204)
    attempt(message, store, T0 + MINUTE, error_code="http_timeout", error="Slow.")
    found = store.webhooks.message(message)[0]
    assert (found.state, found.delivered_at, found.attempts) == ("delivered", T0, 2)


def test_messages_by_state(store):
    hook = store.webhooks.add(URL, ALL, now=T0)
    delivered, failed, pending = (store.webhooks.test(hook.id, now=T0).id for _ in range(3))
    attempt(delivered, store, delivered=True)
    attempt(failed, store, status_code=404, error_code="http_404", error="No.")
    for job in store.claim(WORKER, 9, now=T0):
        if job.payload["message"] != str(pending):
            store.finish([decide(job, Outcome(), T0)], now=T0)

    def listed(*states: str) -> Counter[UUID]:
        return Counter(m.id for m in store.webhooks.messages(hook.id, states=states).messages)

    assert listed("delivered") == {delivered: 1}
    assert listed("failed") == {failed: 1}
    assert listed("pending") == {pending: 1}
    assert listed("failed", "pending") == {failed: 1, pending: 1}
    page = store.webhooks.messages(hook.id, limit=1, offset=1)
    assert (len(page.messages), page.total) == (1, 3)
    assert store.webhooks.messages(hook.id, offset=5) == ([], 3)


def test_what_failed_is_found_among_thousands_that_did_not(store, connect):
    hook = store.webhooks.add(URL, ALL, now=T0)
    failed = store.webhooks.test(hook.id, now=T0).id
    store.control.cancel([job.id for job in deliveries(store)])
    with connect() as connection:
        connection.execute("ALTER TABLE evenbeat.webhook_messages DISABLE TRIGGER send")
        connection.execute(
            "INSERT INTO evenbeat.webhook_messages (id, webhook_id, event, created_at, payload, "
            "delivered_at) SELECT gen_random_uuid(), %s, 'job.completed', now(), '{}', now() "
            "FROM generate_series(1, 20000)",
            (hook.id,),
        )
        connection.execute("ALTER TABLE evenbeat.webhook_messages ENABLE TRIGGER send")
        connection.commit()
        connection.execute("ANALYZE evenbeat.webhook_messages")
        params = {"webhook_id": hook.id, "states": ["failed"], "limit": 50, "offset": 0}
        text = "EXPLAIN " + store.database.statements["webhook_messages"].text
        plan = "\n".join(row[0] for row in connection.execute(text, params))
        assert "webhook_messages_undelivered" in plan
    page = store.webhooks.messages(hook.id, states=["failed"])
    assert ([message.id for message in page.messages], page.total) == ([failed], 1)
    page = store.webhooks.messages(hook.id, limit=10)
    assert (len(page.messages), page.total) == (10, COUNTED)


def ended(store: Store, *messages: UUID) -> None:
    """The deliveries of these messages have come to their end."""
    for job in store.claim(WORKER, 99, queues=[QUEUE], now=T0):
        if UUID(job.payload["message"]) in messages:
            store.finish([decide(job, Outcome(), T0)], now=T0)


def test_one_message_is_sent_again_even_when_it_was_delivered(store):
    hook, other = store.webhooks.add(URL, ALL, now=T0), store.webhooks.add(URL, ALL, now=T0)
    message = store.webhooks.test(hook.id, now=T0).id
    attempt(message, store, delivered=True)
    ended(store, message)
    again = store.webhooks.redeliver(message, now=T0)
    assert (again.id, again.state, again.attempts) == (message, "pending", 1)
    (job,) = store.claim(WORKER, 9, queues=[QUEUE], now=T0)
    assert job.payload == {"message": str(message)}
    assert store.webhooks.messages(other.id).total == 0


def test_sending_again_what_waits_makes_it_due_and_not_double(store):
    hook = store.webhooks.add(URL, ALL, now=T0)
    message = store.webhooks.test(hook.id, now=T0).id
    (job,) = store.claim(WORKER, 9, now=T0)
    later = Outcome(ExecutionStatus.FAILED, retry_after=timedelta(hours=5))
    store.finish([decide(job, later, T0)], now=T0)
    (waiting,) = store.webhooks.messages(hook.id).messages
    assert waiting.next_attempt_at == T0 + timedelta(hours=5)
    store.webhooks.redeliver(message, now=T0 + MINUTE)
    store.webhooks.redeliver(message, now=T0 + MINUTE)
    (again,) = store.claim(WORKER, 9, now=T0 + MINUTE)
    assert again.id == job.id


def test_what_is_just_being_delivered_is_not_sent_again_by_nobody(store):
    """An answer is noted a moment before its run ends, and that run sends nothing more."""
    hook = store.webhooks.add(URL, ALL, now=T0)
    message = store.webhooks.test(hook.id, now=T0).id
    (job,) = store.claim(WORKER, 9, queues=[QUEUE], now=T0)
    assert store.webhooks.redeliver(message, now=T0).state == "pending"
    attempt(message, store, delivered=True)
    with pytest.raises(Conflict, match="has just been delivered"):
        store.webhooks.redeliver(message, now=T0)
    store.finish([decide(job, Outcome(), T0)], now=T0)
    assert store.webhooks.message(message)[0].state == "delivered"
    assert store.webhooks.redeliver(message, now=T0).state == "pending"


def test_everything_that_failed_since_a_moment_is_sent_again(store):
    hook = store.webhooks.add(URL, ALL, now=T0)
    old = store.webhooks.test(hook.id, now=T0 - 60 * MINUTE).id
    failed, delivered, pending = (store.webhooks.test(hook.id, now=T0).id for _ in range(3))
    attempt(delivered, store, delivered=True)
    ended(store, old, failed, delivered)
    assert store.webhooks.redeliver_failed(hook.id, T0 - MINUTE, now=T0) == 1
    assert store.webhooks.redeliver_failed(hook.id, T0 - MINUTE, now=T0) == 0
    states = {m.id: m.state for m in store.webhooks.messages(hook.id).messages}
    assert states == {
        old: "failed", failed: "pending", delivered: "delivered", pending: "pending",
    }  # fmt: skip


def test_nothing_is_sent_to_a_disabled_endpoint(store):
    hook = store.webhooks.add(URL, ALL, now=T0)
    message = store.webhooks.test(hook.id, now=T0).id
    attempt(message, store, status_code=410, error_code="http_410", error="Gone.",
            disabled_reason="The receiver answered 410 Gone.")  # fmt: skip
    disabled = store.webhooks.get(hook.id)
    assert (disabled.enabled, disabled.failing_since) == (False, T0)
    for ask in (
        lambda: store.webhooks.test(hook.id),
        lambda: store.webhooks.redeliver(message),
        lambda: store.webhooks.redeliver_failed(hook.id, T0),
    ):
        with pytest.raises(Conflict, match=r"disabled: The receiver answered 410 Gone\. Enable"):
            ask()
    enabled = store.webhooks.update(hook.id, {"enabled": True})
    assert (enabled.disabled_reason, enabled.failing_since) == (None, None)
    store.webhooks.redeliver(message)


def test_a_change_does_not_undo_what_a_delivery_notes_meanwhile(store, connect):
    hook = store.webhooks.add(URL, ALL, now=T0)
    with connect() as noting, connect() as looking, ThreadPoolExecutor(1) as threads:
        looking.autocommit = True
        pid = noting.info.backend_pid
        noting.execute("UPDATE evenbeat.webhooks SET enabled = false, disabled_reason = 'Gone.'")
        editing = threads.submit(store.webhooks.update, hook.id, {"description": "new"})
        held_up = "SELECT FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
        while not editing.done() and not looking.execute(held_up, (pid,)).fetchall():
            time.sleep(0.01)
        noting.commit()
        changed = editing.result()
    assert (changed.description, changed.enabled) == ("new", False)
    assert changed.disabled_reason == "Gone."


def test_a_message_that_is_still_to_be_delivered_is_not_old(store):
    """Where little is kept, or the queue was paused for long."""
    hook = store.webhooks.add(URL, ALL, now=T0)
    waiting, failed = (store.webhooks.test(hook.id, now=T0 - 60 * MINUTE).id for _ in range(2))
    ended(store, failed)
    assert store.webhooks.prune(older_than=T0 - MINUTE) == 1
    assert [one.id for one in store.webhooks.messages(hook.id).messages] == [waiting]


def test_old_messages_go_and_with_them_endpoints_of_jobs_that_are_gone(store):
    hook = store.webhooks.add(URL, ALL, now=T0)
    orphan = store.webhooks.add(URL, ALL, job_id=uuid4(), now=T0)
    old = store.webhooks.test(orphan.id, now=T0 - 60 * MINUTE).id
    attempt(old, store, delivered=True)
    young = store.webhooks.test(hook.id, now=T0).id
    assert store.webhooks.prune(older_than=T0 - MINUTE, batch=1) == 1
    with pytest.raises(NotFound):
        store.webhooks.message(old)
    assert store.webhooks.message(young)[0].id == young
    store.webhooks.prune(older_than=T0 - MINUTE)
    assert [one.id for one in store.webhooks.endpoints()] == [hook.id]


# -- the balance -----------------------------------------------------------------------------------


def test_a_low_balance_is_told_once_for_each_fall_however_many_nodes_look(store):
    hook = store.webhooks.add(URL, ["balance.low"])
    store.webhooks.add(URL, ["job.failed"])
    alert = {"score": 0.25, "suggestion": "Rebalance."}

    def look(low: bool) -> bool:
        return store.webhooks.note_balance("distribution", {"low": low}, alert)

    with ThreadPoolExecutor(6) as nodes:
        assert sum(nodes.map(look, [True] * 12)) == 1
    assert not look(False)
    assert look(True)
    assert events_of(store, hook.id) == ["balance.low"] * 2
    message = store.webhooks.messages(hook.id).messages[0]
    assert store.webhooks.message(message.id)[1]["data"] == alert
    assert store.upkeep.figures()["distribution"].value == {"low": True}


def test_the_database_itself_refuses_an_endpoint_that_hears_nothing(store, connect):
    store.webhooks.add(URL, ALL)
    with pytest.raises(psycopg.errors.CheckViolation, match="something_is_heard"):
        connect().execute("UPDATE evenbeat.webhooks SET events = '{}'")
