"""Why a job did or did not run: facts in sentences, for the person who is woken at 3 a.m."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from evenbeat.domain.dependencies import Dependency
from evenbeat.domain.execution import Execution
from evenbeat.domain.job import JobRecord, OnFailure, recurring_of, window_of
from evenbeat.domain.runner_load import PLACES, SETTINGS
from evenbeat.domain.schedule import Once, schedule_from_row
from evenbeat.domain.states import FINISHED
from evenbeat.domain.step import StepKind
from evenbeat.errors import InvalidSchedule
from evenbeat.humanize import count, duration, listing, milliseconds, relative, shorten, timestamp
from evenbeat.store.reads import Circumstances
from evenbeat.store.rows import REFUSED, SNOOZED, WAITING
from evenbeat.store.upkeep import WorkerRecord

PLANS_SHOWN = 5
_JOBS_NAMED = 3
_LONGEST_ERROR = 300
_LOST = ("lease_expired", "stale_timeout")
_SOON = timedelta(seconds=10)
_AFTER = {"success": "completed", "failure": "failed", "any": "ended"}
_NEEDED = {"success": "it must succeed", "failure": "it must fail", "any": "any outcome is fine"}


class Fact(NamedTuple):
    """One reason or circumstance: a code for programs, a sentence for people."""

    code: str
    text: str


class Explanation(NamedTuple):
    """The first fact as the summary, all facts, and the plans to come."""

    summary: str
    facts: list[Fact]
    next_plans: list[datetime]


def explain(known: Circumstances) -> Explanation:
    facts = [*_state(known), *_background(known)]
    return Explanation(facts[0].text, facts, next_plans(known.job, known.now))


def next_plans(job: JobRecord, now: datetime, number: int = PLANS_SHOWN) -> list[datetime]:
    """The next plans of a job, its stored one first."""
    if job.status in FINISHED:
        return []
    schedule = recurring_of(job)
    stored = [job.plan_time] if job.plan_time is not None and job.status != "running" else []
    if schedule is None:
        return stored
    try:
        after = max(now, job.plan_time) if job.plan_time is not None else now
        return [*stored, *schedule.preview(after, number - len(stored))]
    except InvalidSchedule:
        return stored


def describe_schedule(job: JobRecord, awaited: Sequence[Dependency] = ()) -> str:
    """When a job runs, with its delay and its window; after which others, if these are given."""
    schedule = schedule_from_row(job)
    text = describe_dependencies(awaited) if awaited else schedule.describe()
    if job.parent_id is not None and job.plan_time is not None:
        text = f"once, for the plan of {timestamp(job.plan_time)}"
    elif isinstance(schedule, Once) and job.next_run_at is not None:
        text = f"once at {timestamp(job.next_run_at)}"
    elif isinstance(schedule, Once) and job.status in FINISHED:
        text = "once"
    if job.schedule_delay_seconds:
        text += f", {duration(job.schedule_delay_seconds)} later"
    if job.execution_window is not None:
        text += f", only {job.execution_window}"
    return text


def describe_dependencies(awaited: Sequence[Dependency]) -> str:
    """ "after load-data has completed", "after a and b have ended"."""
    by_condition: dict[str, list[str]] = {}
    for one in awaited:
        by_condition.setdefault(one.wanted, []).append(one.label)
    parts = [
        f"{listing(names)} {'has' if len(names) == 1 else 'have'} {_AFTER[condition]}"
        for condition, names in by_condition.items()
    ]
    return f"after {' and '.join(parts) or 'other jobs'}"


def _state(known: Circumstances) -> Iterator[Fact]:
    job = known.job
    match job.status:
        case "running":
            yield from _running(known)
        case "paused":
            paused = f"has been paused since {timestamp(job.paused_at)}" if job.paused_at else ""
            text = f"It {paused or 'is paused'} and will not run until it is resumed."
            yield Fact("paused", text)
        case "cancelled":
            when = _at(job.cancelled_at, known.now)
            yield Fact("cancelled", f"It was cancelled{when}. Retry it to run it again.")
            yield from _held(known)
        case "failed":
            yield _failed(known)
            yield from _held(known)
        case "completed":
            when = _at(job.completed_at, known.now)
            yield Fact("completed", f"It completed{when} and has nothing left to do.")
        case _ if job.next_run_at is None and job.schedule_kind == "after":
            yield Fact("waits_for_jobs", describe_missing(known.awaited))
        case _ if job.next_run_at is not None and job.next_run_at > known.now:
            yield _waiting(known, job.next_run_at)
        case _:
            yield _due(known, job.next_run_at or known.now)


def _running(known: Circumstances) -> Iterator[Fact]:
    job, now = known.job, known.now
    worker = next((w.label for w in known.live_workers if w.id == job.locked_by), None)
    where = worker or f"worker {job.locked_by}, whose heartbeat has stopped,"
    since = job.started_at or job.lock_acquired_at or now
    length = duration(max(now - since, timedelta(0)))
    text = f"It has been running on {where} for {length}, since {timestamp(since)}."
    yield Fact("running", text)
    progress = next((e.progress for e in known.recent if e.id == job.lock_token), None)
    if progress:
        done, total, message = (progress.get(key) for key in ("done", "total", "message"))
        text = "progress" if done is None else f"{done}" if total is None else f"{done} of {total}"
        if done is not None and message:
            text += f": {message}"
        yield Fact("progress", f"It reported {text}.")
    if job.lock_expires_at is not None and job.lock_expires_at <= now:
        yield Fact(
            "lease_expired",
            f"Its lease expired {relative(job.lock_expires_at, now)}: the worker has stopped "
            "renewing it. Any live worker will recover the run within seconds.",
        )
    if job.is_paused:
        text = "It was paused during the run and will not start another one until it is resumed."
        yield Fact("paused_after_run", text)


def _held(known: Circumstances) -> Iterator[Fact]:
    """Runs of it that are over, and go on in a thread."""
    for worker in known.live_workers:
        for run in (run for load in worker.loads for run in load.held):
            if run.job_id == known.job.id:
                yield Fact(
                    "still_running",
                    f"A run of it was {run.text} on {worker.label}, since {timestamp(run.since)}. "
                    "A thread cannot be ended from outside: the function holds it until it looks "
                    "at ctx.cancelled or returns, or the worker is restarted.",
                )


def _failed(known: Circumstances) -> Fact:
    job, last = known.job, _last_ended(known.recent)
    failed = f"It failed{_at(job.completed_at, known.now)}"
    if last is not None and last.error_code == "stale_timeout":
        return Fact(
            "needs_person",
            f"{failed}: its worker vanished, and the job may not be retried automatically "
            "(allow_stale_reentry). Check what the run left behind, then retry it.",
        )
    reason = _because(job.error_message or (last.error_message if last else None))
    attempts = 1 if last is None else last.retry_attempt + 1
    if attempts <= job.max_retries:
        text = f"{failed} with an error that must not be retried{reason}."
        return Fact("failed_for_good", f"{text} Retry it when the cause is gone.")
    used = "Its only attempt is" if attempts == 1 else f"All {attempts} attempts are"
    stops = job.on_failure == OnFailure.STOP and recurring_of(job) is not None
    rule = " and on_failure is 'stop', so no further plan will run" if stops else ""
    return Fact(
        "stopped_after_failure" if stops else "retries_used_up",
        f"{failed}{reason}. {used} used up{rule}. Retry it when the cause is gone.",
    )


def _waiting(  # noqa: PLR0911 - each reason is its own
    known: Circumstances, due: datetime
) -> Fact:
    job, plan = known.job, known.job.plan_time
    when = f"{relative(due, known.now)}, at {timestamp(due)}"
    last = _last_ended(known.recent)
    if last is not None and last.error_code == REFUSED:
        return Fact(
            "payload_refused",
            f"A worker could not use its payload{_because(last.error_message)}. It is left to one "
            f"with another version of the task, {when}.",
        )
    if (wait := known.put_off) is not None and wait.started_at is not None:
        since = f"since {timestamp(wait.started_at)}"
        if wait.kind == StepKind.EVENT:
            text = f"It has waited for the event {wait.name!r} {since}, and gives up {when}."
            return Fact("waits_for_event", text)
        return Fact("asleep", f"It has slept {since}, and goes on {when}.")
    if last is not None and last.error_code == SNOOZED:
        return Fact("snoozed", f"Its handler put it off{_because(last.error_message)}; {when}.")
    if job.current_retry_count:
        reason = _because(job.error_message or (last.error_message if last else None))
        retry = f"retry {job.current_retry_count} of {job.max_retries}"
        return Fact("waits_for_retry", f"It is waiting for {retry}, {when}{reason}.")
    window, delay = window_of(job), timedelta(seconds=job.schedule_delay_seconds)
    if window is not None and plan is not None and not window.contains(min(plan + delay, due)):
        return Fact(
            "outside_window",
            f"Its plan of {timestamp(plan)} falls outside its window ({window}). It starts {when}.",
        )
    return Fact("waits_for_its_time", f"It is waiting for its next run, {when}.")


def _due(known: Circumstances, due: datetime) -> Fact:
    """What keeps a due job from starting, the most certain reason first."""
    job = known.job
    since = f"It has been due since {timestamp(due)}"
    if (paused := _paused(known, since)) is not None:
        return paused
    able = [w for w in known.live_workers if w.serves_queue(job) and w.knows_task(job)]
    taking = [worker for worker in able if worker.status != "draining"]
    if not taking:
        return _unserved(known, since, drained=bool(able))
    if (held_back := _held_back(known, since)) is not None:
        return held_back
    behind = _behind(known)
    workers = f"all {len(taking)} workers that can run it are"
    if len(taking) == 1:
        workers = f"the worker {taking[0].label}, which can run it, is"
    if all(worker.is_busy(known.runner) for worker in taking):
        return Fact("workers_busy", f"{since}, but {workers} busy {_load(known, taking)}.{behind}")
    if known.now - due <= _SOON:
        return Fact("due", f"{since}; a worker will pick it up any moment.{behind}")
    return Fact(
        "due_and_late",
        f"{since}, for {duration(known.now - due)}, and {workers} free to take it.{behind} "
        "If this lasts, check the workers' logs and run `evenbeat doctor`.",
    )


def _behind(known: Circumstances) -> str:
    """What goes first, as a sentence with a space before it."""
    key, others = known.job.fair_key, known.fair_keys
    whose = "its queue" if key is None else f"its fair key {key!r}"
    text = f" {count(known.ahead, 'due job')} of {whose} go first." if known.ahead else ""
    if key is not None and others:
        text += f" {count(others, 'other key')} {'takes' if others == 1 else 'take'} turns with it."
    return text


def _paused(known: Circumstances, since: str) -> Fact | None:
    """What is paused: everything, or its queue."""
    if known.fleet_pause is not None:
        text = f"{since}. {known.fleet_pause.text} `evenbeat resume` ends that."
        return Fact("everything_paused", text)
    if known.queue_paused_at is not None:
        at = timestamp(known.queue_paused_at)
        text = f"{since}, but the queue {known.job.queue!r} has been paused since {at}."
        return Fact("queue_paused", f"{text} Resume the queue.")
    return None


def _load(known: Circumstances, taking: Sequence[WorkerRecord]) -> str:
    """How full the workers are: the runner of the job's task, or all slots together."""
    own = [one for w in taking for one in w.loads if one.runner == known.runner and one.is_full]
    if len(own) < len(taking) or known.runner is None:
        slots, used = sum(w.concurrency for w in taking), sum(w.running for w in taking)
        return f"({used} of {slots} slots)"
    slots, used = sum(one.slots for one in own), sum(one.running for one in own)
    setting = f"EVENBEAT_{SETTINGS[known.runner]} sets how many each may have"
    text = f"({used} of {slots} {PLACES[known.runner]}; {setting})"
    if held := sum(len(one.held) for one in own):
        runs = "is held by a run that is" if held == 1 else "are held by runs that are"
        text += f"; {held} {runs} over, but whose function goes on"
    return text


def _held_back(known: Circumstances, since: str) -> Fact | None:
    """What the limits of its concurrency key have against it, if anything."""
    limit = known.limit
    if limit and limit.max_running is not None and limit.running >= limit.max_running:
        text = f"{limit.running} of {limit.max_running} of the key {limit.key!r} are running"
        return Fact("concurrency_limit", f"{since}, but it is waiting: {text}.")
    if limit and limit.next_start_at is not None and limit.next_start_at > known.now:
        rate = f"the rate limit of the key {limit.key!r} is {limit.rate_limit}"
        start = f"{relative(limit.next_start_at, known.now)}, at {timestamp(limit.next_start_at)}"
        text = f"{since}, but it is waiting: {rate}, and the next start is {start}."
        return Fact("rate_limit", text)
    return None


def _unserved(known: Circumstances, since: str, *, drained: bool) -> Fact:
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


def describe_missing(awaited: Sequence[Dependency]) -> str:
    """Why a job that runs after others is still waiting, and what would help."""
    missing = [one for one in awaited if not one.satisfied]
    if not awaited:
        return "It waits for jobs that no longer exist. Give it others, or run it by hand."
    if not missing:
        return "Every job that it waits for has ended; it starts again when they end again."
    parts = []
    for one in sorted(missing, key=lambda one: one.is_alive)[:_JOBS_NAMED]:
        needed = _NEEDED[one.wanted]
        if one.status is None:
            help_ = "give it another job to wait for, or run it by hand"
            parts.append(f"{one.label}, which was deleted: {help_}")
        elif one.is_alive:
            last = "" if one.last_end is None else f" and last ended {one.last_end}"
            parts.append(f"{one.label}, which is {one.status}{last} ({needed})")
        else:
            help_ = f"retry {one.label}, or run this job by hand"
            parts.append(f"{one.label}, which ended {one.status} ({needed}): {help_}")
    more = len(missing) - _JOBS_NAMED
    rest = f"; and {more} more" if more > 0 else ""
    return f"It is waiting for {'; '.join(parts)}{rest}."


def _background(known: Circumstances) -> Iterator[Fact]:
    job, schedule = known.job, describe_schedule(known.job, known.awaited)
    over = job.status in FINISHED
    yield Fact("schedule", f"Its schedule: {schedule}." if over else f"It runs {schedule}.")
    if known.fleet_pause is not None and job.status in ("scheduled", "paused"):
        yield Fact("everything_is_paused", known.fleet_pause.text)
    later = job.status in ("pending", "scheduled") and (job.next_run_at or known.now) > known.now
    if known.queue_paused_at is not None and (later or job.status == "paused"):
        since = timestamp(known.queue_paused_at)
        text = f"Its queue {job.queue!r} has been paused since {since}."
        yield Fact("queue_is_paused", text)
    if job.aging_bonus:
        text = f"Its priority was raised by {job.aging_bonus} to {job.priority} while it waited."
        yield Fact("aged", text)
    last = _last_ended(known.recent)
    if job.release_count:
        times = count(job.release_count, "time")
        code = None if last is None else last.error_code
        who = "Workers" if code == REFUSED else "A worker that was stopping"
        who = "Its handler" if code in (*WAITING, SNOOZED) else who
        yield Fact("handed_back", f"{who} handed it back, {times} so far.")
    if last is not None:
        yield from _last_run(known, last)
    elif job.run_count == 0:
        yield Fact("never_ran", "It has never run.")
    yield from _skipped(known)


def _last_run(known: Circumstances, last: Execution) -> Iterator[Fact]:
    ended = "was cancelled" if last.status == "cancelled" else last.status
    ended = "was put off" if last.error_code in (*WAITING, SNOOZED) else ended
    when = _at(last.completed_at, known.now)
    after = "" if last.duration_ms is None else f" after {milliseconds(last.duration_ms)}"
    reason = "" if last.status == "completed" else _because(last.error_message)
    text = f"Its last run, planned for {timestamp(last.plan_time)}, {ended}{when}{after}{reason}."
    yield Fact("last_run", text)
    lost = [run for run in known.recent if run.error_code in _LOST]
    if lost:
        runs, newest = count(len(known.recent), "run"), _at(lost[0].completed_at, known.now)
        text = f"It lost its worker {count(len(lost), 'time')} in its last {runs}, last{newest}."
        yield Fact("lease_lost", text)


def _skipped(known: Circumstances) -> Iterator[Fact]:
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
                f"{count(between, 'plan')} between {timestamp(earlier)} and {timestamp(later)} did "
                f"not run: either nothing could run them and catch_up is {known.job.catch_up!r}, "
                "or the job was paused or rescheduled.",
            )
            return


def _last_ended(recent: Sequence[Execution]) -> Execution | None:
    ended = [run for run in recent if run.completed_at is not None]
    return max(ended, key=lambda run: (run.completed_at or run.started_at, run.id), default=None)


def _because(message: str | None) -> str:
    if not message:
        return ""
    line = shorten(" ".join(message.split()), _LONGEST_ERROR)
    return f", because: {line.rstrip('.')}"


def _at(moment: datetime | None, now: datetime) -> str:
    return "" if moment is None else f" at {timestamp(moment)} ({relative(moment, now)})"
