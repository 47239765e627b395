"""`evenbeat worker`: run the jobs of an application until told to stop."""

import logging
import os
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from signal import Signals as Signal
from typing import Annotated

import typer

from evenbeat.app import Evenbeat
from evenbeat.cli.app_loader import load_app
from evenbeat.cli.signals import Signals
from evenbeat.cli.supervisor import Supervisor
from evenbeat.cli.tuning import settle_process
from evenbeat.declared import SyncReport
from evenbeat.engine.worker import Worker
from evenbeat.errors import InvalidInput
from evenbeat.observe.logs import LineHandler, LogFormat, configure_logging
from evenbeat.observe.readiness import ReadinessReport
from evenbeat.settings import Settings
from evenbeat.store.database import Database, place_of

logger = logging.getLogger("evenbeat.worker")

ORPHAN_GRACE = 3.0
"""Seconds for running jobs when the supervisor has vanished: nobody waits for us any more."""

LAST_PORT = 65535
_MOST_NAMES = 20


def worker(  # noqa: PLR0917 - the options are named on the command line
    app: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:ATTRIBUTE",
            help="The application: shop.tasks:app, or path/to/tasks.py:app. "
            "Default: one with the built-in tasks only.",
        ),
    ] = None,
    queues: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES",
            help="Serve only these queues; with commas, or given several times. Default: all.",
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(metavar="N", help="How many jobs each process runs at once. Default: 100."),
    ] = None,
    processes: Annotated[
        int, typer.Option(metavar="N", min=1, max=512, help="How many processes to run.")
    ] = 1,
    database: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The PostgreSQL database, before all other settings. Other users of this machine "
            "can see arguments: a password is better kept in EVENBEAT_DATABASE_URL.",
        ),
    ] = None,
    log_format: Annotated[
        LogFormat, typer.Option(help="Log lines for people or for machines, on standard error.")
    ] = LogFormat.CONSOLE,
    log_level: Annotated[
        str, typer.Option(metavar="LEVEL", help="debug, info, warning, error or critical.")
    ] = "info",
    disable_removed: Annotated[
        bool,
        typer.Option("--disable-removed", help="Pause schedules that the code no longer declares."),
    ] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            min=0,
            max=65535,
            help="Serve /metrics, /healthz and /readyz here; 0: any free port. Several processes "
            "take this port and the following ones.",
        ),
    ] = None,
    metrics_host: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="Where to serve them; whoever reaches it may read."),
    ] = "127.0.0.1",
    supervisor_fd: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> int:
    """Run jobs until stopped.

    SIGTERM or Ctrl-C stops with grace: running jobs get EVENBEAT_STOP_SECONDS (30) to finish, then
    they are handed back to other workers. A second one ends the process at once (exit code 143 or
    130), and other workers take over its jobs.
    """
    log = configure_logging(log_format, log_level)
    if processes > 1:
        command = _command({
            "--app": app,
            "--queues": ",".join(_split(queues) or []) or None,
            "--concurrency": concurrency,
            "--database": database,
            "--log-format": log_format,
            "--log-level": log_level,
            "--metrics-host": None if metrics_port is None else metrics_host,
        })  # fmt: skip
        first_only = ["--disable-removed"] if disable_removed else []
        ports = _ports(metrics_port, processes)
        return Supervisor(processes, command, first_only, of_each=ports).run()
    loaded = with_builtins(configured(_application(app), concurrency, database))
    with Signals(on_second=lambda number: end_at_once(number, log)) as signals:
        return _serve(
            loaded,
            signals,
            target=app or "built-in tasks",
            queues=_split(queues),
            disable_removed=disable_removed,
            supervisor_fd=supervisor_fd,
            metrics=None if metrics_port is None else (metrics_host, metrics_port),
        )


def _serve(
    app: Evenbeat,
    signals: Signals,
    *,
    target: str,
    queues: list[str] | None,
    disable_removed: bool,
    supervisor_fd: int | None,
    metrics: tuple[str, int] | None,
) -> int:
    check_database(app.settings)
    with app, _exporter(app, metrics):
        report = app.sync_schedules(disable_removed=disable_removed)
        serving = app.worker(queues=queues)
        logger.info("Serving", extra=_description(app, target, queues, report))
        settle_process()
        serving.start()
        stop_worker(serving, app.settings, _wait(signals, supervisor_fd))
    return 0


@contextmanager
def _exporter(app: Evenbeat, where: tuple[str, int] | None) -> Iterator[None]:
    """Serve the metrics while the worker is at work, from before its start until after its end."""
    if where is None:
        yield
        return
    from evenbeat.observe.metrics_server import MetricsServer  # noqa: PLC0415 - only those who ask pay for it

    def readiness() -> ReadinessReport:
        return app.readiness.report(expects_worker=True)

    exporter = MetricsServer(app.metrics, readiness, host=where[0], port=where[1])
    exporter.start()
    try:
        yield
    finally:
        exporter.stop()


def _wait(signals: Signals, supervisor_fd: int | None) -> Signal | None:
    """Until a signal says stop; None when the supervisor has vanished instead."""
    if supervisor_fd is None:
        while not (arrived := signals.take()):
            signals.wait()
        return arrived[0]
    os.set_inheritable(supervisor_fd, False)
    with socket.socket(fileno=supervisor_fd) as supervisor:
        with suppress(OSError):  # gone already: the wait will tell
            supervisor.send(b"r")  # ready
        while not (arrived := signals.take()):
            if signals.wait(supervisor):
                return None
        return arrived[0]


def stop_worker(serving: Worker, settings: Settings, why: Signal | None) -> None:
    grace = settings.stop_seconds if why else min(settings.stop_seconds, ORPHAN_GRACE)
    logger.info(
        "Stopping",
        extra={
            "reason": why.name if why else "supervisor_gone",
            "running": serving.running,
            "grace": f"{grace:g}s",
        },
    )
    serving.stop(grace)


def end_at_once(number: Signal, log: LineHandler) -> None:
    """Runs in a signal handler. Leases stay behind; whoever finds this process gone takes over."""
    logger.warning("Ending at once, others take over", extra={"reason": number.name})
    writing = threading.Thread(target=log.flush, daemon=True)
    writing.start()
    writing.join(0.5)
    os._exit(128 + number)


# -- options -------------------------------------------------------------------------------------


def _application(target: str | None) -> Evenbeat:
    """The application that is named, or one without tasks of its own."""
    app = Evenbeat() if target is None else load_app(target)
    if target is None and not app.settings.builtin_tasks:
        raise InvalidInput(
            "There is nothing to run: no --app is given, and EVENBEAT_BUILTIN_TASKS is off. Name "
            "the application whose jobs to run, such as --app shop.tasks:app.",
            field="app",
        )
    return app


def with_builtins(app: Evenbeat) -> Evenbeat:
    """The application with the built-in tasks beside its own, unless the settings say no."""
    if app.settings.builtin_tasks:
        app.include_builtins()
    return app


def configured(app: Evenbeat, concurrency: int | None, database: str | None) -> Evenbeat:
    if database is not None and not database.strip():
        raise InvalidInput("--database is empty. Leave it out, or give a URL.", field="database")
    given = {"concurrency": concurrency, "database_url": database}
    if chosen := {name: value for name, value in given.items() if value is not None}:
        app.configure(**chosen)
    return app


def _split(queues: Sequence[str] | None) -> list[str] | None:
    if not queues:
        return None
    names = [name.strip() for given in queues for name in given.split(",")]
    if not all(names):
        raise InvalidInput("--queues has an empty name in it.", field="queues")
    return list(dict.fromkeys(names))


def _ports(first: int | None, processes: int) -> list[list[str]]:
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


def _command(options: Mapping[str, object]) -> list[str]:
    """What a process under the supervisor runs: this very command, for one process."""
    given = [f"{name}={value}" for name, value in options.items() if value is not None]
    return [sys.executable, "-m", "evenbeat", "worker", *given]


# -- telling what is served ----------------------------------------------------------------------


def check_database(settings: Settings) -> None:
    """Fail now, with the reason; the pools would try for half a minute first."""
    if settings.database_url is not None:
        database = Database(settings.database_url.get_secret_value(), schema=settings.db_schema)
        database.connect().close()


def _description(
    app: Evenbeat, target: str, queues: list[str] | None, report: SyncReport
) -> dict[str, object]:
    changes = {
        "created": report.created,
        "updated": report.updated,
        "resumed": report.resumed,
        "stopped": report.stopped,
        "removed": report.removed,
    }
    return {
        "app": target,
        "tasks": some(app.registry.named()),
        "queues": ",".join(queues or ["*"]),
        "database": database_place(app.settings),
        "schedules": len(app.schedules),
    } | {f"schedules_{name}": some(labels) for name, labels in changes.items() if labels}


def some(names: Sequence[str]) -> str:
    shown = ",".join(names[:_MOST_NAMES])
    return shown if len(names) <= _MOST_NAMES else f"{shown},… ({len(names)})"


def database_place(settings: Settings) -> str:
    """Where the database is, without who may enter it and how."""
    if settings.database_url is None:
        return f"embedded:{_short(settings.server_dir)}"
    return place_of(settings.database_url.get_secret_value())


def _short(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
