"""A service that strangers try to wear down: real connections to a real `evenbeat serve`."""

import json
import random
import resource
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from subprocess import PIPE
from typing import Any
from uuid import UUID

import httpx
import psutil
import pytest
from real_processes import Running, Start

from evenbeat.api.auth.tokens import Access, Role
from evenbeat.crawl.child import MOST_TEXT, CrawledPage
from evenbeat.crawl.documents import Documents, Lease
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.settings import load_settings
from evenbeat.store.store import Store
from waiting import stretched, wait_for

MIB = 2**20
HEALTH_SECONDS = 0.25
HOLD = """
import time
from evenbeat import Evenbeat
app = Evenbeat()

@app.task(max_retries=0)
def hold(): time.sleep(600)
"""

WATCH = """
import http.client, select, sys, time

while not select.select([sys.stdin], [], [], 0.005)[0]:
    begun = time.perf_counter()
    line = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=20)
    line.request("GET", "/healthz")
    assert line.getresponse().status == 200
    line.close()
    print(time.perf_counter() - begun, flush=True)
"""
"""A machine that asks for health; no thread of the attackers' process, where it would wait for them
to give up the interpreter."""


class Service:
    """The process, where it listens, and how it fares."""

    def __init__(self, running: Running, port: int, store: Store) -> None:
        self.running = running
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self._process = psutil.Process(running.process.pid)
        self._store = store

    @property
    def memory(self) -> int:
        return int(self._process.memory_info().rss)

    @property
    def open_lines(self) -> int:
        return sum(
            one.status == "ESTABLISHED" and one.laddr.port == self.port
            for one in self._process.net_connections("tcp")
        )

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
        """What strangers do meanwhile costs little memory, running jobs keep their leases, and
        health is answered all the time."""
        held = self._store.add(NewJob(JobSpec("hold"), {})).id

        def state() -> tuple[str, UUID | None]:
            job = self._store.read.job(held)
            return job.status, job.lock_token

        wait_for(lambda: state()[0] == "running", "the job to run")
        leased, before = state(), self.memory
        command = [sys.executable, "-c", WATCH, str(self.port)]
        with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) as watching:
            assert watching.stdin is not None
            assert watching.stdout is not None
            usual = [float(watching.stdout.readline()) for _ in range(100)]
            yield
            watching.stdin.close()
            times = [float(text) for text in watching.stdout]
        assert watching.returncode == 0, "a health check failed"
        grown = (self.memory - before) / MIB
        slowest = sorted(times)[int(len(times) * 0.99)]
        print(  # noqa: T201
            f"grown by {grown:.0f} MiB; 99 % of {len(times)} health checks within "
            f"{slowest * 1000:.0f} ms ({sorted(usual)[98] * 1000:.0f} before)"
        )
        assert state() == leased, "the job has lost its lease"
        assert grown < 50
        assert slowest < stretched(HEALTH_SECONDS)


@pytest.fixture
def service(start: Start, tmp_path: Path, database_url: str, store: Store) -> Service:
    (tmp_path / "holding.py").write_text(HOLD)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = start(
        *("-m", "evenbeat", "serve", "--app", "holding:app", "--port", str(port)),
        EVENBEAT_DATABASE_URL=database_url,
        EVENBEAT_DATA_DIR=str(tmp_path / "data"),
        EVENBEAT_LEASE_SECONDS="5",
        EVENBEAT_RENEW_SECONDS="1",
    )
    service = Service(running, port, store)
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
    def attack(number: int) -> bytes:
        body = LARGE if number % 16 == 0 else LARGE[:MIB]
        with service.line() as line:
            try:
                line.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            except OSError:
                return b"cut off"
            return line.recv(12)

    assert len(LARGE) > 6 * MIB
    with service.endures(), ThreadPoolExecutor(10) as pool:
        answers = set(pool.map(attack, range(1000)))
    assert answers <= {b"HTTP/1.1 401", b"cut off"}


def test_bodies_that_never_end_and_bodies_byte_by_byte_take_no_memory(service: Service):
    short = POST + b"Content-Length: %d\r\n\r\n" % len(LARGE)
    small = POST + b"Content-Length: 60000\r\n\r\n" + b"[" * 59_999
    trickle = POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n[\r\n" * 50_000
    with service.endures(), ExitStack() as stack:
        for data in [short + LARGE[:60_000]] * 400 + [small] * 500 + [trickle] * 100:
            with suppress(OSError):  # closed while it sends
                stack.enter_context(service.line(data))
        time.sleep(2)


def test_silent_lines_are_closed_and_keep_nobody_out(service: Service, many: int):
    beginnings = [b"", b"GET /healthz HTTP/1.1\r\nHo"]
    with service.endures(), ExitStack() as stack:
        lines = [stack.enter_context(service.line(beginnings[n % 2])) for n in range(many)]
        assert len(service.running.lines) < 50
        begun = time.monotonic()
        for line in (lines[0], lines[-1], lines[-2]):
            line.settimeout(60)
            with suppress(ConnectionResetError):
                assert line.recv(1) == b""
        assert time.monotonic() - begun < 45


@pytest.fixture
def small_service(many: int, request: pytest.FixtureRequest) -> Service:
    """One that may open 1,000 descriptors, and so has places for 500 lines."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1000, limits[1]))
    service: Service = request.getfixturevalue("service")
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    return service


UNFINISHED = {
    "a small body": POST + b"Content-Length: 6000\r\n\r\n[",
    "a large body": POST + b"Content-Length: 60000\r\n\r\n[",
    "nothing more": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("data", UNFINISHED.values(), ids=UNFINISHED)
def test_lines_that_take_every_place_make_room_for_others(small_service: Service, data: bytes):
    with small_service.endures(), ExitStack() as stack:
        for number in range(1000):
            with suppress(OSError):
                stack.enter_context(small_service.line(data))
            if number % 20 == 0:
                time.sleep(0.1)  # it is their number that counts, not their pace
        time.sleep(2)


def test_a_rush_of_lines_takes_no_more_places(small_service: Service):
    with small_service.endures(), ExitStack() as stack, ThreadPoolExecutor(20) as pool:
        for line in pool.map(lambda _: small_service.line(), range(1500)):
            stack.enter_context(line)
        time.sleep(1)
        assert 400 < small_service.open_lines <= 520
        time.sleep(2)
    assert len(small_service.running.lines) < 50


def test_answers_that_nobody_reads_are_given_up(service: Service):
    ask = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with service.endures(), ExitStack() as stack:
        lines = []
        for number in range(1000):
            line = stack.enter_context(socket.socket())
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            line.settimeout(20)
            line.connect(("127.0.0.1", service.port))
            line.sendall(ask * (1 + number % 2 * 20))
            lines.append(line)
        wait_for(lambda: service.open_lines < 50, "the service to close them")


def test_requests_sent_ahead_take_no_memory(service: Service):
    ahead = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 300
    with service.endures(), ExitStack() as stack:
        for number in range(1000):
            with suppress(OSError):
                stack.enter_context(service.line(ahead))
            if number % 20 == 0:
                time.sleep(0.1)
        time.sleep(1)
    assert len(service.running.lines) < 50


# -- with a viewer's token -------------------------------------------------------------------------


class Viewers:
    """People who may look, and who ask for what takes long, over and over."""

    def __init__(self, service: Service, store: Store, token: Callable[..., str]) -> None:
        self.service = service
        self.store = store
        self._token = token

    def client(self, role: Role = Role.VIEWER) -> httpx.Client:
        """A caller of its own."""
        headers = {"Authorization": f"Bearer {self._token(role)}"}
        return httpx.Client(base_url=self.service.url, headers=headers, timeout=60)

    def attack(
        self, path: str, *bodies: Any, times: int = 1000, clients: int = 20
    ) -> tuple[Counter[int], str]:
        """Ask so often, on so many lines at once. Returns how often each status was answered, and
        the last answer."""
        begun = time.monotonic()
        with self.client() as client, self.service.endures(), ThreadPoolExecutor(clients) as pool:

            def ask(number: int) -> httpx.Response:
                assert time.monotonic() - begun < 200, "this goes on for ever"
                if not bodies:
                    return client.get(path)
                return client.post(path, json=bodies[number % len(bodies)])

            answers = list(pool.map(ask, range(times)))
        print(f"{times} answers in {time.monotonic() - begun:.1f} s")  # noqa: T201
        statuses = Counter(answer.status_code for answer in answers)
        assert statuses.keys() <= {200, 413, 422, 429}, statuses
        return statuses, answers[-1].text


@pytest.fixture
def viewers(service: Service, store: Store, tmp_path: Path, database_url: str) -> Viewers:
    settings = load_settings(database_url=database_url, data_dir=tmp_path / "data")
    access = Access.of(settings, store)

    def token(role: Role) -> str:
        return access.issue(role, timedelta(hours=1), subject=role.value).token

    return Viewers(service, store, token)


def test_patterns_of_a_template(viewers: Viewers):
    parameters = {f"p{n}": {"pattern": f".*a.{{1,40{n}}}b.{{1,400}}"} for n in range(6)}
    template = {
        "name": "heavy",
        "parameters": parameters,
        "body": {"task": "hold", "payload": {name: f"{{{{{name}}}}}" for name in parameters}},
    }
    with viewers.client(Role.OPERATOR) as operator:
        assert operator.post("/api/v1/templates", json=template).status_code == 201
    letters = "".join(random.Random(23).choices("ab", k=9_900))  # noqa: S311
    short, long = ({f"p{n}": letters[:size] for n in range(6)} for size in (300, 9_900))
    statuses, last = viewers.attack(
        "/api/v1/templates/heavy/preview", {"parameters": short}, {"parameters": long}
    )
    assert statuses == {200: 500, 413: 500}, last
    assert "too long for patterns" in last


def test_previews_of_rare_dates(viewers: Viewers):
    zones = ["America/Sao_Paulo", "Asia/Tehran", "Europe/Berlin", "Africa/Casablanca"]
    rare = [
        {"schedule": schedule, "timezone": zone, "count": 100}
        for zone in zones
        for schedule in ("0 0 */28 2 mon#5", "0 0 29 2 */7", "0 0 1 1 *", "0 0 */30 2 mon#5")
    ]
    viewers.attack("/api/v1/schedules/preview", *rare)


def test_the_openapi_document(viewers: Viewers):
    statuses, _ = viewers.attack("/openapi.json")
    assert statuses == {200: 1000}


def test_a_search_that_goes_on_for_nobody(viewers: Viewers):
    with viewers.store.database.transaction() as connection:
        connection.execute("LOCK TABLE evenbeat.documents IN ACCESS EXCLUSIVE MODE")
        with viewers.client() as client, ThreadPoolExecutor(20) as pool:

            def give_up(_: int) -> None:
                with suppress(httpx.TimeoutException):
                    client.get("/api/v1/documents?q=moon", timeout=0.1)

            with viewers.client(Role.OPERATOR) as other, viewers.service.endures():
                asked = pool.map(give_up, range(1000))
                for _ in range(20):
                    begun = time.monotonic()
                    assert other.get("/api/v1/jobs").status_code == 200
                    assert time.monotonic() - begun < 5
                list(asked)


def test_health_is_answered_where_all_lines_are_at_work(small_service: Service, viewers: Viewers):
    with viewers.client() as client, viewers.store.database.transaction() as connection:
        connection.execute("LOCK TABLE evenbeat.documents IN ACCESS EXCLUSIVE MODE")
        head = "".join(f"{name}: {value}\r\n" for name, value in client.headers.items())
        ask = f"GET /api/v1/documents?q=moon HTTP/1.1\r\nHost: localhost\r\n{head}\r\n".encode()
        with small_service.endures(), ExitStack() as stack:
            begun, lines = time.monotonic(), []
            for number in range(1000):
                lines.append(stack.enter_context(small_service.line(ask)))
                if number % 20 == 0:
                    time.sleep(0.1)
            answers = Counter(line.recv(12) for line in lines)
    assert time.monotonic() - begun < 30
    assert answers.keys() <= {b"HTTP/1.1 429", b"HTTP/1.1 503"}, answers


def test_searches_over_long_pages(viewers: Viewers):
    keep_long_pages(viewers.store)
    many = " or ".join(f"w{n}" for n in range(40))
    statuses, last = viewers.attack(f"/api/v1/documents?q={many}")
    assert statuses[200]
    with viewers.client() as client:
        begun = time.monotonic()
        found = client.get("/api/v1/documents", params={"limit": 100, "q": "moon -zebra"}).json()
        assert time.monotonic() - begun < 5, last
    assert len(found["documents"]) == 100
    assert found["total"] == 300
    assert all("<mark>moon</mark>" in one["snippet"] for one in found["documents"])


def keep_long_pages(store: Store) -> None:
    """300 pages as long as pages may be, each with words that the others have as well."""
    chance = random.Random(23)  # noqa: S311
    words = ["moon", *(f"w{n}" for n in range(40))]
    store.add(NewJob(JobSpec("not_here"), {}))
    (job,) = store.claim(UUID(int=1), 1, tasks=["not_here"])
    assert job.lock_token is not None
    lease, documents = Lease(job.id, job.lock_token), Documents(store.database)
    documents.begin(lease, "long", "https://a.b", "Long")
    for batch in range(30):
        pages = [
            CrawledPage(f"https://a.b/{n}", f"a.b/{n}", f"Page {n}", text, 1)
            for n in range(batch * 10, batch * 10 + 10)
            for text in [" ".join(chance.choices(words, k=MOST_TEXT // 3))[:MOST_TEXT]]
        ]
        documents.save(lease, "long", pages)
