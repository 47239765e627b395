"""Bytes that are no request, or hardly one, sent to a real `evenbeat serve`.

`EVENBEAT_FUZZ=full` sends twenty times as many (`make fuzz`).
"""

import os
import random
import re
import socket
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
from real_processes import Start
from said import Command

from loopback import SECRET
from waiting import wait_for

FULL = os.environ.get("EVENBEAT_FUZZ") == "full"
REQUESTS = 40_000 if FULL else 2_000
SECONDS = 900 if FULL else 90
SEED = int(os.environ.get("EVENBEAT_FUZZ_SEED", "23"))

BY_HAND = [
    b"",
    b"\r\n" * 50,
    b"\x00" * 500,
    b"\xff" * 5_000,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x5a" * 200,  # a TLS greeting
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
    b"GET  /  HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.0\r\n\r\n",
    b"G\xc3\x84T / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /%00%ff%c0%ae/../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /\xff\xfe\x80 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET //evil.example/%2f..// HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET http://[::1/ HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET " + b"/a" * 60_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /?" + b"a=%zz&" * 9_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
    b"CONNECT evil.example:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"TRACE / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n",
    b"GET /login HTTP/1.1\r\nHost: \xff\x00@\\\r\n\r\n",
    b"GET / HTTP/1.1\nHost: x\n\n",
    b"GET / HTTP/1.1\rHost: x\r\r",
    b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\n folded: y\r\n\tz\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nA\x00B: c\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nCookie: evenbeat_session=\x80;;=;a\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 20_000 + b"\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"b" * 500_000 + b"\r\n\r\n",
    (
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ),
    b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 500,
    b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
    b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
    (
        b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n"
        b"0\r\n\r\nGET /api/v1/tokens HTTP/1.1\r\n\r\n"
    ),
    b"POST /login HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    b"POST /login HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST /login HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
    b"POST /login HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + b"f" * 40 + b"\r\n",
    b"POST /login HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA\x00: b\r\n\r\n",
    b"POST /login HTTP/1.1\r\nHost: x\r\nExpect: nonsense\r\nContent-Length: 3\r\n\r\nabc",
    (
        b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=\xff\r\n"
        b"Content-Length: 9\r\n\r\n--\xff\r\n\r\n--"
    ),
]
VALUES = [
    b"%00", b"%ff%fe", b"../..", b"%2e%2e%2f", b"\xc3\x28", b"00000000-0000-0000-0000-000000000000",
    b"1e999", b"-1", b"9" * 400, b"[object Object]", b"null", b"msg_" + b"0" * 32, b"a" * 5_000,
]  # fmt: skip
BODIES = [
    b"{", b"[" * 50_000, b'{"task":"\\ud800"}', b'{"task":"\x00"}', b"\xff\xfe", b"null", b"[]",
    b'{"task":1e400}', b'{"a":' * 5_000, b'{"task":"x","task":["y"]}', b"9" * 50_000, b'"',
    b'{"jobs":[{"task":{}}]}', b"a=%ff&b=%zz", b'{"since":"0000-00-00"}',
]  # fmt: skip


def requests(routes: list[tuple[str, str]], token: str) -> Iterator[bytes]:
    """Endlessly: what somebody thought of, odd values in every place, and both of them damaged."""
    chance = random.Random(SEED)  # noqa: S311 - to be repeated
    yield from BY_HAND
    while True:
        method, path = chance.choice(routes)
        path_bytes = re.sub(rb"{\w+}", lambda _: chance.choice(VALUES), path.encode())
        body = chance.choice(BODIES) if method in ("POST", "PUT", "PATCH") else b""
        lines = [b"%b %b?%b=%b HTTP/1.1" % (method.encode(), path_bytes,
                 chance.choice([b"limit", b"status", b"since", b"q", b"id", b"sort", b"next"]),
                 chance.choice(VALUES)), b"Host: 127.0.0.1"]  # fmt: skip
        if chance.random() < 0.7:
            lines.append(b"Authorization: Bearer " + token.encode())
        lines.append(b"Content-Type: " + chance.choice(
            [b"application/json", b"application/x-www-form-urlencoded", b"text/plain", b"/;=\xff"]
        ))  # fmt: skip
        if chance.random() < 0.2:
            lines.append(chance.choice(
                [b"Accept: text/html", b"Range: bytes=9-1", b"If-None-Match: \xff",
                 b"Last-Event-ID: \x80", b"Idempotency-Key: \xe4", b"X-Forwarded-For: ,,;",
                 b"X-Forwarded-Proto: \xff", b"Origin: http://[", b"Cookie: evenbeat_notices=W10="]
            ))  # fmt: skip
        if body:
            lines.append(b"Content-Length: %d" % (len(body) + chance.choice([0, 0, 0, -1, 7])))
        request = b"\r\n".join(lines) + b"\r\n\r\n" + body
        yield request if chance.random() < 0.4 else damaged(request, chance)


def damaged(request: bytes, chance: random.Random) -> bytes:
    """With some bytes changed, left out, doubled, or cut off."""
    data = bytearray(request)
    for _ in range(chance.choice([1, 1, 2, 5, 50])):
        at = chance.randrange(len(data)) if data else 0
        match chance.randrange(5):
            case 0:
                data[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                data[at:at] = chance.choice([b"\r\n", b"\n", b"\x00", b" ", b":", b"\xff" * 9])
            case 2:
                del data[at : at + chance.randrange(1, 20)]
            case 3:
                data[at:at] = data[at : at + 200]
            case 4 if chance.random() < 0.2:
                del data[at:]
    return bytes(data)


def test_malformed_requests_crash_nothing(
    start: Start, evenbeat: Command, tmp_path: Path, database_url: str
):
    secret = {"EVENBEAT_AUTH_SECRET": SECRET}
    token = evenbeat("token", "create", "--role", "admin", **secret).out.strip()
    running = start(
        *("-m", "evenbeat", "serve", "--no-worker", "--port", "0"),
        EVENBEAT_DATABASE_URL=database_url,
        EVENBEAT_DATA_DIR=str(tmp_path / "data"),
        **secret,
    )
    url = running.wait_for_line("Dashboard").split()[-1].rstrip("/")
    wait_for(lambda: httpx.get(f"{url}/readyz").status_code == 200, "ready")
    port = int(url.rpartition(":")[2])
    paths = httpx.get(f"{url}/openapi.json").json()["paths"]
    routes = [(method.upper(), path) for path, item in paths.items() for method in item]
    routes += [("GET", page) for page in ("/", "/jobs", "/login", "/timeline", "/static/x")]
    routes += [("POST", page) for page in ("/login", "/preferences", "/jobs/new", "/jobs/actions")]

    def send(request: bytes) -> str:
        """What came back: the status of the first response, or how the line ended."""
        with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
            line.settimeout(0.3)
            try:
                line.sendall(request)
                if len(request) % 10 == 0:  # some hang up half-way
                    line.shutdown(socket.SHUT_WR)
                answer = line.recv(100)
            except TimeoutError:
                return "waits"  # for the rest of the request, or it is the event stream
            except OSError:
                return "closed"
        found = re.match(rb"HTTP/1\.1 (\d{3}) ", answer)
        return found[1].decode() if found else "closed" if not answer else repr(answer)

    began, outcomes = time.monotonic(), Counter[str]()
    stream = requests(routes, token)
    with ThreadPoolExecutor(16) as pool:
        while outcomes.total() < REQUESTS and time.monotonic() - began < SECONDS:
            outcomes.update(pool.map(send, [next(stream) for _ in range(100)]))
            assert running.process.poll() is None, running.text
            assert httpx.get(f"{url}/healthz", timeout=10).status_code == 200
    print(f"{outcomes.total()} requests in {time.monotonic() - began:.0f} s: {dict(outcomes)}")  # noqa: T201
    assert outcomes.total() > REQUESTS // 10
    assert {"200", "400", "401", "404", "422"} <= outcomes.keys()
    odd = {one for one in outcomes if not re.fullmatch("[1-4][0-9][0-9]|waits|closed", one)}
    assert odd == set(), f"{odd}\n{running.text}"
    assert httpx.get(f"{url}/readyz").status_code == 200
    headers = {"Authorization": f"Bearer {token}"}
    assert httpx.get(f"{url}/api/v1/jobs", headers=headers).status_code == 200
    for trouble in ("Traceback", "failed by a bug", "ERROR", "Exception"):
        assert trouble not in running.text, running.text
    assert len(running.lines) < 100, "anyone can fill the log"
    assert running.stop() == 0
