"""`evenbeat job watch`: follow a job until its run has ended."""

import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from evenbeat.cli.client import Client, Document
from evenbeat.cli.job_views import execution_facts, label, progress_text
from evenbeat.cli.output import console, relative, safe, say
from evenbeat.cli.resolve import find_job
from evenbeat.cli.session import ApiSession, RetryReads, api_command
from evenbeat.domain.duration import parse_duration

_FINAL = ("completed", "failed", "cancelled")

Report = Callable[[Document, Document | None, str], None]


@api_command
def watch(
    session: ApiSession,
    job: Annotated[str, typer.Argument(metavar="JOB", help="Id, its beginning, or name.")],
    timeout: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Give up watching after so long.")
    ] = None,
    every: Annotated[
        str, typer.Option(metavar="DURATION", help="How often to look.", hidden=True)
    ] = "500ms",
) -> int:
    """Follow a job, with a progress bar while it runs, until it has ended.

    Of a recurring job, the run in progress or the next one is followed. The exit code is 0 when it
    completed and 1 when not. Ctrl-C stops the watching; the job goes on.
    """
    document = find_job(session.client, job)
    pause = parse_duration(every, field="every").total_seconds()
    limit = None if timeout is None else parse_duration(timeout, field="timeout")
    with _Bar(document) if console().is_terminal and not session.as_json else nullcontext() as bar:
        report = bar or _Lines(quiet=session.as_json)
        last, run = _follow(session.client, document, pause, limit, report)
    if run is None or run["status"] == "running":
        if last["status"] in _FINAL:
            say(f"It is {last['status']} and did not run.")
        else:
            say(f"Still {last['status']} after {timeout}; it goes on without being watched.")
        session.show(run or last)
        return 1
    session.show(run, lambda: execution_facts(run, session.client.now()))
    return 0 if run["status"] == "completed" else 1


def _follow(
    client: Client, job: Document, pause: float, limit: timedelta | None, report: Report
) -> tuple[Document, Document | None]:
    """Look until the run is over; the job and its newest execution as they were last seen."""
    path = f"/api/v1/jobs/{job['id']}"
    ends_at = None if limit is None else time.monotonic() + limit.total_seconds()
    # The run before the job: one that is over while the job still waits is an earlier one for sure.
    run, job = _newest(client, path), client.get(path)
    earlier = None  # the id of a run that was over before the watch began: not the one to wait for
    if run is not None and run["status"] != "running" and job["status"] not in _FINAL:
        earlier = run["id"]
    retry_reads = RetryReads()
    while True:
        waiting = str(job["status"])
        if waiting not in (*_FINAL, "paused"):
            retry = job["current_retry_count"]
            again = f"try {retry + 1} " if retry else ""
            waiting = f"{again}waits, due {relative(job['next_run_at'], client.now())}"
        report(job, run, waiting)
        is_running = run is not None and run["status"] == "running"
        is_new = run is not None and run["id"] != earlier
        is_over = not is_running and (
            job["status"] in _FINAL or (is_new and job["current_retry_count"] == 0)
        )
        if is_over or (ends_at is not None and time.monotonic() >= ends_at):
            return job, run if is_new else None
        time.sleep(pause)
        with retry_reads:
            job, run = client.get(path), _newest(client, path)


def _newest(client: Client, path: str) -> Document | None:
    executions: list[Document] = client.get(f"{path}/executions", limit=1)["executions"]
    return executions[0] if executions else None


class _Lines:
    """For logs and pipes: a line when something has changed, on standard error."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._last = ""

    def __call__(self, job: Document, run: Document | None, waiting: str) -> None:
        state, progress = job["status"], ""
        if state == "running" and run is not None:
            progress = progress_text(run["progress"])
        if state not in (*_FINAL, "running"):
            state, _, _ = waiting.partition(",")
        line = f"{label(job)}: {state}" + (f", {progress}" if progress else "")
        if line != self._last and not self._quiet:
            say(line)
        self._last = line


class _Bar:
    """For people: a bar."""

    def __init__(self, job: Document) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[text]}", markup=False),
            TimeElapsedColumn(),
            console=console(),
            transient=True,
        )
        self._task = self._progress.add_task(safe(label(job)), total=None, text="")

    def __enter__(self) -> "_Bar":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, job: Document, run: Document | None, waiting: str) -> None:
        if job["status"] != "running" or run is None:
            self._progress.update(self._task, total=None, text=safe(waiting))
            return
        progress = run["progress"] or {}
        self._progress.update(
            self._task,
            total=progress.get("total"),
            completed=progress.get("done") or 0,
            text=safe(progress_text(progress) or "running"),
        )
