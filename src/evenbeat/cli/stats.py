"""`evenbeat stats|top|distribution|rebalance`: the scheduler in figures, how even the schedule is,
and making it so."""

import os
import select
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated
from uuid import UUID

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from evenbeat.cli.client import ApiError, Client, Document, stated
from evenbeat.cli.output import (
    Column,
    both,
    confirmed,
    console,
    facts,
    heading,
    moment,
    print_json,
    safe,
    short,
    show,
    status,
    table,
)
from evenbeat.cli.session import ApiSession, YesOption, api_command, flag, option
from evenbeat.cli.views import label, progress_text, queue_columns, worker_columns
from evenbeat.domain.duration import parse_duration
from evenbeat.errors import InvalidInput
from evenbeat.humanize import count, duration, milliseconds

_PATH = "/api/v1/scheduler"
_MOST_SHOWN = 20


@api_command
def stats(session: ApiSession) -> None:
    """Show how many jobs are in which state, and how their executions went."""
    metrics = session.client.get(f"{_PATH}/metrics")
    runs, now = metrics["executions"], session.client.now()
    rate = runs["success_rate"]
    figures = {
        "total": f"{runs['total']:,}",
        "succeeded": "" if rate is None else f"{100 * rate:.1f} %",
        "take": milliseconds(runs["average_duration_ms"]),
        "stale locks cleared": f"{metrics['stale_locks_cleared']:,}",
        "last check": both(metrics["last_check_at"], now) or "no worker",
        "counted": both(metrics["last_metrics_update"], now),
    }
    line = _jobs_line(metrics["jobs"])
    session.show(metrics, line, Text(), heading("Executions"), facts(figures))


def _jobs_line(jobs: dict[str, int]) -> Text:
    """How many jobs are in each state, on one line."""
    line = Text.assemble((count(sum(jobs.values()), "job"), "bold"))
    for state, number in jobs.items():
        if number:
            line.append("   ").append_text(status(state)).append(f" {number:,}")
    return line


@api_command
def top(
    session: ApiSession,
    every: Annotated[str, option("DURATION", "How often to refresh.")] = "2s",
    once: Annotated[bool, flag("--once", "Print once and end, as without a terminal.")] = False,
) -> int:
    """Watch running jobs with their progress, queues, workers and throughput. `q` or Ctrl-C
    ends it."""
    client = session.client
    pause = max(0.2, parse_duration(every, field="every").total_seconds())
    snapshot = _read(client)
    if session.as_json:
        at = client.now().isoformat(timespec="seconds")
        print_json(snapshot | {"at": at})
        return 0
    out = console()
    first = _view(snapshot, None, client)
    if once or not out.is_terminal:
        show(first)
        return 0
    live = Live(first, console=out, screen=True, auto_refresh=False)
    with _wait_for_q() as is_over, live:
        try:
            while not is_over(pause):
                before, footer = snapshot, Text("\nq ends this", style="dim")
                try:
                    snapshot = _read(client)
                except ApiError as error:  # a service that is away may come back
                    if error.exit_code != 3:
                        raise
                    footer = Text(f"\n{error}", style="red")
                live.update(Group(_view(snapshot, before, client), footer), refresh=True)
        except KeyboardInterrupt:
            pass
    return 0


def _read(client: Client) -> Document:
    """What there is to see at one moment."""
    running = client.get("/api/v1/executions", status="running", limit=_MOST_SHOWN)["executions"]
    jobs = client.get("/api/v1/jobs", status="running", limit=1000)["jobs"] if running else []
    return {
        "at": time.monotonic(),
        "metrics": client.get(f"{_PATH}/metrics"),
        "queues": client.get("/api/v1/queues")["queues"],
        "workers": client.get("/api/v1/workers")["workers"],
        "running": running,
        "jobs": jobs,
    }


def _view(snapshot: Document, before: Document | None, client: Client) -> RenderableType:
    metrics, workers, executions = (snapshot[part] for part in ("metrics", "workers", "running"))
    labels = {job["id"]: label(job) for job in snapshot["jobs"]}
    now, runs, jobs = client.now(), metrics["executions"], metrics["jobs"]
    pace = [count(runs["total"], "execution")]
    if runs["success_rate"] is not None:
        pace.append(f"{100 * runs['success_rate']:.1f} % succeeded")
    if before is not None:
        ended = runs["total"] - before["metrics"]["executions"]["total"]
        rate = ended / max(0.001, snapshot["at"] - before["at"])
        pace.append(f"{max(0.0, rate):,.1f} a second")

    def took(one: Document) -> str:
        started = moment(one["started_at"]) or now
        return duration(max(0.0, (now - started).total_seconds()))

    def bar(one: Document) -> ProgressBar | None:
        progress = one["progress"] or {}
        if not (total := progress.get("total")):
            return None
        return ProgressBar(total=total, completed=progress.get("done") or 0, width=20)

    running: dict[str, Column] = {
        "id": short(executions, "job_id"),
        "job…": lambda one: labels.get(one["job_id"], one["job_id"]),
        "for": took,
        "progress": bar,
        "": lambda one: progress_text(one["progress"]),
    }
    running_title = f"Running ({jobs.get('running', len(executions)):,})"
    worker_title = f"Workers ({sum(one['alive'] for one in workers)})"
    no_worker = "none: evenbeat worker --app yourmodule:app"
    parts: list[RenderableType] = [_jobs_line(jobs), Text("   ".join(pace))]
    for title, rows, columns, empty in (
        (running_title, executions, running, "nothing"),
        ("Queues", snapshot["queues"], queue_columns(now), "nothing due"),
        (worker_title, workers, worker_columns(workers, now), no_worker),
    ):
        lines = table(rows, columns) if rows else Text(f"  {empty}", style="dim")
        parts += [Text(), heading(title), lines]
    return Group(*parts)


@contextmanager
def _wait_for_q() -> Iterator[Callable[[float], bool]]:
    """A function that waits some seconds, or until a key is pressed, and returns true if it was `q`
    or the keyboard is gone. Without a terminal nobody can press it."""
    if not sys.stdin.isatty():
        yield lambda seconds: threading.Event().wait(seconds)
        return
    import termios  # noqa: PLC0415 - there is none on Windows
    import tty  # noqa: PLC0415

    descriptor = sys.stdin.fileno()

    def is_pressed(seconds: float) -> bool:
        ready, _, _ = select.select([descriptor], [], [], seconds)
        # Past Python's buffer, in which a second key would wait unseen.
        keys = os.read(descriptor, 64) if ready else b"none"
        return not keys or b"q" in keys.lower()

    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield is_pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@api_command
def distribution(session: ApiSession) -> None:
    """Show how many jobs start in each hour, how even the load is, and what to do about it."""
    current = session.client.get(f"{_PATH}/distribution")
    session.show(current, distribution_view(current))


@api_command
def rebalance(  # noqa: PLR0917 - the options are named on the command line
    session: ApiSession,
    preview: Annotated[
        bool, flag("--preview", "Show what would move, and change nothing (default).")
    ] = False,
    apply: Annotated[bool, flag("--apply", "Move the jobs.")] = False,
    undo: Annotated[UUID | None, option("ID", "Put back what a rebalance moved.")] = None,
    max_moves: Annotated[int | None, option("N", "Move so many jobs at most.", min=1)] = None,
    yes: YesOption = False,
) -> int:
    """Lower the peak with the fewest moves. No job moves by more than half its interval."""
    if preview + apply + (undo is not None) > 1:
        raise InvalidInput("Give one of --preview, --apply and --undo ID.", field="preview")
    if undo is not None:
        if max_moves is not None:
            raise InvalidInput("--max-moves does not go with --undo.", field="max_moves")
        if not confirmed(f"Put back what rebalance {undo} moved?", yes):
            return 1
        undone = session.client.post(f"{_PATH}/rebalance/{undo}/undo")
        restored = heading(f"{count(len(undone['restored']), 'job')} put back")
        session.show(undone, restored, *_stays(undone["left_alone"], "left alone"))
        return 0
    body = stated({"max_moves": max_moves})
    if not apply or not yes:
        plan = session.client.post(f"{_PATH}/rebalance/preview", body)
        if not apply or not plan["would_move"]:
            session.show(plan, preview_view(plan))
            return 0
        if not session.as_json:
            show(preview_view(plan))
        if not confirmed(f"Move {count(plan['would_move'], 'job')}?", yes):
            return 1
        body["plan_id"] = plan["plan_id"]  # what is applied is just what was shown
    done = session.client.post(f"{_PATH}/rebalance", body)
    session.show(done, done_view(done))
    return 0


def distribution_view(current: Document) -> Group:
    """Bars for the hours, the peak marked, and the figures below."""
    hours = current["hourly_distribution"]
    most = max((hour["job_count"] for hour in hours), default=0)
    lines = [heading(f"Starts per hour, the coming {current['window_hours']} hours (UTC)")]
    for hour in hours:
        jobs, is_peak = hour["job_count"], bool(most) and hour["hour"] == current["peak_hour"]
        blocks = "█" * round(48 * jobs / max(1, most)) or ("▏" if jobs else "")
        line = Text(f"  {hour['hour']:02d} ").append(blocks, "red" if is_peak else "blue")
        lines.append(line.append(f" {jobs:,}" + ("  <- peak" if is_peak else "")))
    peak, mean = current["expected_peak"], current["expected_mean"]
    score = current["distribution_score"]
    return Group(
        *lines,
        Text(),
        Text(f"{count(current['total_jobs'], 'job')}: {workers(current)} (score {score:.2f})"),
        Text(f"{peak:,.1f} run at once at most, {mean:,.1f} on average"),
        Text(safe(current["suggestion"])),
        *advice(current),
    )


def advice(current: Document) -> list[Text]:
    """On intervals that meet others wherever they start."""
    return [Text(f"{one['text']}.") for one in current["advice"]]


def workers(current: Document) -> str:
    """How many workers are needed at once, and how many would do."""
    needed = count(current["workers_needed"], "worker")
    return f"needs {needed} at once, {current['workers_sufficient']:,} would suffice"


def preview_view(plan: Document) -> Group:
    """What would move, what stays and why, and what it gains."""
    if not plan["would_move"]:
        return Group(
            heading("There is nothing to gain: no move would lower the peak."),
            *_stays(plan["skipped"]),
            *advice(plan["before"]),
        )
    title = f"{count(plan['would_move'], 'job')} would move"
    return _moves(title, plan, plan["preview"], "current_time", "proposed_time")


def done_view(done: Document) -> Group:
    """What was moved, and how to take it back."""
    if not done["moved"]:
        return Group(heading("No job moved."), *_stays(done["skipped"]))
    return Group(
        _moves(
            f"{count(len(done['moved']), 'job')} moved", done, done["moved"], "old_time", "new_time"
        ),
        Text(f"To take it back: evenbeat rebalance --undo {done['id']}"),
    )


def _moves(title: str, plan: Document, moves: Sequence[Document], old: str, new: str) -> Group:
    """The moves, the jobs that stay, and the gain."""
    when = "{:%a %d %b %H:%M:%S}".format
    columns: dict[str, Column] = {
        "job…": lambda move: move["name"] or move["job_id"],
        "from": lambda move: when(moment(move[old])),
        "to": lambda move: when(moment(move[new])),
        "why…": "reason",
    }
    more = len(moves) - _MOST_SHOWN
    before, after = plan["before"], plan["after"]
    needed = f"{before['workers_needed']:,} -> {after['workers_needed']:,}"
    scores = f"{before['distribution_score']:.2f} -> {after['distribution_score']:.2f}"
    return Group(
        heading(title),
        table(moves[:_MOST_SHOWN], columns),
        *([Text(f"and {more:,} more, see --json", "dim")] if more > 0 else []),
        *_stays(plan["skipped"]),
        Text(
            f"Workers needed {needed} ({after['workers_sufficient']:,} would suffice), "
            f"score {scores}"
        ),
        *advice(before),
    )


def _stays(jobs: Sequence[Document], words: str = "stay") -> list[Text]:
    reasons = Counter(job["reason"] for job in jobs).most_common()
    by_reason = ", ".join(f"{number:,} {reason}" for reason, number in reasons)
    return [Text(f"{len(jobs):,} {words}: {safe(by_reason)}")] if jobs else []
