"""Why a job did or did not run: each situation has its sentence, and none is without one."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenbeat.domain.execution import Execution
from evenbeat.domain.job import JobRecord
from evenbeat.domain.states import JobStatus
from evenbeat.observe import explain as explaining
from evenbeat.observe.explain import Explanation
from evenbeat.store.reads import Circumstances
from evenbeat.store.upkeep import WorkerRecord

NOW = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
WORKER = UUID(int=7)
TOKEN = UUID(int=9)

_ROW: dict[str, Any] = dict.fromkeys(JobRecord._fields) | {
    "id": UUID(int=1), "created_at": NOW - HOUR, "updated_at": NOW, "run_count": 0,
    "current_retry_count": 0, "release_count": 0, "burst_count": 0, "priority": 0, "aging_bonus": 0,
    "is_paused": False, "status": "pending", "task": "mail", "queue": "web", "payload": {},
    "schedule_kind": "once", "schedule_version": 0, "timezone": "UTC",
    "schedule_delay_seconds": 0.0,
    "catch_up": "latest_only", "max_plans_per_tick": 10, "max_retries": 3,
    "retry_backoff_seconds": 60.0, "retry_cap_seconds": 3600.0, "retry_jitter": 0.2,
    "on_failure": "continue", "allow_stale_reentry": True, "scope_kind": "global",
    "scope_id": "global", "metadata": {},
}  # fmt: skip
_RUN: dict[str, Any] = dict.fromkeys(Execution._fields) | {
    "job_id": UUID(int=1), "worker_id": WORKER, "execution_number": 1, "retry_attempt": 0,
    "release_count": 0, "status": "completed", "plan_time": NOW - HOUR, "started_at": NOW - HOUR,
    "completed_at": NOW - HOUR, "duration_ms": 250.0,
}  # fmt: skip


def job(**values: Any) -> JobRecord:
    return JobRecord(**(_ROW | values))


def due(**values: Any) -> JobRecord:
    return job(plan_time=NOW - HOUR, next_run_at=NOW - HOUR, **values)


def run(**values: Any) -> Execution:
    return Execution(**(_RUN | {"id": uuid4()} | values))


def worker(**values: Any) -> WorkerRecord:
    standard = {"id": WORKER, "host": "node-a/boot/ns", "pid": 42, "queues": None, "tasks": None,
                "concurrency": 10, "running": 0, "status": "active", "process_started_at": 0.0,
                "version": "1", "started_at": NOW, "heartbeat_at": NOW,
                "checked_at": NOW}  # fmt: skip
    return WorkerRecord(**(standard | values))


def explain(job: JobRecord, **known: Any) -> Explanation:
    return explaining.explain(Circumstances(job, **known))


HOURLY = {"schedule_kind": "interval", "interval_seconds": 3600, "anchor_at": NOW - 48 * HOUR}
FAILED = {"status": "failed", "completed_at": NOW - MINUTE, "error_message": "no route\nto host."}

SITUATIONS: list[tuple[str, JobRecord, dict[str, Any], str]] = [
    (
        "paused",
        job(status="paused", is_paused=True, paused_at=NOW - HOUR),
        {},
        "paused since 2026-03-01 02:00:00 UTC",
    ),
    (
        "cancelled",
        job(status="cancelled", cancelled_at=NOW - HOUR),
        {},
        "cancelled at .* (1 h ago). Retry",
    ),
    ("completed", job(status="completed", completed_at=NOW - HOUR), {}, "completed at"),
    (
        "waits_for_its_time",
        job(plan_time=NOW + HOUR, next_run_at=NOW + 3 * HOUR + 12 * MINUTE),
        {},
        "in 3 h 12 min",
    ),
    (
        "waits_for_retry",
        job(
            status="scheduled",
            plan_time=NOW,
            next_run_at=NOW + MINUTE,
            current_retry_count=2,
            error_message="boom",
        ),
        {},
        "retry 2 of 3, in 1 min, .*because: boom",
    ),
    (
        "outside_window",
        job(
            status="scheduled",
            plan_time=NOW,
            next_run_at=NOW + 19 * HOUR,
            execution_window="22:00-23:00 UTC",
        ),
        {},
        "outside its window .*It starts in 19 h",
    ),
    (
        "queue_paused",
        due(),
        {"queue_paused_at": NOW - HOUR, "live_workers": [worker()]},
        "queue 'web' has been paused since",
    ),
    ("no_worker", due(), {}, "no worker is alive"),
    (
        "queue_not_served",
        due(),
        {"live_workers": [worker(queues=["b", "a"])]},
        "no live worker serves the queue 'web'; served are: a, b",
    ),
    ("task_not_known", due(), {"live_workers": [worker(tasks=["crawl"])]}, "knows the task 'mail'"),
    (
        "task_not_known",
        due(),
        {"live_workers": [worker(queues=["web"], tasks=["x"]), worker(queues=["b"])]},
        "queue 'web' knows",
    ),
    ("workers_draining", due(), {"live_workers": [worker(status="draining")]}, "draining"),
    (
        "workers_busy",
        due(),
        {"live_workers": [worker(running=10)], "ahead": 3},
        "node-a (pid 42).* busy (10 of 10 slots). 3 due jobs",
    ),
    (
        "workers_busy",
        due(),
        {"live_workers": [worker(running=10), worker(running=12)]},
        "all 2 workers .* busy (22 of 20",
    ),
    ("due_and_late", due(), {"live_workers": [worker()]}, "for 1 h, .* is free to take it"),
    ("due", job(plan_time=NOW, next_run_at=NOW), {"live_workers": [worker()]}, "any moment"),
    (
        "retries_used_up",
        job(**FAILED),
        {"recent": [run(status="failed", retry_attempt=3)]},
        "because: no route to host. All 4 attempts",
    ),
    ("retries_used_up", job(**FAILED, max_retries=0), {}, "Its only attempt is used up"),
    (
        "stopped_after_failure",
        job(**FAILED, **HOURLY, on_failure="stop", max_retries=0),
        {"recent": [run(status="failed")]},
        "on_failure is 'stop'",
    ),
    ("failed_for_good", job(**FAILED), {"recent": [run(status="failed")]}, "must not be retried"),
    (
        "needs_person",
        job(**FAILED),
        {"recent": [run(status="failed", error_code="stale_timeout")]},
        "allow_stale_reentry",
    ),
    (
        "running",
        job(
            status="running",
            locked_by=WORKER,
            lock_token=TOKEN,
            started_at=NOW - MINUTE,
            lock_expires_at=NOW + MINUTE,
        ),
        {"live_workers": [worker()]},
        "running on node-a (pid 42) for 1 min, since",
    ),
    (
        "running",
        job(
            status="running",
            locked_by=WORKER,
            lock_token=TOKEN,
            started_at=NOW,
            lock_expires_at=NOW + MINUTE,
        ),
        {},
        "heartbeat has stopped",
    ),
]


@pytest.mark.parametrize(("code", "given_job", "known", "words"), SITUATIONS)
def test_each_situation_has_its_sentence(code, given_job, known, words):
    told = explain(given_job, now=NOW, **known)
    assert told.facts[0].code == code
    assert told.summary == told.facts[0].text
    assert matches(words, told.summary), told.summary


def matches(words: str, text: str) -> bool:
    """Pieces between `.*` come in this order."""
    at = 0
    for piece in words.split(".*"):
        at = text.find(piece.strip(), at)
        if at < 0:
            return False
    return True


def codes(told: Explanation) -> set[str]:
    return {fact.code for fact in told.facts}


def text_of(told: Explanation, code: str) -> str:
    return next(fact.text for fact in told.facts if fact.code == code)


def test_a_run_in_progress_tells_of_its_progress_its_lease_and_a_pause_to_come():
    running = job(
        status="running", locked_by=WORKER, lock_token=TOKEN, started_at=NOW - HOUR,
        lock_expires_at=NOW - MINUTE, is_paused=True,
    )  # fmt: skip
    progress = {"done": 3, "total": 9, "message": "pages"}
    now_running = run(id=TOKEN, status="running", completed_at=None, progress=progress)
    told = explain(running, now=NOW, recent=[now_running])
    assert "3 of 9: pages" in text_of(told, "progress")
    assert "expired 1 min ago" in text_of(told, "lease_expired")
    assert "paused_after_run" in codes(told)
    assert told.next_plans == []


def test_the_last_run_and_lost_workers_are_told():
    history = [
        run(status="failed", error_code="lease_expired", completed_at=NOW - MINUTE,
            error_message="The worker stopped."),
        run(plan_time=NOW - 2 * HOUR, completed_at=NOW - 2 * HOUR),
    ]  # fmt: skip
    told = explain(due(run_count=2), now=NOW, recent=history)
    ended = (
        "failed at 2026-03-01 02:59:00 UTC (1 min ago) after 250 ms, because: The worker stopped."
    )
    assert ended in text_of(told, "last_run")
    assert "1 time in its last 2 runs" in text_of(told, "lease_lost")
    assert "never_ran" in codes(explain(due(), now=NOW))


def test_skipped_plans_are_counted():
    late = job(status="scheduled", plan_time=NOW + HOUR, next_run_at=NOW + HOUR, **HOURLY)
    history = [run(plan_time=NOW - 5 * HOUR)]
    told = explain(late, now=NOW, recent=history)
    assert text_of(told, "plans_skipped").startswith("5 plans between 2026-02-28 22:00:00 UTC")
    steady = [run(plan_time=NOW - HOUR), run(plan_time=NOW)]
    assert "plans_skipped" not in codes(explain(late, now=NOW, recent=steady))


def test_waiting_circumstances_are_told():
    waiting = job(
        plan_time=NOW, next_run_at=NOW + HOUR, aging_bonus=20, priority=25, release_count=2
    )
    told = explain(waiting, now=NOW, queue_paused_at=NOW - HOUR)
    assert "raised by 20 to 25" in text_of(told, "aged")
    assert "2 times" in text_of(told, "handed_back")
    assert "queue_is_paused" in codes(told)


def test_the_plans_to_come_start_with_the_stored_one():
    waiting = job(status="scheduled", plan_time=NOW + HOUR, next_run_at=NOW + HOUR, **HOURLY)
    assert explain(waiting, now=NOW).next_plans == [NOW + n * HOUR for n in range(1, 6)]
    once = job(plan_time=NOW + HOUR, next_run_at=NOW + HOUR)
    assert explain(once, now=NOW).next_plans == [NOW + HOUR]
    assert explain(waiting._replace(status="cancelled"), now=NOW).next_plans == []


moments = st.none() | st.integers(-(10**7), 10**7).map(lambda s: NOW + timedelta(seconds=s))


@given(
    status=st.sampled_from(list(JobStatus)),
    times=st.fixed_dictionaries(dict.fromkeys(
        ("plan_time", "next_run_at", "started_at", "completed_at", "paused_at", "cancelled_at",
         "lock_expires_at", "lock_acquired_at"), moments)),
    kind=st.sampled_from(["once", "interval"]),
    counts=st.tuples(*[st.integers(0, 5)] * 4),
    error=st.none() | st.text(max_size=400),
    window=st.none() | st.just("Mon-Fri 22:00-06:00 Europe/Berlin"),
    runs=st.lists(st.tuples(st.sampled_from(["running", "completed", "failed", "cancelled"]),
                            moments.filter(bool)), max_size=4),
    workers=st.integers(0, 2),
)  # fmt: skip
def test_every_job_gets_sentences(*, status, times, kind, counts, error, window, runs, workers):
    retries, release_count, aged, allowed = counts
    rhythm = HOURLY if kind == "interval" else {}
    some = job(
        status=str(status), current_retry_count=retries, release_count=release_count,
        aging_bonus=aged, max_retries=allowed, error_message=error, execution_window=window,
        **times, **rhythm,
    )  # fmt: skip
    history = [
        run(status=s, plan_time=at, started_at=at, completed_at=None if s == "running" else at)
        for s, at in runs
    ]
    told = explain(some, now=NOW, recent=history, live_workers=[worker()] * workers)
    assert told.summary
    assert len(told.next_plans) <= 5
    for fact in told.facts:
        assert fact.text[0].isupper() or fact.text[0].isdigit()
        assert fact.text.endswith((".", "?"))
        assert "None" not in fact.text.replace("worker None", "")
        assert len(fact.text) < 1000
