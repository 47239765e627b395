"""`evenbeat serve`: API, dashboard, worker and maintenance in one process."""

import ipaddress
import logging
import os
import socket
import threading
from contextlib import suppress
from datetime import timedelta
from typing import Annotated

import typer
import uvicorn
from rich.console import Console
from rich.text import Text

from evenbeat import __version__
from evenbeat.api.auth.tokens import Access, Role
from evenbeat.app import Evenbeat
from evenbeat.asgi import asgi
from evenbeat.cli.app_loader import load_app
from evenbeat.cli.signals import Signals
from evenbeat.cli.tuning import settle_process
from evenbeat.cli.worker import (
    check_database,
    configured,
    database_place,
    end_at_once,
    some,
    stop_worker,
    with_builtins,
)
from evenbeat.engine.worker import Worker
from evenbeat.errors import InvalidInput
from evenbeat.observe.logs import LogFormat, configure_logging

logger = logging.getLogger("evenbeat.serve")

LOGIN_LINK_LIVES = timedelta(minutes=10)
_CLOSING_SECONDS = 3


def serve(  # noqa: PLR0917 - the options are named on the command line
    app: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:ATTRIBUTE",
            help="The application: shop.tasks:app, or path/to/tasks.py:app. "
            "Default: one with the built-in tasks only.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="Where to listen; 0: any free.")
    ] = 8060,
    database: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The PostgreSQL database, before all other settings. Other users of this machine "
            "can see arguments: a password is better kept in EVENBEAT_DATABASE_URL.",
        ),
    ] = None,
    no_worker: Annotated[
        bool, typer.Option("--no-worker", help="Serve only; run no jobs in this process.")
    ] = False,
    no_auth: Annotated[
        bool,
        typer.Option("--no-auth", help="Let everyone in as admin. Only on a loopback address."),
    ] = False,
    log_format: Annotated[
        LogFormat, typer.Option(help="Log lines for people or for machines, on standard error.")
    ] = LogFormat.CONSOLE,
    log_level: Annotated[
        str, typer.Option(metavar="LEVEL", help="debug, info, warning, error or critical.")
    ] = "info",
) -> int:
    """Serve the API and the dashboard, and run jobs, until stopped.

    Nothing needs to be configured: without a database URL a private PostgreSQL server is started.
    SIGTERM or Ctrl-C stops with grace, a second one at once, as with `evenbeat worker`.
    """
    log = configure_logging(log_format, log_level)
    if no_auth and not is_loopback(host):
        raise InvalidInput(
            f"--no-auth lets everyone in, so it is allowed on a loopback address only, and "
            f"{host} is none. Leave it out, or use --host 127.0.0.1.",
            field="no_auth",
        )
    loaded = with_builtins(configured(load_app(app) if app else Evenbeat(), None, database))
    listening = _listen(host, port)
    with Signals(on_second=lambda number: end_at_once(number, log)) as signals:
        check_database(loaded.settings)
        with loaded:
            access = Access.open() if no_auth else Access.of(loaded.settings, loaded.store)
            worker = _worker(loaded, no_worker)
            server = _Server(asgi(loaded, access=access, worker=worker), listening)
            settle_process()
            server.start()
            if worker is not None:
                worker.start()
            _banner(loaded, access, url_of(listening), worker)
            while not (arrived := signals.take()) and server.alive:
                signals.wait(timeout=1)
            if worker is not None:
                stop_worker(worker, loaded.settings, arrived[0] if arrived else None)
            server.stop()
    return 0 if arrived else 1


def _worker(app: Evenbeat, no_worker: bool) -> Worker | None:
    if no_worker:
        return None
    app.sync_schedules()
    return app.worker()


class _Server:
    """uvicorn on a thread of its own: signals stay with the command, and the API goes on answering
    while the worker drains."""

    def __init__(self, api: object, listening: socket.socket) -> None:
        config = uvicorn.Config(
            api,  # type: ignore[arg-type]
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_CLOSING_SECONDS,
            lifespan="off",
        )
        self._server = uvicorn.Server(config)
        self._listening = listening
        self._thread = threading.Thread(target=self._run, name="evenbeat-http", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=_CLOSING_SECONDS + 2)

    def _run(self) -> None:
        self._server.run(sockets=[self._listening])


# -- where to listen -----------------------------------------------------------------------------


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listen(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
        with suppress(OSError):
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
        listening.set_inheritable(False)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise InvalidInput(
            f"Cannot listen on {host}, port {port}: {reason}. Choose another with --host and "
            "--port (0 takes any free one).",
            field="port",
        ) from None
    return listening


def url_of(listening: socket.socket) -> str:
    """The address for a browser on this machine."""
    host, port = listening.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


# -- saying hello --------------------------------------------------------------------------------


def _banner(app: Evenbeat, access: Access, url: str, worker: Worker | None) -> None:
    lines = {"Dashboard": f"{url}/", "API": f"{url}/docs"}
    if access.is_open:
        lines["Sign in"] = "not needed (--no-auth)"
    elif access.can_issue:
        code = access.login_code(Role.ADMIN, ttl=LOGIN_LINK_LIVES)
        lines["Sign in"] = f"{url}/login?code={code}   (once, within 10 minutes)"
    else:
        lines["Sign in"] = "with a token of your identity provider"
    lines["Database"] = database_place(app.settings)
    tasks = some(app.registry.named())
    lines["Worker"] = "none here (--no-worker)" if worker is None else f"running here: {tasks}"
    console = Console(highlight=False, soft_wrap=True)
    console.print(Text(f"\nEvenbeat {__version__}", style="bold"))
    for label, value in lines.items():
        console.print(Text(f"  {label:<10} ", style="dim") + Text(value))
    console.print()
