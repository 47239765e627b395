"""A service that strangers try to wear down: real connections to a real `evenbeat serve`."""

import json
import resource
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import psutil
import pytest
from real_processes import Running, Start

from waiting import wait_for

MIB = 2**20
HOLD = """
import time
from evenbeat import Evenbeat
app = Evenbeat()

@app.task(max_retries=0)
def hold(): time.sleep(600)
"""


class Service:
    """The process, where it listens, and how it fares."""

    def __init__(self, running: Running, port: int) -> None:
        self.running = running
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self._process = psutil.Process(running.process.pid)

    @property
    def memory(self) -> int:
        return int(self._process.memory_info().rss)

    def line(self, data: bytes = b"") -> socket.socket:
        """A connection that has sent this and waits."""
        line = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        line.sendall(data)
        return line

    def health_ms(self) -> float:
        begun = time.perf_counter()
        assert httpx.get(f"{self.url}/healthz", timeout=20).status_code == 200
        return (time.perf_counter() - begun) * 1000

    @contextmanager
    def endures(self) -> Iterator[None]:
        """What strangers do meanwhile costs little memory, and health is answered all the time."""
        before, stop, times = self.memory, [], []

        def watch() -> None:
            while not stop:
                times.append(self.health_ms())
                time.sleep(0.02)

        with ThreadPoolExecutor(1) as pool:
            watching = pool.submit(watch)
            try:
                yield
            finally:
                stop.append(True)
                watching.result(60)
        grown = (self.memory - before) / MIB
        slowest = sorted(times)[int(len(times) * 0.99)]
        print(f"grown by {grown:.0f} MiB; 99 % of health checks within {slowest:.0f} ms")  # noqa: T201
        assert grown < 50
        assert slowest < 2500, "on a busy machine; alone it is a tenth of that"


@pytest.fixture
def service(start: Start, tmp_path: Path, database_url: str) -> Service:
    (tmp_path / "holding.py").write_text(HOLD)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = start(
        *("-m", "evenbeat", "serve", "--app", "holding:app", "--port", str(port)),
        EVENBEAT_DATABASE_URL=database_url,
        EVENBEAT_DATA_DIR=str(tmp_path / "data"),
    )
    service = Service(running, port)
    running.wait_for_line("Sign in")
    wait_for(lambda: httpx.get(f"{service.url}/readyz").status_code == 200, "ready")
    for _ in range(20):
        service.health_ms()
    return service


@pytest.fixture
def many() -> Iterator[int]:
    """As many lines as this process may open: more than the service accepts, where it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield 5000 if hard == resource.RLIM_INFINITY else min(5000, hard - 200)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


POST = b"POST /api/v1/jobs/bulk HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
LARGE = json.dumps({"jobs": [{"task": "x", "payload": {"n": n}} for n in range(190_000)]}).encode()


def test_large_bodies_without_a_token_are_not_read(service: Service):
    length = b"Content-Length: %d\r\n\r\n" % len(LARGE)

    def attack(_: int) -> bytes:
        with service.line() as line:
            try:
                line.sendall(POST + length + LARGE)
            except OSError:
                return b"cut off"
            return line.recv(12)

    assert len(LARGE) > 6 * MIB
    with service.endures(), ThreadPoolExecutor(10) as pool:
        answers = set(pool.map(attack, range(60)))
    assert answers <= {b"HTTP/1.1 401", b"cut off"}


def test_bodies_that_never_end_and_bodies_byte_by_byte_take_no_memory(service: Service):
    short = POST + b"Content-Length: %d\r\n\r\n" % len(LARGE)
    small = POST + b"Content-Length: 60000\r\n\r\n" + b"[" * 59_999
    trickle = POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n[\r\n" * 50_000
    with service.endures(), ExitStack() as stack:
        for data in [short + LARGE[:60_000]] * 60 + [small] * 60 + [trickle] * 20:
            with suppress(OSError):  # closed while it sends
                stack.enter_context(service.line(data))
        time.sleep(2)


def test_silent_lines_are_closed_and_keep_nobody_out(service: Service, many: int):
    beginnings = [b"", b"GET /healthz HTTP/1.1\r\nHo"]
    with ExitStack() as stack:
        with service.endures():
            lines = [stack.enter_context(service.line(beginnings[n % 2])) for n in range(many)]
            assert len(service.running.lines) < 50
        begun = time.monotonic()
        for line in (lines[0], lines[-1], lines[-2]):
            line.settimeout(60)
            with suppress(ConnectionResetError):
                assert line.recv(1) == b""
        assert time.monotonic() - begun < 45
    service.health_ms()
