"""`evenbeat top`: a live view of what runs, in the terminal."""

import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, NamedTuple

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from evenbeat.cli.client import ApiError, Client, Document
from evenbeat.cli.job_views import label, progress_text
from evenbeat.cli.output import cell, console, heading, moment, print_json, short_ids, show, table
from evenbeat.cli.queues import queue_table, worker_table
from evenbeat.cli.session import ApiSession, api_command
from evenbeat.cli.stats import jobs_line, share
from evenbeat.domain.duration import parse_duration
from evenbeat.humanize import count, duration

_MOST = 20
_BAR = 20
_END = Text("\nq ends this", style="dim")


class _Frame(NamedTuple):
    """What was seen at one moment."""

    at: float
    metrics: Document
    queues: list[Document]
    workers: list[Document]
    running: list[Document]
    jobs: dict[str, Document]

    @property
    def total(self) -> int:
        return int(self.metrics["executions"]["total"])


@api_command
def top(
    session: ApiSession,
    every: Annotated[str, typer.Option(metavar="DURATION", help="How often to look again.")] = "2s",
    once: Annotated[
        bool, typer.Option("--once", help="Print one picture and end, as without a terminal.")
    ] = False,
) -> int:
    """Watch running jobs with their progress, queues, workers and throughput. `q` or Ctrl-C
    ends it."""
    pause = max(0.2, parse_duration(every, field="every").total_seconds())
    frame = _look(session.client)
    if session.as_json:
        at = session.client.now().isoformat(timespec="seconds")
        print_json(frame._asdict() | {"at": at, "jobs": list(frame.jobs.values())})
        return 0
    out = console()
    if once or not out.is_terminal:
        show(_picture(frame, None, session.client))
        return 0
    with (
        _keys() as pressed,
        Live(
            _picture(frame, None, session.client), console=out, screen=True, auto_refresh=False
        ) as live,
    ):
        try:
            while not pressed(pause):
                seen, away = _look_again(session.client)
                before, frame = frame, seen or frame
                live.update(Group(_picture(frame, before, session.client), away), refresh=True)
        except KeyboardInterrupt:
            pass
    return 0


def _look(client: Client) -> _Frame:
    running = client.get("/api/v1/executions", status="running", limit=_MOST)["executions"]
    jobs = client.get("/api/v1/jobs", status="running", limit=1000)["jobs"] if running else []
    return _Frame(
        time.monotonic(),
        client.get("/api/v1/scheduler/metrics"),
        client.get("/api/v1/queues")["queues"],
        client.get("/api/v1/workers")["workers"],
        running,
        {job["id"]: job for job in jobs},
    )


def _look_again(client: Client) -> tuple[_Frame | None, Text]:
    """Another look, or why there is none; a service that is away may come back."""
    try:
        return _look(client), _END
    except ApiError as refused:
        if refused.exit_code != 3:
            raise
        return None, Text(f"\n{refused}", style="red")


# -- the picture ---------------------------------------------------------------------------------


def _picture(frame: _Frame, before: _Frame | None, client: Client) -> RenderableType:
    parts: list[RenderableType] = [
        jobs_line(frame.metrics["jobs"]),
        _pace(frame, before),
        Text(),
        heading(f"Running ({frame.metrics['jobs'].get('running', len(frame.running)):,})"),
        _running_table(frame, client) if frame.running else Text("  nothing", style="dim"),
        Text(),
        heading("Queues"),
        queue_table(frame.queues, client) if frame.queues else Text("  nothing due", style="dim"),
        Text(),
        heading(f"Workers ({sum(one['alive'] for one in frame.workers)})"),
        worker_table(frame.workers, client)
        if frame.workers
        else Text("  none: evenbeat worker --app yourmodule:app", style="dim"),
    ]
    return Group(*parts)


def _pace(frame: _Frame, before: _Frame | None) -> Text:
    runs = frame.metrics["executions"]
    told = [count(runs["total"], "execution")]
    if runs["success_rate"] is not None:
        told.append(f"{share(runs['success_rate']):.1f} % succeeded")
    if before is not None:
        rate = max(0.0, (frame.total - before.total) / max(0.001, frame.at - before.at))
        told.append(f"{rate:,.1f} a second")
    return Text("   ".join(told))


def _running_table(frame: _Frame, client: Client) -> RenderableType:
    made = table("id", "job…", "for", "progress", "")
    short = short_ids([one["job_id"] for one in frame.running])
    for one in frame.running:
        job = frame.jobs.get(one["job_id"])
        begun = moment(one["started_at"])
        seconds = 0.0 if begun is None else (client.now() - begun).total_seconds()
        told = one["progress"] or {}
        bar: RenderableType = ""
        if told.get("total"):
            bar = ProgressBar(total=told["total"], completed=told.get("done") or 0, width=_BAR)
        made.add_row(
            short[one["job_id"]],
            cell(label(job) if job else one["job_id"]),
            duration(max(0.0, seconds)),
            bar,
            cell(progress_text(told)),
        )
    return made


# -- keys ----------------------------------------------------------------------------------------


@contextmanager
def _keys() -> Iterator["_Pressed"]:
    """Single keys from the terminal, if there is one to press them on."""
    if not sys.stdin.isatty():
        yield _Pressed(False)
        return
    import termios  # noqa: PLC0415 - there is none on Windows
    import tty  # noqa: PLC0415

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield _Pressed(True)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _says_end(keys: bytes) -> bool:
    """Whether `q` is among them, or the keyboard is gone."""
    return not keys or b"q" in keys.lower()


class _Pressed:
    """Waits a while; true as soon as `q` was pressed."""

    def __init__(self, has_keys: bool) -> None:
        self._has_keys = has_keys

    def __call__(self, seconds: float) -> bool:
        if not self._has_keys:
            time.sleep(seconds)
            return False
        ends_at = time.monotonic() + seconds
        while (left := ends_at - time.monotonic()) > 0:
            ready, _, _ = select.select([sys.stdin], [], [], left)
            # Past Python's buffer, in which a second key would wait unseen.
            if ready and _says_end(os.read(sys.stdin.fileno(), 64)):
                return True
        return False
