"""Jobs, executions, queues and workers, as people read them."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from evenbeat.cli.client import Document
from evenbeat.cli.output import (
    Column,
    both,
    compact,
    exact,
    facts,
    heading,
    is_wide,
    relative,
    safe,
    short,
    status,
)
from evenbeat.domain.duration import format_duration
from evenbeat.domain.runner_load import PLACES
from evenbeat.domain.schedule import RECURRING_KINDS
from evenbeat.domain.traces import decisive_frame, read_trace
from evenbeat.humanize import count, milliseconds


def label(job: Document) -> str:
    """What people call the job: its name or task, and its scope if it has one."""
    scope = job["scope"]
    where = "" if scope["id"] == "global" else f" [{scope['kind']}/{scope['id']}]"
    return f"{job['name'] or job['task']}{where}"


def outcome(execution: Document) -> str:
    """How an execution stands, in a few words."""
    if execution["status"] == "running":
        return progress_text(execution["progress"])
    if execution["error_message"] or execution["error_code"]:
        return _error(execution)
    return "" if execution["result"] is None else compact(execution["result"])


def progress_text(progress: Mapping[str, Any] | None) -> str:
    """How far a run has come, in words."""
    if not progress:
        return ""
    done, total = progress.get("done"), progress.get("total")
    far = f"{done:g} of {total:g}" if total else f"{done:g}" if done is not None else ""
    return " ".join(filter(None, (far, progress.get("message"))))


def _error(execution: Document) -> str:
    return ": ".join(filter(None, (execution["error_code"], execution["error_message"])))


def job_columns(jobs: Sequence[Document], now: datetime) -> dict[str, Column]:
    columns: dict[str, Column] = {
        "id": short(jobs),
        "status": lambda job: status(job["status"]),
        "job…": label,
        "schedule…": "schedule_text",
        "next run": lambda job: (
            "" if job["status"] == "running" else relative(job["next_run_at"], now)
        ),
    }
    if is_wide():
        columns |= {"queue…": "queue", "prio": "priority", "runs": "run_count"}
        columns["takes"] = lambda job: milliseconds(job["average_duration_ms"])
    return columns


def execution_columns(
    executions: Sequence[Document], now: datetime, labels: Mapping[str, str] | None = None
) -> dict[str, Column]:
    """One line for each execution; `labels` names the jobs where they differ."""
    columns: dict[str, Column] = {"execution": short(executions)}
    if labels is not None:
        columns["job…"] = lambda one: labels.get(one["job_id"], one["job_id"][:13])
    return columns | {
        "status": lambda one: status(one["status"]),
        "started": lambda one: relative(one["started_at"], now),
        "took": lambda one: milliseconds(one["duration_ms"]),
        "try": lambda one: one["retry_attempt"] + 1,
        "outcome…": outcome,
    }


def step_columns(now: datetime) -> dict[str, Column]:
    def result(one: Document) -> str:
        if one["completed_at"] is None:
            return f"until {both(one['until'], now)}"
        return "not in time" if one["timed_out"] else compact(one["result"])

    return {
        "step…": lambda one: (
            one["name"] if one["kind"] == "step" else f"{one['kind']} {one['name']}"
        ),
        "when": lambda one: relative(one["started_at"] or one["completed_at"], now),
        "took": lambda one: milliseconds(one["duration_ms"]),
        "run": lambda one: one["execution_number"] or "",
        "result…": result,
    }


def queue_columns(now: datetime) -> dict[str, Column]:
    return {
        "queue…": "name",
        "due": "due",
        "running": "running",
        "oldest due": lambda queue: relative(queue["oldest_due"], now),
        "paused": lambda queue: relative(queue["paused_at"], now),
    }


def _slots(worker: Document) -> str:
    """The runners that are at work, each with what it has."""
    parts = []
    for one in worker["runners"]:
        if one["running"]:
            held = f" ({len(one['held'])} over, still running)" if one["held"] else ""
            parts.append(f"{one['running']}/{one['slots']} {PLACES[one['runner']]}{held}")
    return ", ".join(parts)


def worker_columns(workers: Sequence[Document], now: datetime) -> dict[str, Column]:
    def state(one: Document) -> Text:
        alive = "draining" if one["status"] == "draining" else "alive"
        return status(alive if one["alive"] else "silent")

    def all_or(kind: str) -> Column:
        return lambda one: "all" if one[kind] is None else ",".join(one[kind])

    columns: dict[str, Column] = {
        "id": short(workers),
        "status": state,
        "host…": lambda one: one["host"].split("/")[0],
        "pid": lambda one: str(one["pid"]),
        "running": lambda one: f"{one['running']}/{one['concurrency']}",
        "slots…": _slots,
        "queues…": all_or("queues"),
        "heartbeat": lambda one: relative(one["heartbeat_at"], now),
    }
    return columns | ({"tasks…": all_or("tasks"), "version": "version"} if is_wide() else {})


def job_facts(job: Document, now: datetime) -> RenderableType:
    """A job's definition and state; what is as it always is, is left out."""
    is_running = job["status"] == "running"
    zone = f" {job['timezone']}" if job["cron_expression"] and job["timezone"] != "UTC" else ""
    written = f"  ({job['schedule']}{zone})" if job["schedule"] else ""
    used = f", {job['current_retry_count']} used" if job["current_retry_count"] else ""
    limits = None
    if job["concurrency_key"] is not None:
        most = job["concurrency_limit"]
        rules = [None if most is None else f"{most:,} at once", job["rate_limit"]]
        limits = f"{job['concurrency_key']}: {', '.join(filter(None, rules))}"
    turns = job["fair_key"]
    if turns is not None and job["fair_weight"] > 1:
        turns += f": {job['fair_weight']} jobs a turn"
    average = milliseconds(job["average_duration_ms"])
    timeout = job["timeout"]
    created_by = f" by {job['created_by']}" if job["created_by"] else ""
    return Group(
        Text.assemble((safe(label(job)), "bold"), "  ", status(job["status"])),
        facts(
            {
                "id": job["id"],
                "description": job["description"],
                "task": job["task"] if job["name"] else None,
                "payload": compact(job["payload"]) if job["payload"] else None,
                "schedule": f"{job['schedule_text']}{written}",
                "next run": None if is_running else both(job["next_run_at"], now),
                "running since": both(job["started_at"], now) if is_running else None,
                "paused": both(job["paused_at"], now) if job["is_paused"] else None,
                "cancelled": both(job["cancelled_at"], now),
                "finished": both(job["completed_at"], now),
                "error": job["error_message"],
                "queue": f"{job['queue']}, priority {job['priority']}",
                "window": job["window"],
                "placement": job["placement"] if job["schedule_kind"] == "interval" else None,
                "retries": f"{job['max_retries']}{used}",
                "timeout": timeout and format_duration(timedelta(seconds=timeout)),
                "catch-up": job["catch_up"] if job["schedule_kind"] in RECURRING_KINDS else None,
                "limits": limits,
                "fair turns": turns,
                "runs": f"{job['run_count']:,}" + (f", {average} on average" if average else ""),
                "dedup key": job["dedup_key"],
                "tags": ", ".join(job["tags"]),
                "parent": job["parent_id"],
                "created": both(job["created_at"], now) + created_by,
            }
        ),
    )


def section(title: str, *parts: RenderableType) -> RenderableType:
    return Group(Text(), heading(title), *parts)


def execution_facts(one: Document, now: datetime) -> RenderableType:
    """An execution with everything that is known about it."""
    crawled, indexed = one["items_crawled"], one["items_indexed"]
    memory = one["memory_peak_mb"]
    parts: list[RenderableType] = [
        Text.assemble((f"Execution {one['id']}", "bold"), "  ", status(one["status"])),
        facts(
            {
                "job": one["job_id"],
                "run": f"{one['execution_number']}, try {one['retry_attempt'] + 1}",
                "plan": exact(one["plan_time"]),
                "started": both(one["started_at"], now),
                "waited": milliseconds(one["wait_ms"]),
                "took": milliseconds(one["duration_ms"]),
                "worker": one["worker_id"],
                "progress": progress_text(one["progress"]),
                "items": f"{crawled:,} crawled, {indexed:,} indexed" if crawled or indexed else "",
                "rows": one["rows_affected"],
                "figures": None if one["figures"] is None else compact(one["figures"]),
                "cpu": milliseconds(one["cpu_time_ms"]),
                "memory": None if memory is None else f"{memory:g} MB",
                "result": None if one["result"] is None else compact(one["result"]),
                "error": _error(one),
            }
        ),
    ]
    if one["stack_trace"]:
        trace = read_trace(one["stack_trace"].rstrip())
        if (frame := decisive_frame(trace)) is not None:
            place = f"{frame.path}:{frame.line}, in {frame.function}: {frame.code}"
            parts += [Text(), Text(safe(place), style="bold")]
        dim = {True: "bold", False: "dim"}
        lines = [Text(safe(p.text), style=dim[p.frame.is_own] if p.frame else "") for p in trace]
        parts += [Text(), *lines]
    return Group(*parts)


_LEVEL_STYLES = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "red", "DEBUG": "dim"}


def log_lines(lines: Sequence[Document], after: int = 0) -> Iterator[Text]:
    """Lines of a run's log; where some were left out, how many. `after` is the number of the line
    before these."""
    for line in lines:
        if gap := line["number"] - after - 1:
            yield left_out(gap)
        after, level = line["number"], line["level"]
        at = datetime.fromisoformat(line["at"]).astimezone(UTC)
        text = safe(line["text"]).replace("\n", "\n    ")
        head = f"{at:%H:%M:%S}.{at.microsecond // 1000:03d} {level:8}"
        yield Text.assemble((head, _LEVEL_STYLES.get(level, "")), " ", text)


def left_out(lines: int) -> Text:
    return Text(f"… {count(lines, 'line')} left out …", style="dim")
