"""/metrics, /healthz and /readyz of a process that serves no API, on a port of their own.

Anyone who reaches the port may read, so it is bound to this machine unless told otherwise.
"""

import json
import logging
import os
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from evenbeat.errors import InvalidInput
from evenbeat.observe.metrics import Metrics
from evenbeat.observe.readiness import ReadinessReport

logger = logging.getLogger(__name__)

SLOWEST_CLIENT_SECONDS = 10
MOST_CLIENTS = 50
"""Each has a thread. One more, and the one that came first is cut off."""


class MetricsServer(ThreadingHTTPServer):
    """A small HTTP server on a thread of its own. It is bound, and may fail, when it is made."""

    daemon_threads = True

    def __init__(
        self, metrics: Metrics, readiness: Callable[[], ReadinessReport], *, host: str, port: int
    ) -> None:
        self.metrics = metrics
        self.readiness = readiness
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            number = getattr(error, "errno", None)
            reason = os.strerror(number) if number and number > 0 else str(error)
            raise InvalidInput(
                f"Cannot serve metrics on {host}, port {port}: {reason}. Choose another with "
                "--metrics-host and --metrics-port (0 takes any free one).",
                field="metrics_port",
            ) from None
        self._clients: OrderedDict[socket.socket, None] = OrderedDict()
        self._thread = threading.Thread(
            target=self.serve_forever, name="evenbeat-metrics", daemon=True
        )

    def start(self) -> None:
        self._thread.start()
        host, port = str(self.server_address[0]), self.server_address[1]
        host = f"[{host}]" if ":" in host else host
        logger.info("Serving metrics", extra={"url": f"http://{host}:{port}/metrics"})

    def stop(self) -> None:
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join(timeout=5)
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer it on a thread of its own; where that is one too many, the oldest makes room."""
        self._clients[request] = None
        if len(self._clients) > MOST_CLIENTS:
            oldest, _ = self._clients.popitem(last=False)
            with suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """It has been answered."""
        self._clients.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002
        """A client that went away is nobody's error; a bug of ours is a log line."""
        logger.debug("A metrics request broke off", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: MetricsServer
    timeout = SLOWEST_CLIENT_SECONDS
    server_version, sys_version = "evenbeat", ""

    def do_GET(self) -> None:
        code, content_type = 200, "application/json"
        content: object = {"status": "ok"}
        match self.path.partition("?")[0]:
            case "/healthz":
                pass
            case "/metrics":
                content, content_type = self.server.metrics.render(self.headers.get("Accept", ""))
            case "/readyz":
                report = self.server.readiness()
                status = "ready" if report.ready else "not ready"
                code = 200 if report.ready else 503
                content = {"status": status, "checks": report.checks}
            case _:
                code, content = 404, {"detail": "There are /metrics, /healthz and /readyz."}
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 - the base class's name

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        logger.debug("Metrics request", extra={"request": format % args})
