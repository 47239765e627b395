"""Jobs and their history, as people read them."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from evenbeat.cli.client import Document
from evenbeat.cli.output import (
    both,
    cell,
    compact,
    exact,
    facts,
    heading,
    is_wide,
    relative,
    safe,
    short_ids,
    status,
    table,
)
from evenbeat.domain.duration import format_duration
from evenbeat.humanize import milliseconds

_INDENT = "  "


# -- lists ---------------------------------------------------------------------------------------


def job_table(jobs: Sequence[Document], now: datetime) -> RenderableType:
    """One line for each job."""
    wide = is_wide()
    more = ("queue…", "prio", "runs", "takes") if wide else ()
    made = table("id", "status", "job…", "schedule…", "next run", *more, right=("prio", "runs"))
    short = short_ids([job["id"] for job in jobs])
    for job in jobs:
        extra = [
            cell(job["queue"]),
            str(job["priority"]),
            f"{job['run_count']:,}",
            milliseconds(job["average_duration_ms"]),
        ]
        made.add_row(
            short[job["id"]],
            status(job["status"]),
            cell(label(job)),
            cell(job["schedule_text"]),
            "" if job["status"] == "running" else relative(job["next_run_at"], now),
            *(extra if wide else ()),
        )
    return made


def execution_table(
    executions: Sequence[Document], now: datetime, labels: Mapping[str, str] | None = None
) -> RenderableType:
    """One line for each execution; `labels` names the jobs where they differ."""
    first = ("job…",) if labels is not None else ()
    made = table(
        "execution", *first, "status", "started", "took", "try", "outcome…", right=("try",)
    )
    short = short_ids([one["id"] for one in executions])
    for one in executions:
        named = [cell(labels.get(one["job_id"], one["job_id"][:13]))] if labels is not None else []
        made.add_row(
            short[one["id"]],
            *named,
            status(one["status"]),
            relative(one["started_at"], now),
            milliseconds(one["duration_ms"]),
            str(one["retry_attempt"] + 1),
            cell(outcome(one)),
        )
    return made


def label(job: Document) -> str:
    """What people call the job."""
    scope = job["scope"]
    where = "" if scope["id"] == "global" else f" [{scope['kind']}/{scope['id']}]"
    return f"{job['name'] or job['task']}{where}"


def outcome(one: Document) -> str:
    """How an execution stands, in a few words."""
    if one["status"] == "running":
        return progress_text(one["progress"])
    if one["error_message"] or one["error_code"]:
        return ": ".join(filter(None, (one["error_code"], one["error_message"])))
    return "" if one["result"] is None else compact(one["result"])


def progress_text(progress: Mapping[str, Any] | None) -> str:
    """How far a run has come, in words."""
    if not progress:
        return ""
    done, total = progress.get("done"), progress.get("total")
    far = f"{done:g} of {total:g}" if total else f"{done:g}" if done is not None else ""
    return " ".join(filter(None, (far, progress.get("message"))))


# -- one job -------------------------------------------------------------------------------------


def job_facts(job: Document, now: datetime) -> RenderableType:
    """A job's definition and state; what is as it always is, is left out."""
    title = Text.assemble((safe(label(job)), "bold"), "  ", status(job["status"]))
    held = {
        "id": job["id"],
        "description": job["description"],
        "task": job["task"] if job["name"] else None,
        "payload": compact(job["payload"]) if job["payload"] else None,
        "schedule": _schedule(job),
        "next run": both(job["next_run_at"], now) if job["status"] != "running" else None,
        "running since": both(job["started_at"], now) if job["status"] == "running" else None,
        "paused": both(job["paused_at"], now) if job["is_paused"] else None,
        "cancelled": both(job["cancelled_at"], now),
        "finished": both(job["completed_at"], now),
        "error": job["error_message"],
        "queue": f"{job['queue']}, priority {job['priority']}",
        "window": job["window"],
        "placement": job["placement"] if job["schedule_kind"] == "interval" else None,
        "retries": _retries(job),
        "timeout": _seconds(job["timeout"]),
        "catch-up": job["catch_up"] if job["schedule_enabled"] else None,
        "limits": _limits(job),
        "runs": _runs(job),
        "dedup key": job["dedup_key"],
        "tags": ", ".join(job["tags"]),
        "parent": job["parent_id"],
        "created": both(job["created_at"], now)
        + (f" by {by}" if (by := job["created_by"]) else ""),
    }
    return Group(title, facts(held))


def _schedule(job: Document) -> str:
    written = job["schedule"]
    zone = "" if job["timezone"] == "UTC" or not job["cron_expression"] else f" {job['timezone']}"
    return f"{job['schedule_text']}" + (f"  ({written}{zone})" if written else "")


def _retries(job: Document) -> str:
    used = f", {job['current_retry_count']} used" if job["current_retry_count"] else ""
    return f"{job['max_retries']}{used}"


def _limits(job: Document) -> str | None:
    if job["concurrency_key"] is None:
        return None
    most, rate = job["concurrency_limit"], job["rate_limit"]
    rules = [f"{most:,} at once"] if most is not None else []
    return f"{job['concurrency_key']}: {', '.join(rules + ([rate] if rate else []))}"


def _runs(job: Document) -> str:
    takes = milliseconds(job["average_duration_ms"])
    return f"{job['run_count']:,}" + (f", {takes} on average" if takes else "")


def _seconds(seconds: float | None) -> str | None:
    return None if seconds is None else format_duration(timedelta(seconds=seconds))


def plans_view(plans: Sequence[str], now: datetime) -> RenderableType:
    """The moments to come."""
    lines = [Text(f"{_INDENT}{both(plan, now)}") for plan in plans]
    return Group(Text(), heading("Next plans"), *lines)


def section(title: str, *parts: RenderableType) -> RenderableType:
    """A part of a longer view."""
    return Group(Text(), heading(title), *parts)


# -- one execution -------------------------------------------------------------------------------


def execution_facts(one: Document, now: datetime) -> RenderableType:
    """An execution with everything that is known of it."""
    title = Text.assemble((f"Execution {one['id']}", "bold"), "  ", status(one["status"]))
    held = {
        "job": one["job_id"],
        "run": f"{one['execution_number']}, try {one['retry_attempt'] + 1}",
        "plan": exact(one["plan_time"]),
        "started": both(one["started_at"], now),
        "waited": milliseconds(one["wait_ms"]),
        "took": milliseconds(one["duration_ms"]),
        "worker": one["worker_id"],
        "progress": progress_text(one["progress"]),
        "items": _items(one),
        "rows": one["rows_affected"],
        "cpu": milliseconds(one["cpu_time_ms"]),
        "memory": None if one["memory_peak_mb"] is None else f"{one['memory_peak_mb']:g} MB",
        "result": None if one["result"] is None else compact(one["result"]),
        "error": ": ".join(filter(None, (one["error_code"], one["error_message"]))),
    }
    parts: list[RenderableType] = [title, facts(held)]
    if one["stack_trace"]:
        parts += [Text(), Text(safe(one["stack_trace"].rstrip()))]
    return Group(*parts)


def _items(one: Document) -> str | None:
    crawled, indexed = one["items_crawled"], one["items_indexed"]
    return f"{crawled:,} crawled, {indexed:,} indexed" if crawled or indexed else None
