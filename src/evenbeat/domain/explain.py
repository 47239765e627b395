"""Why a job did or did not run: facts in sentences, for the person who is woken at 3 a.m."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple
from uuid import UUID

from evenbeat.domain.dependencies import Dependency, what_is_missing
from evenbeat.domain.english import (
    say_count,
    say_distance,
    say_job_schedule,
    say_moment,
    say_span,
)
from evenbeat.domain.execution import Execution
from evenbeat.domain.job import Job, OnFailure, recurring_of, window_of
from evenbeat.domain.limits import KeyLimit
from evenbeat.errors import InvalidSchedule

PLANS_SHOWN = 5
_LONGEST_ERROR = 300
_LOST = ("lease_expired", "stale_timeout")
_SOON = timedelta(seconds=10)


class WorkerView(NamedTuple):
    """A live worker as far as it matters for a job. None for queues or tasks means all."""

    id: UUID
    host: str
    pid: int
    queues: Sequence[str] | None
    tasks: Sequence[str] | None
    concurrency: int
    running: int
    is_draining: bool

    @property
    def label(self) -> str:
        """How people find it."""
        return f"{self.host.split('/')[0]} (pid {self.pid})"

    def serves_queue(self, job: Job) -> bool:
        """Whether it takes from the job's queue."""
        return self.queues is None or job.queue in self.queues

    def knows_task(self, job: Job) -> bool:
        """Whether it has the job's handler."""
        return self.tasks is None or job.task in self.tasks


class Fact(NamedTuple):
    """One reason or circumstance: a code for programs, a sentence for people."""

    code: str
    text: str


class Explanation(NamedTuple):
    """The first fact as the summary, all facts, and the plans to come."""

    summary: str
    facts: list[Fact]
    next_plans: list[datetime]


class ExplainInputs(NamedTuple):
    """What `explain` wants to know, as the store gathers it: `explain(**inputs._asdict())`."""

    job: Job
    now: datetime
    queue_paused_at: datetime | None = None
    live_workers: Sequence[WorkerView] = ()
    recent: Sequence[Execution] = ()
    ahead: int = 0
    awaited: Sequence[Dependency] = ()
    limit: KeyLimit | None = None


def explain(
    job: Job,
    *,
    now: datetime,
    queue_paused_at: datetime | None = None,
    live_workers: Sequence[WorkerView] = (),
    recent: Sequence[Execution] = (),
    ahead: int = 0,
    awaited: Sequence[Dependency] = (),
    limit: KeyLimit | None = None,
) -> Explanation:
    """Say where a job stands and why. `recent` is its history, newest plan first; `ahead` counts
    the due jobs of its queue that go first; `awaited` are the jobs that it runs after, and
    `limit` is how its concurrency key stands."""
    known = ExplainInputs(job, now, queue_paused_at, live_workers, recent, ahead, awaited, limit)
    facts = [*_state(known), *_circumstances(known)]
    return Explanation(facts[0].text, facts, next_plans(job, now))


def next_plans(job: Job, now: datetime, count: int = PLANS_SHOWN) -> list[datetime]:
    """The plans that a job has before it, its stored one first."""
    if job.status in ("completed", "failed", "cancelled"):
        return []
    schedule = recurring_of(job)
    stored = [job.plan_time] if job.plan_time is not None and job.status != "running" else []
    if schedule is None:
        return stored
    try:
        after = max(now, job.plan_time) if job.plan_time is not None else now
        return [*stored, *schedule.preview(after, count - len(stored))]
    except InvalidSchedule:
        return stored


# -- where it stands -------------------------------------------------------------------------------


def _state(known: ExplainInputs) -> Iterator[Fact]:
    job = known.job
    match job.status:
        case "running":
            yield from _running(known)
        case "paused":
            yield _paused(known)
        case "cancelled":
            yield _cancelled(known)
        case "failed":
            yield _failed(known)
        case "completed":
            yield Fact(
                "completed",
                f"It completed{_at(job.completed_at, known.now)} and has nothing left to do.",
            )
        case _ if job.next_run_at is None and job.schedule_kind == "after":
            yield Fact("waits_for_jobs", what_is_missing(known.awaited))
        case _ if job.next_run_at is not None and job.next_run_at > known.now:
            yield _waiting(known)
        case _:
            yield _due(known)


def _running(known: ExplainInputs) -> Iterator[Fact]:
    job, now = known.job, known.now
    worker = next((w.label for w in known.live_workers if w.id == job.locked_by), None)
    where = worker or f"worker {job.locked_by}, which shows no sign of life"
    since = job.started_at or job.lock_acquired_at or now
    yield Fact("running", f"It runs on {where} since {say_moment(since)}, for {_for(since, now)}.")
    progress = next((e.progress for e in known.recent if e.id == job.lock_token), None)
    if progress:
        yield Fact("progress", f"It reported {_progress(progress)}.")
    if job.lock_expires_at is not None and job.lock_expires_at <= now:
        yield Fact(
            "lease_expired",
            f"Its lease ran out {say_distance(job.lock_expires_at, now)}: the worker has stopped "
            "renewing it. Any live worker gives the run up within seconds.",
        )
    if job.is_paused:
        yield Fact("paused_after_run", "It was paused during the run and will wait after it.")


def _paused(known: ExplainInputs) -> Fact:
    since = "" if known.job.paused_at is None else f" since {say_moment(known.job.paused_at)}"
    return Fact("paused", f"It is paused{since} and will not run until it is resumed.")


def _cancelled(known: ExplainInputs) -> Fact:
    when = _at(known.job.cancelled_at, known.now)
    return Fact("cancelled", f"It was cancelled{when}. Retry it to run it again.")


def _failed(known: ExplainInputs) -> Fact:
    job = known.job
    last = _last_ended(known.recent)
    reason = _error(job, last)
    when = _at(job.completed_at, known.now)
    if last is not None and last.error_code == "stale_timeout":
        return Fact(
            "needs_person",
            f"It failed{when}: its worker vanished, and the job does not allow another try by "
            "itself (allow_stale_reentry). Check what the run left behind, then retry it.",
        )
    attempts = 1 if last is None else last.retry_attempt + 1
    if attempts <= job.max_retries:
        text = f"It failed{when} with an error that must not be retried{reason}."
        return Fact("failed_for_good", f"{text} Retry it when the cause is gone.")
    stops = job.on_failure == OnFailure.STOP and recurring_of(job) is not None
    rule = " and on_failure is 'stop', so no further plan will run" if stops else ""
    return Fact(
        "stopped_after_failure" if stops else "retries_used_up",
        f"It failed{when}{reason}. {_tries(attempts)} used up{rule}. "
        "Retry it when the cause is gone.",
    )


def _waiting(known: ExplainInputs) -> Fact:
    job, now = known.job, known.now
    due = job.next_run_at or now
    when = f"{say_distance(due, now)}, at {say_moment(due)}"
    if job.current_retry_count:
        reason = _error(job, _last_ended(known.recent))
        return Fact(
            "waits_for_retry",
            f"It waits for retry {job.current_retry_count} of {job.max_retries}, {when}{reason}.",
        )
    window, plan = window_of(job), job.plan_time
    delay = timedelta(seconds=job.schedule_delay_seconds)
    if window is not None and plan is not None and not window.contains(min(plan + delay, due)):
        return Fact(
            "outside_window",
            f"Its plan of {say_moment(plan)} falls outside its window ({window}), which opens "
            f"{when}.",
        )
    return Fact("waits_for_its_time", f"It waits for its time: {when}.")


def _due(known: ExplainInputs) -> Fact:
    job, now = known.job, known.now
    since = f"It is due since {say_moment(job.next_run_at or now)}"
    if known.queue_paused_at is not None:
        paused = say_moment(known.queue_paused_at)
        text = f"{since}, but the queue {job.queue!r} is paused since {paused}. Resume the queue."
        return Fact("queue_paused", text)
    able = [w for w in known.live_workers if w.serves_queue(job) and w.knows_task(job)]
    taking = [worker for worker in able if not worker.is_draining]
    if not taking:
        return _unserved(known, since, drained=bool(able))
    if (kept_back := _kept_back(known, since)) is not None:
        return kept_back
    slots, used = sum(w.concurrency for w in taking), sum(w.running for w in taking)
    behind = f" {say_count(known.ahead, 'due job')} of its queue go first." if known.ahead else ""
    if used >= slots:
        text = f"{since}, but {_workers(taking)} busy ({used} of {slots} slots).{behind}"
        return Fact("workers_busy", text)
    if now - (job.next_run_at or now) <= _SOON:
        return Fact("due", f"{since}; a worker takes it any moment.{behind}")
    return Fact(
        "due_and_late",
        f"{since}, for {_for(job.next_run_at or now, now)}, and {_workers(taking)} free to take "
        f"it.{behind} If that lasts, look at the workers' logs and run `evenbeat doctor`.",
    )


def _kept_back(known: ExplainInputs, since: str) -> Fact | None:
    """What the limits of its concurrency key have against it, if anything."""
    limit = known.limit
    if limit is None:
        return None
    if limit.max_running is not None and limit.running >= limit.max_running:
        counts = f"{limit.running} of {limit.max_running} of the key {limit.key!r} are running"
        return Fact("concurrency_limit", f"{since}, but it waits: {counts}.")
    start = limit.next_start_at
    if start is not None and start > known.now:
        when = f"{say_distance(start, known.now)}, at {say_moment(start)}"
        rate = f"the rate limit of the key {limit.key!r} is {limit.rate_limit}"
        return Fact("rate_limit", f"{since}, but it waits: {rate}, and the next start is {when}.")
    return None


def _unserved(known: ExplainInputs, since: str, *, drained: bool) -> Fact:
    job = known.job
    if not known.live_workers:
        return Fact("no_worker", f"{since}, but no worker is alive. Start one: `evenbeat worker`.")
    if drained:
        text = f"{since}, but every worker that could run it is draining. Start another."
        return Fact("workers_draining", text)
    if not any(worker.serves_queue(job) for worker in known.live_workers):
        queues = sorted({q for worker in known.live_workers for q in worker.queues or ()})
        return Fact(
            "queue_not_served",
            f"{since}, but no live worker serves the queue {job.queue!r}; "
            f"served are: {', '.join(queues)}.",
        )
    return Fact(
        "task_not_known",
        f"{since}, but no live worker of the queue {job.queue!r} knows the task {job.task!r}. "
        "Is it misspelt, or missing from the workers' application?",
    )


# -- what else one should know --------------------------------------------------------------------


def _circumstances(known: ExplainInputs) -> Iterator[Fact]:
    job = known.job
    yield Fact("schedule", f"It runs {say_job_schedule(job, known.awaited)}.")
    later = job.status in ("pending", "scheduled") and (job.next_run_at or known.now) > known.now
    if known.queue_paused_at is not None and (later or job.status == "paused"):
        since = say_moment(known.queue_paused_at)
        yield Fact("queue_is_paused", f"Its queue {job.queue!r} is paused since {since}.")
    if job.aged:
        text = f"Its priority was raised by {job.aged} to {job.priority} while it waited."
        yield Fact("aged", text)
    if job.releases:
        times = say_count(job.releases, "time")
        yield Fact("handed_back", f"Its plan was handed back {times} by a worker that stopped.")
    yield from _past(known)
    yield from _skipped(known)


def _past(known: ExplainInputs) -> Iterator[Fact]:
    last = _last_ended(known.recent)
    if last is None:
        if known.job.run_count == 0:
            yield Fact("never_ran", "It has never run.")
        return
    ended = _at(last.completed_at, known.now)
    what = {"completed": "completed", "failed": "failed", "cancelled": "was cancelled"}
    reason = "" if last.status == "completed" else _because(last.error_message)
    took = "" if last.duration_ms is None else _took(last.duration_ms)
    text = f"Its last run, planned for {say_moment(last.plan_time)}, {what[last.status]}{ended}"
    yield Fact("last_run", f"{text}{took}{reason}.")
    lost = [run for run in known.recent if run.error_code in _LOST]
    if lost:
        newest = _at(lost[0].completed_at, known.now)
        times = say_count(len(lost), "time")
        yield Fact(
            "lease_lost",
            f"It lost its worker {times} in its last {say_count(len(known.recent), 'run')}, "
            f"last{newest}.",
        )


def _skipped(known: ExplainInputs) -> Iterator[Fact]:
    """Plans between two that ran, or between the last that ran and the stored one."""
    schedule = recurring_of(known.job)
    if schedule is None:
        return
    plans = sorted({run.plan_time for run in known.recent})
    upcoming = known.job.plan_time
    if plans and upcoming is not None and upcoming > plans[-1] and known.job.status != "running":
        plans.append(upcoming)
    for earlier, later in reversed(list(pairwise(plans))):
        between = schedule.count(earlier, later - timedelta(microseconds=1))
        if between > 0:
            yield Fact(
                "plans_skipped",
                f"{say_count(between, 'plan')} between {say_moment(earlier)} and "
                f"{say_moment(later)} did not run: nothing could run them then, and catch_up is "
                f"{known.job.catch_up!r}, or they were paused or rescheduled.",
            )
            return


# -- words ---------------------------------------------------------------------------------------


def _last_ended(recent: Sequence[Execution]) -> Execution | None:
    ended = [run for run in recent if run.completed_at is not None]
    return max(ended, key=lambda run: (run.completed_at or run.started_at, run.id), default=None)


def _error(job: Job, last: Execution | None) -> str:
    return _because(job.error_message or (last.error_message if last else None))


def _because(message: str | None) -> str:
    if not message:
        return ""
    line = " ".join(message.split())
    shown = line if len(line) <= _LONGEST_ERROR else line[: _LONGEST_ERROR - 1] + "…"
    return f", because: {shown.rstrip('.')}"


def _at(moment: datetime | None, now: datetime) -> str:
    return "" if moment is None else f" at {say_moment(moment)} ({say_distance(moment, now)})"


def _for(since: datetime, now: datetime) -> str:
    return say_span(max(now - since, timedelta(0)))


def _took(milliseconds: float) -> str:
    if milliseconds < 1000:
        return f" after {milliseconds:.0f} ms"
    return f" after {say_span(timedelta(milliseconds=milliseconds))}"


def _tries(attempts: int) -> str:
    return "Its only attempt is" if attempts == 1 else f"All {attempts} attempts are"


def _workers(workers: Sequence[WorkerView]) -> str:
    if len(workers) == 1:
        return f"the worker {workers[0].label}, which can run it, is"
    return f"all {len(workers)} workers that can run it are"


def _progress(progress: dict[str, object]) -> str:
    done, total, message = (progress.get(key) for key in ("done", "total", "message"))
    if done is None:
        return "progress"
    share = f"{done} of {total}" if total is not None else f"{done}"
    return f"{share}: {message}" if message else share
