"""`evenbeat worker`: run the jobs of an application until stopped; list and drain workers."""

import logging
import os
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from signal import Signals as Signal
from typing import Annotated

import typer

from evenbeat.app import Evenbeat
from evenbeat.cli.app_loader import check_database, database_place, patiently, served_app
from evenbeat.cli.processes import Signals, Supervisor, tune_process
from evenbeat.cli.session import (
    ApiSession,
    DatabaseOption,
    api_command,
    argument,
    find_listed,
    flag,
    is_id,
    option,
)
from evenbeat.cli.views import worker_columns
from evenbeat.engine.worker import Worker
from evenbeat.errors import InvalidInput
from evenbeat.observe.logs import LineHandler, LogFormat, configure_logging
from evenbeat.settings import Settings

logger = logging.getLogger("evenbeat.worker")

ORPHAN_GRACE = 3.0
"""Seconds for running jobs when the supervisor has vanished: nobody waits for us any more."""

LAST_PORT = 65535
_MOST_NAMES = 20

AppOption = Annotated[
    str | None,
    option(
        "MODULE:ATTRIBUTE",
        "The application: shop.tasks:app, or path/to/tasks.py:app. "
        "Default: one with the built-in tasks only.",
    ),
]
LogFormatOption = Annotated[
    LogFormat, typer.Option(help="Log lines for people or for machines, on standard error.")
]
LogLevelOption = Annotated[str, option("LEVEL", "debug, info, warning, error or critical.")]

worker_cli = typer.Typer(
    invoke_without_command=True,
    rich_markup_mode="markdown",
    subcommand_metavar="[COMMAND] [ARGS]...",
)


@worker_cli.callback(invoke_without_command=True)
def worker(  # noqa: PLR0917 - the options are named on the command line
    context: typer.Context,
    app: AppOption = None,
    queues: Annotated[
        list[str] | None,
        option(
            "NAMES",
            "Serve only these queues; with commas, or given several times. Default: all.",
        ),
    ] = None,
    concurrency: Annotated[
        int | None, option("N", "How many jobs each process runs at once. Default: 100.")
    ] = None,
    processes: Annotated[int, option("N", "How many processes to run.", min=1, max=512)] = 1,
    database: DatabaseOption = None,
    log_format: LogFormatOption = LogFormat.CONSOLE,
    log_level: LogLevelOption = "info",
    disable_removed: Annotated[
        bool, flag("--disable-removed", "Pause schedules that the code no longer declares.")
    ] = False,
    metrics_port: Annotated[
        int | None,
        option(
            "PORT",
            "Serve /metrics, /healthz and /readyz here; 0: any free port. Several processes take "
            "this port and the following ones.",
            min=0,
            max=LAST_PORT,
        ),
    ] = None,
    metrics_host: Annotated[
        str, option("ADDRESS", "Where to serve them; anyone who reaches it may read.")
    ] = "127.0.0.1",
    supervisor_fd: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> int:
    """Run jobs until stopped.

    SIGTERM or Ctrl-C stops with grace: running jobs get EVENBEAT_STOP_SECONDS (20) to finish, then
    they are handed back to other workers. A second one ends the process at once (exit code 143 or
    130), and other workers take over its jobs.
    """
    if context.invoked_subcommand is not None:
        return 0  # `worker list` asks about workers, and runs none
    log = configure_logging(log_format, log_level)
    names = [name.strip() for text in queues or () for name in text.split(",")]
    if not all(names):
        raise InvalidInput("--queues has an empty name in it.", field="queues")
    queues = list(dict.fromkeys(names)) or None
    if processes > 1:
        options = {
            "--app": app,
            "--queues": ",".join(queues or ()) or None,
            "--concurrency": concurrency,
            "--database": database,
            "--log-format": log_format,
            "--log-level": log_level,
            "--metrics-host": None if metrics_port is None else metrics_host,
        }
        shared = [f"{name}={value}" for name, value in options.items() if value is not None]
        return Supervisor(
            [sys.executable, "-m", "evenbeat", "worker", *shared],
            _port_arguments(metrics_port, processes),
            first_only=["--disable-removed"] if disable_removed else [],
        ).run()
    loaded = served_app(app, database=database, concurrency=concurrency)
    if app is None and not loaded.settings.builtin_tasks:
        raise InvalidInput(
            "There is nothing to run: no --app is given, and EVENBEAT_BUILTIN_TASKS is off. Name "
            "the application whose jobs to run, such as --app shop.tasks:app.",
            field="app",
        )
    with opened(loaded, log) as signals, ExitStack() as stack:
        if metrics_port is not None:
            from evenbeat.observe.metrics_server import MetricsServer  # noqa: PLC0415 - seldom used

            server = MetricsServer(
                loaded.metrics,
                lambda: loaded.readiness.report(expects_worker=True),
                host=metrics_host,
                port=metrics_port,
            )
            stack.callback(server.stop)
            server.start()
        settings = loaded.settings
        changes = patiently(
            settings, lambda: loaded.sync_schedules(disable_removed=disable_removed)
        )
        running = patiently(settings, lambda: loaded.worker(queues=queues))
        extra: dict[str, object] = {
            "app": app or "built-in tasks",
            "tasks": shortened(loaded.registry.named()),
            "queues": ",".join(queues or ["*"]),
            "database": database_place(loaded.settings),
            "schedules": len(loaded.declared),
        }
        for change in ("created", "updated", "resumed", "stopped", "removed"):
            if labels := getattr(changes, change):
                extra[f"schedules_{change}"] = shortened(labels)
        if changes.waiting:
            extra["schedules_waiting"] = shortened(list(changes.waiting))
        logger.info("Serving", extra=extra)
        tune_process()
        patiently(settings, running.start)
        why = _wait_for_stop(signals, supervisor_fd, running)
        stop_worker(running, settings, why)
    if isinstance(why, str):
        start_anew(supervisor_fd)
    return 0


def _port_arguments(first: int | None, processes: int) -> list[list[str]]:
    """For each process its own port: the first one and those that follow, or any free ones."""
    if first is None:
        return [[] for _ in range(processes)]
    if first + processes - 1 > LAST_PORT:
        raise InvalidInput(
            f"--metrics-port {first} leaves no room for {processes} processes: each takes a port, "
            f"and {LAST_PORT} is the last.",
            field="metrics_port",
        )
    return [[f"--metrics-port={first + n if first else 0}"] for n in range(processes)]


def _wait_for_stop(
    signals: Signals, supervisor_fd: int | None, worker: Worker
) -> Signal | str | None:
    """The signal that says stop; why the worker should start anew; None when the supervisor has
    vanished instead."""
    links = []
    if supervisor_fd is not None:
        os.set_inheritable(supervisor_fd, False)
        link = socket.socket(fileno=supervisor_fd)
        with suppress(OSError):  # gone already: the wait will tell
            link.send(b"r")  # ready
        links.append(link)
    try:
        while not (arrived := signals.take()):
            if reason := worker.worn_out():
                return reason
            if signals.wait(*links, timeout=1):
                return None
        return arrived[0]
    finally:
        for link in links:
            link.detach()  # it stays open: the supervisor must not think that we have ended


def start_anew(supervisor_fd: int | None = None) -> None:
    """Become a fresh process with the same command line; threads that cannot be ended go with this
    one."""
    if supervisor_fd is not None:
        os.set_inheritable(supervisor_fd, True)
    logging.shutdown()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - ourselves


def stop_worker(worker: Worker, settings: Settings, why: Signal | str | None) -> None:
    """Stop with grace, and little of it when the supervisor is gone (`why` is None)."""
    grace = settings.stop_seconds if why else min(settings.stop_seconds, ORPHAN_GRACE)
    if isinstance(why, str):
        logger.warning("Starting anew, as EVENBEAT_RECYCLE says: %s", why)
    reason = why.name if isinstance(why, Signal) else "recycle" if why else "supervisor_gone"
    logger.info(
        "Stopping",
        extra={
            "reason": reason,
            "running": worker.running,
            "grace": f"{grace:g}s",
        },
    )
    worker.stop(grace)


@contextmanager
def opened(app: Evenbeat, log: LineHandler) -> Iterator[Signals]:
    """The application with its database, and the signals that stop it."""

    def end_at_once(number: Signal) -> None:
        """Runs in a signal handler. Leases stay behind; other workers find this process gone."""
        logger.warning("Ending at once, others take over", extra={"reason": number.name})
        for last_step, seconds in ((log.flush, 0.5), (app.stop_server, 3.0)):
            thread = threading.Thread(target=last_step, daemon=True)
            thread.start()
            thread.join(seconds)
        os._exit(128 + number)

    with Signals(on_second=end_at_once) as signals:
        patiently(app.settings, lambda: check_database(app.settings))
        with app:
            yield signals


def shortened(names: Sequence[str]) -> str:
    """Names with commas; of very many, the first ones."""
    text = ",".join(names[:_MOST_NAMES])
    return text if len(names) <= _MOST_NAMES else f"{text},… ({len(names)})"


@worker_cli.command("list")
@api_command
def list_workers(session: ApiSession) -> None:
    """List the workers with a heartbeat in the last hour."""
    page = session.client.get("/api/v1/workers")
    columns = worker_columns(page["workers"], session.client.now())
    empty = "No worker is known. Start one: evenbeat worker --app yourmodule:app"
    session.show_list(page, "workers", columns, empty)


@worker_cli.command()
@api_command
def drain(
    session: ApiSession, worker: Annotated[str, argument("ID", "The id, or its beginning.")]
) -> None:
    """Ask a worker to take no more jobs. It finishes what it has."""
    worker_id = worker
    if not is_id(worker):
        workers = session.client.get("/api/v1/workers")["workers"]
        worker_id = find_listed(workers, worker, "worker")["id"]
    drained = session.client.post(f"/api/v1/workers/{worker_id}/drain")
    running = f"{drained['running']} running" if drained["running"] else "none running"
    host = drained["host"].split("/")[0]
    session.show(drained, f"{host} (pid {drained['pid']}) takes no more jobs; {running}.")
