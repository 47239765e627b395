"""`evenbeat job watch`: follow a job until its run has ended."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from evenbeat.cli.client import Client, Document
from evenbeat.cli.job_views import execution_facts, label, progress_text
from evenbeat.cli.output import console, relative, safe, say
from evenbeat.cli.patience import Patience
from evenbeat.cli.resolve import find_job
from evenbeat.cli.session import ApiSession, api_command
from evenbeat.domain.duration import parse_duration

_FINAL = ("completed", "failed", "cancelled")

Tell = Callable[[Document, Document | None, str], None]


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
    found = find_job(session.client, job)
    pause = parse_duration(every, field="every").total_seconds()
    limit = None if timeout is None else parse_duration(timeout, field="timeout")
    if session.as_json or not console().is_terminal:
        last, run = _follow(session.client, found, pause, limit, _Lines(session.as_json))
    else:
        with _Bar(found) as bar:
            last, run = _follow(session.client, found, pause, limit, bar)
    if run is None or run["status"] == "running":
        ended = f"It is {last['status']} and did not run."
        still = f"Still {last['status']} after {timeout}; it goes on without being watched."
        say(ended if last["status"] in _FINAL else still)
        session.show(run or last)
        return 1
    session.show(run, lambda: execution_facts(run, session.client.now()))
    return 0 if run["status"] == "completed" else 1


def _follow(
    client: Client, job: Document, pause: float, limit: timedelta | None, tell: Tell
) -> tuple[Document, Document | None]:
    """Look until the run is over; the job and its newest execution as they were last seen."""
    path = f"/api/v1/jobs/{job['id']}"
    ends_at = None if limit is None else time.monotonic() + limit.total_seconds()
    # The run before the job: one that is over while the job still waits is an earlier one for sure.
    run, job = _newest(client, path), client.get(path)
    seen = _ended(run) if job["status"] not in _FINAL else None
    patience = Patience()
    while True:
        tell(job, run, _waiting(job, client))
        if _is_over(job, run, seen) or (ends_at is not None and time.monotonic() >= ends_at):
            return job, None if run is not None and run["id"] == seen else run
        time.sleep(pause)
        with patience:
            job, run = client.get(path), _newest(client, path)


def _newest(client: Client, path: str) -> Document | None:
    found: list[Document] = client.get(f"{path}/executions", limit=1)["executions"]
    return found[0] if found else None


def _ended(run: Document | None) -> str | None:
    """The id of a run that was over before the watch began: not the one to wait for."""
    return None if run is None or run["status"] == "running" else str(run["id"])


def _is_over(job: Document, run: Document | None, seen: str | None) -> bool:
    is_running = run is not None and run["status"] == "running"
    if job["status"] in _FINAL:
        return not is_running
    is_new = run is not None and run["id"] != seen
    return is_new and not is_running and job["current_retry_count"] == 0


def _waiting(job: Document, client: Client) -> str:
    if job["status"] in (*_FINAL, "paused"):
        return str(job["status"])
    again = f"try {job['current_retry_count'] + 1} " if job["current_retry_count"] else ""
    return f"{again}waits, due {relative(job['next_run_at'], client.now())}"


# -- telling -------------------------------------------------------------------------------------


class _Lines:
    """For logs and pipes: a line when something has changed, on standard error."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._last = ""

    def __call__(self, job: Document, run: Document | None, waiting: str) -> None:
        is_running = job["status"] == "running" and run is not None
        far = progress_text(run["progress"]) if is_running and run else ""
        state = job["status"]
        if state not in (*_FINAL, "running"):
            state, _, _ = waiting.partition(",")
        line = f"{label(job)}: {state}" + (f", {far}" if far else "")
        if line != self._last and not self._quiet:
            say(line)
        self._last = line


class _Bar:
    """For people: a bar."""

    def __init__(self, job: Document) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[far]}", markup=False),
            TimeElapsedColumn(),
            console=console(),
            transient=True,
        )
        self._task = self._progress.add_task(safe(label(job)), total=None, far="")

    def __enter__(self) -> "_Bar":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, job: Document, run: Document | None, waiting: str) -> None:
        if job["status"] != "running" or run is None:
            self._progress.update(self._task, total=None, far=safe(waiting))
            return
        told = run["progress"] or {}
        self._progress.update(
            self._task,
            total=told.get("total"),
            completed=told.get("done") or 0,
            far=safe(progress_text(told) or "running"),
        )
