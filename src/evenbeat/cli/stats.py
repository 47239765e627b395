"""`evenbeat stats` and `evenbeat top`: the scheduler in figures, once or live in the terminal."""

import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from evenbeat.cli.client import ApiError, Client, Document
from evenbeat.cli.job_views import label, progress_text
from evenbeat.cli.output import (
    Column,
    both,
    console,
    facts,
    heading,
    moment,
    print_json,
    short,
    show,
    status,
    table,
)
from evenbeat.cli.queues import queue_columns
from evenbeat.cli.session import ApiSession, api_command, flag, option
from evenbeat.cli.worker import worker_columns
from evenbeat.domain.duration import parse_duration
from evenbeat.humanize import count, duration, milliseconds

_MOST_RUNNING = 20


@api_command
def stats(session: ApiSession) -> None:
    """Show how many jobs are in which state, and how their executions went."""
    metrics = session.client.get("/api/v1/scheduler/metrics")
    runs, now = metrics["executions"], session.client.now()
    rate = runs["success_rate"]
    figures = {
        "total": f"{runs['total']:,}",
        "succeeded": "" if rate is None else f"{100 * rate:.1f} %",
        "take": milliseconds(runs["average_duration_ms"]),
        "stale locks cleared": f"{metrics['stale_locks_cleared']:,}",
        "last heartbeat": both(metrics["last_check_at"], now) or "no worker",
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
    running = client.get("/api/v1/executions", status="running", limit=_MOST_RUNNING)["executions"]
    jobs = client.get("/api/v1/jobs", status="running", limit=1000)["jobs"] if running else []
    return {
        "at": time.monotonic(),
        "metrics": client.get("/api/v1/scheduler/metrics"),
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
    """A function that waits some seconds, and returns true as soon as `q` was pressed or the
    keyboard is gone. Without a terminal nobody can press it."""
    if not sys.stdin.isatty():
        yield lambda seconds: threading.Event().wait(seconds)
        return
    import termios  # noqa: PLC0415 - there is none on Windows
    import tty  # noqa: PLC0415

    def is_pressed(seconds: float) -> bool:
        ends_at = time.monotonic() + seconds
        while (remaining := ends_at - time.monotonic()) > 0:
            ready, _, _ = select.select([sys.stdin], [], [], remaining)
            if ready:
                # Past Python's buffer, in which a second key would wait unseen.
                keys = os.read(sys.stdin.fileno(), 64)
                if not keys or b"q" in keys.lower():
                    return True
        return False

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield is_pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
