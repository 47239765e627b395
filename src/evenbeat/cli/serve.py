"""`evenbeat serve`: API, dashboard, worker and maintenance in one process."""

import ipaddress
import os
import socket
import threading
from datetime import timedelta
from typing import Annotated

from rich.text import Text

from evenbeat import __version__
from evenbeat.api.auth.tokens import Access, Role
from evenbeat.api.connections import LimitedServer
from evenbeat.app import Evenbeat
from evenbeat.asgi import asgi
from evenbeat.cli.app_loader import database_place, patiently, served_app
from evenbeat.cli.output import console
from evenbeat.cli.processes import tune_process
from evenbeat.cli.session import DatabaseOption, flag, option
from evenbeat.cli.worker import (
    LAST_PORT,
    AppOption,
    LogFormatOption,
    LogLevelOption,
    opened,
    shortened,
    start_anew,
    stop_worker,
)
from evenbeat.errors import InvalidInput
from evenbeat.observe.logs import LogFormat, configure_logging

_CLOSING_SECONDS = 3


def serve(  # noqa: PLR0917 - the options are named on the command line
    app: AppOption = None,
    host: Annotated[str, option("ADDRESS", "Where to listen.")] = "127.0.0.1",
    port: Annotated[
        int, option("PORT", "Where to listen; 0: any free.", min=0, max=LAST_PORT)
    ] = 8060,
    database: DatabaseOption = None,
    no_worker: Annotated[
        bool, flag("--no-worker", "Serve only; run no jobs in this process.")
    ] = False,
    no_auth: Annotated[
        bool, flag("--no-auth", "Let everyone in as admin. Only on a loopback address.")
    ] = False,
    log_format: LogFormatOption = LogFormat.CONSOLE,
    log_level: LogLevelOption = "info",
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
    loaded = served_app(app, database=database)
    listener = _listen(host, port)
    with opened(loaded, log) as signals:
        access = Access.open() if no_auth else Access.of(loaded.settings, loaded.store)
        worker = None
        if not no_worker:
            worker = patiently(loaded.settings, loaded.worker)
        api = asgi(loaded, access=access, worker=worker)
        server = LimitedServer(
            api,
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            forwarded_allow_ips=list(loaded.settings.trusted_proxies),
            timeout_graceful_shutdown=_CLOSING_SECONDS,
            lifespan="off",
        )
        # On a thread of its own: signals stay with the command, and the API goes on answering
        # while the worker drains.
        serving = threading.Thread(
            target=server.run, args=([listener],), name="evenbeat-http", daemon=True
        )
        tune_process()
        serving.start()
        if worker is not None:
            patiently(loaded.settings, worker.start)
        _show_banner(loaded, access, url_of(listener), with_worker=worker is not None)
        worn_out = None
        while not (arrived := signals.take()) and serving.is_alive():
            if worker is not None and (worn_out := worker.worn_out()):
                break
            signals.wait(timeout=1)
        if worker is not None:
            stop_worker(worker, loaded.settings, arrived[0] if arrived else worn_out)
        api.state.broadcaster.close()
        server.should_exit = True
        serving.join(timeout=_CLOSING_SECONDS + 2)
    if worn_out:
        listener.close()
        start_anew()
    return 0 if arrived else 1


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise InvalidInput(
            f"Cannot listen on {host}, port {port}: {reason}. Choose another with --host and "
            "--port (0 takes any free one).",
            field="port",
        ) from None


def url_of(listener: socket.socket) -> str:
    """The address for a browser on this machine."""
    host, port = listener.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _show_banner(app: Evenbeat, access: Access, url: str, *, with_worker: bool) -> None:
    out = console()
    if access.is_open:
        sign_in = "not needed (--no-auth)"
    elif access.can_issue and not out.is_terminal:  # a log may be kept, and read by others
        sign_in = f"evenbeat token login --url {url}   (prints a link)"
    elif access.can_issue:
        code = access.login_code(Role.ADMIN, ttl=timedelta(minutes=10))
        sign_in = f"{url}/login?code={code}   (once, within 10 minutes)"
    else:
        sign_in = "with a token of your identity provider"
    tasks = shortened(app.registry.named())
    lines = {
        "Dashboard": f"{url}/",
        "API": f"{url}/docs",
        "Sign in": sign_in,
        "Database": database_place(app.settings),
        "Worker": f"running here: {tasks}" if with_worker else "none here (--no-worker)",
    }
    out.print(Text(f"\nEvenbeat {__version__}", style="bold"))
    for label, value in lines.items():
        out.print(Text(f"  {label:<10} ", style="dim") + Text(value), soft_wrap=True)
    out.print()
