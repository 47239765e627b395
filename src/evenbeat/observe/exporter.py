"""/metrics, /healthz and /readyz of a process that serves no API, on a port of their own.

Whoever reaches the port may read: it is bound to this machine unless told otherwise.
"""

import json
import logging
import os
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from evenbeat.errors import InvalidInput
from evenbeat.observe.metrics import Metrics
from evenbeat.observe.readiness import Report

logger = logging.getLogger(__name__)

SLOWEST_CLIENT_SECONDS = 10


class Answer(NamedTuple):
    """What a path has to say."""

    status: HTTPStatus
    content_type: str
    body: bytes


class Exporter:
    """A small HTTP server on a thread of its own. It is bound, and may fail, when it is made."""

    def __init__(
        self, metrics: Metrics, readiness: Callable[[], Report], *, host: str, port: int
    ) -> None:
        self._metrics = metrics
        self._readiness = readiness
        self._server = _bind(host, port, self._handler())
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="evenbeat-metrics", daemon=True
        )

    @property
    def address(self) -> str:
        """Where it listens."""
        host, port = self._server.server_address[:2]
        shown = host.decode() if isinstance(host, bytes | bytearray) else str(host)
        return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"

    def start(self) -> None:
        """Answer from now on."""
        self._thread.start()
        logger.info("Serving metrics", extra={"url": f"{self.address}/metrics"})

    def stop(self) -> None:
        """Answer no more."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(timeout=5)
        self._server.server_close()

    def answer(self, path: str, accept: str) -> Answer:
        """What a GET of the path gets."""
        match path.partition("?")[0]:
            case "/metrics":
                body, content_type = self._metrics.render(accept)
                return Answer(HTTPStatus.OK, content_type, body)
            case "/healthz":
                return _json(HTTPStatus.OK, {"status": "ok"})
            case "/readyz":
                report = self._readiness()
                status = HTTPStatus.OK if report.ready else HTTPStatus.SERVICE_UNAVAILABLE
                said = "ready" if report.ready else "not ready"
                return _json(status, {"status": said, "checks": report.checks})
            case _:
                there = "There are /metrics, /healthz and /readyz."
                return _json(HTTPStatus.NOT_FOUND, {"detail": there})

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        answer = self.answer

        class Handler(BaseHTTPRequestHandler):
            timeout = SLOWEST_CLIENT_SECONDS
            server_version, sys_version = "evenbeat", ""

            def do_GET(self) -> None:
                status, content_type, body = answer(self.path, self.headers.get("Accept", ""))
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Cache-Control", "no-store")
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_HEAD = do_GET  # noqa: N815 - the base class's name

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                logger.debug("Metrics request", extra={"request": format % args})

        return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002
        """A client that went away is nobody's error; a bug of ours is a log line."""
        logger.debug("A metrics request broke off", exc_info=True)


class _Server6(_Server):
    address_family = socket.AF_INET6


def _bind(host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    try:
        return (_Server6 if ":" in host else _Server)((host, port), handler)
    except (OSError, OverflowError) as error:
        number = getattr(error, "errno", None)
        reason = os.strerror(number) if number and number > 0 else str(error)
        raise InvalidInput(
            f"Cannot serve metrics on {host}, port {port}: {reason}. Choose another with "
            "--metrics-host and --metrics-port (0 takes any free one).",
            field="metrics_port",
        ) from None


def _json(status: HTTPStatus, content: object) -> Answer:
    return Answer(status, "application/json", json.dumps(content).encode())
