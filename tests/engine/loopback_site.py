"""A real web server on a loopback address, whose answers a test scripts and whose visitors it
remembers."""

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

Reply = tuple[int, dict[str, str], bytes]


class Seen(NamedTuple):
    """A request as it arrived, the names of its headers in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


class Site:
    """Answers by path; `answer` may be a reply or a function of the request."""

    def __init__(self, address: str, tls: ssl.SSLContext | None = None) -> None:
        self.seen: list[Seen] = []
        self.answers: dict[str, Reply | Callable[[Seen], Reply]] = {}
        self.gate = threading.Event()
        self.server = _Server((address, 0), self._handler())
        if tls is not None:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_port
        self.url = f"{'https' if tls else 'http'}://{address}:{self.port}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        site = self

        class Handler(BaseHTTPRequestHandler):
            def respond(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                headers = {name.lower(): value for name, value in self.headers.items()}
                seen = Seen(self.command, self.path, headers, self.rfile.read(length))
                site.seen.append(seen)
                reply = site.answers.get(self.path, (404, {}, b"nothing here"))
                status, headers, body = reply(seen) if callable(reply) else reply
                self.send_response(status)
                for name, value in {"content-length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_HEAD = do_POST = do_PUT = do_OPTIONS = respond  # noqa: N815

            def log_message(self, *_: object) -> None: ...

        return Handler


@contextmanager
def serving(address: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> Iterator[Site]:
    """A site that is up while the block runs."""
    site = Site(address, tls)
    thread = threading.Thread(target=site.server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield site
    finally:
        site.gate.set()
        site.server.shutdown()
        site.server.server_close()
        thread.join()
