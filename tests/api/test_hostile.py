"""What no well-behaved client sends: it gets a clear answer, and never looks like a bug of ours."""

import json
import logging
import socket
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import httpx
import jwt
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from evenbeat import Evenbeat
from evenbeat.api import middleware, places
from evenbeat.api.auth.tokens import Access, Role
from evenbeat.api.dependencies import COOKIE
from evenbeat.asgi import asgi
from evenbeat.cli import main
from evenbeat.cli.client import ApiError, connected
from evenbeat.cli.output import short_ids
from evenbeat.cli.session import find
from evenbeat.engine.worker import Worker
from loopback import SECRET, served
from waiting import PATIENCE, wait_for

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
LARGE = b"x" * 3_000_000


@pytest.fixture
def whole(app: Evenbeat, access: Access) -> FastAPI:
    """API and dashboard."""
    return asgi(app, access=access)


@pytest.fixture
def browser(whole: FastAPI) -> TestClient:
    return TestClient(whole, follow_redirects=False, raise_server_exceptions=False)


# -- other sites' pages --------------------------------------------------------------------------


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "http://[x]", "null", "", "//"])
def test_an_origin_that_is_none_is_a_foreign_one(
    browser: TestClient, token_for: Callable[[str], str], origin: str
) -> None:
    foreign = {"Origin": origin}
    answers = [
        browser.post("/login", content="token=x", headers=FORM | foreign),
        browser.post("/api/v1/session", json={"token": "x"}, headers=foreign),
        browser.post(
            "/api/v1/jobs",
            json={"task": "nothing"},
            headers=foreign | {"Cookie": f"{COOKIE}={token_for('operator')}"},
        ),
    ]
    assert [answer.status_code for answer in answers] == [403, 403, 403]


def test_another_sites_page_cannot_sign_a_visitor_out(browser: TestClient, access: Access) -> None:
    # A browser sends no SameSite=Lax cookie with such a form, but would obey the answer's.
    foreign = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    answer = browser.post("/logout", headers=FORM | foreign)
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers
    token = access.issue(Role.VIEWER, timedelta(hours=1), subject="ann").token
    ours = {"Sec-Fetch-Site": "same-origin", "Cookie": f"{COOKIE}={token}"}
    answer = browser.post("/logout", headers=FORM | ours)
    assert answer.status_code == 303
    assert f'{COOKIE}=""' in answer.headers["set-cookie"]


# -- requests that are too much, or not enough -----------------------------------------------------


def send(url: str, head: str, *parts: bytes) -> bytes:
    """All of it, and only then read, as simple clients do."""
    place = urlsplit(url)
    with socket.create_connection((place.hostname, place.port), timeout=10) as connection:
        connection.sendall(head.replace("\n", "\r\n").encode() + b"\r\n\r\n")
        for part in parts:
            connection.sendall(part)
        answer = b""
        while more := connection.recv(65_536):  # a reset raises
            answer += more
        return answer


@pytest.mark.parametrize(("role", "status"), [("operator", 413), ("viewer", 403), (None, 401)])
def test_who_sends_too_much_is_told_so_and_not_cut_off(
    api: FastAPI, token_for: Callable[[str], str], role: str | None, status: int
) -> None:
    head = "POST /api/v1/jobs HTTP/1.1\nHost: here\n"
    head += f"Authorization: Bearer {token_for(role)}\n" if role else ""
    with served(api) as url:
        answers = [send(url, f"{head}Content-Length: {len(LARGE)}", LARGE)]
        if role:  # of a stranger, nothing is read whose end is not known
            chunk = f"{len(LARGE):x}\r\n".encode() + LARGE + b"\r\n0\r\n\r\n"
            answers.append(send(url, f"{head}Transfer-Encoding: chunked", chunk))
    for answer in answers:
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert b"connection: close" in answer.lower()
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["status"] == status


def test_a_body_that_comes_too_slowly_is_given_up(
    api: FastAPI, token_for: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenbeat.api.middleware.BODY_SECONDS", 0.3)
    head = (
        f"POST /api/v1/jobs HTTP/1.1\nHost: here\nAuthorization: Bearer {token_for('operator')}\n"
    )
    with served(api) as url:
        for length in (900, 500_000):
            answer = send(url, f"{head}Content-Length: {length}", b'{"task"')
            assert answer.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    ("role", "path", "sent"),
    [
        ("operator", "jobs", {"task": "nothing"}),
        ("viewer", "schedules/preview", {"schedule": "@daily"}),
    ],
)
def test_a_body_that_comes_byte_by_byte_is_kept_in_one_piece(
    api: FastAPI,
    token_for: Callable[[str], str],
    role: str,
    path: str,
    sent: dict[str, str],
) -> None:
    body = json.dumps(sent).encode()
    chunks = b"".join(b"1\r\n%c\r\n" % one for one in body) + b"0\r\n\r\n"
    head = (
        f"POST /api/v1/{path} HTTP/1.1\nHost: here\nAuthorization: Bearer {token_for(role)}\n"
        "Content-Type: application/json\nTransfer-Encoding: chunked\nConnection: close"
    )
    with served(api) as url:
        assert send(url, head, chunks).startswith(b"HTTP/1.1 20")


def test_who_asks_first_may_keep_it(api: FastAPI, token_for: Callable[[str], str]) -> None:
    head = f"POST /api/v1/jobs HTTP/1.1\nHost: here\nContent-Length: {10**12}\n"
    head += f"Authorization: Bearer {token_for('operator')}\n"
    with served(api) as url:
        answer = send(url, f"{head}Expect: 100-continue")
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_who_leaves_half_way_leaves_no_trace_in_the_log(
    whole: FastAPI, app: Evenbeat, token_for: Callable[[str], str], caplog: Any
) -> None:
    caplog.set_level(logging.WARNING)
    body = json.dumps({"task": "nothing"}).encode()
    heads = [
        f"POST /api/v1/jobs HTTP/1.1\r\nAuthorization: Bearer {token_for('operator')}",
        "POST /login HTTP/1.1",
    ]
    kinds = ["application/json", "application/x-www-form-urlencoded"]
    with served(whole) as url:
        place = urlsplit(url)
        for head, kind in zip(heads, kinds, strict=True):
            lines = f"{head}\r\nHost: here\r\nContent-Type: {kind}\r\nContent-Length: 900\r\n\r\n"
            with socket.create_connection((place.hostname, place.port)) as connection:
                connection.sendall(lines.encode() + body)
        assert httpx.get(f"{url}/healthz").status_code == 200
        time.sleep(0.3)
    assert [record.getMessage() for record in caplog.records] == []
    assert app.store.read.counts_by_status() == {}


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_that_does_not_say_that_it_is_json(client: TestClient, kind: str) -> None:
    answer = client.post(
        "/api/v1/jobs", content='{"task": "nothing"}', headers={"Content-Type": kind}
    )
    assert answer.status_code == 422
    assert "Content-Type: application/json" in answer.json()["detail"]


@pytest.mark.parametrize(
    "body",
    [b"[" * 100_000, b'{"task": "\xff"}', b'{"priority": ' + b"9" * 5_000 + b"}"],
    ids=["deep", "not UTF-8", "a number of 5,000 digits"],
)
def test_json_that_cannot_be_read(client: TestClient, body: bytes) -> None:
    answer = client.post("/api/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert "JSON" in answer.json()["detail"]


WORDS = ("tag", "status", "queue", "task", "kind")


def test_a_filter_that_names_nothing_never_means_everything(
    app: Evenbeat, client_for: Callable[[str], TestClient]
) -> None:
    """As when a script's variable is empty: `{"filter": {"tag": "$TAG"}}`."""
    admin = client_for("admin")
    admin.post("/api/v1/jobs", json={"task": "nothing", "delay": "1h"})
    nothing: list[tuple[str, Any]] = [("search", ""), ("name", "")]
    nothing += [(field, value) for field in WORDS for value in ("", " , ", [], [""], ["", ","])]
    for field, value in nothing:
        for verb in ("cancel", "delete"):
            answer = admin.post(f"/api/v1/jobs/bulk/{verb}", json={"filter": {field: value}})
            assert answer.status_code == 422, (field, value, answer.text)
            assert field in answer.json()["errors"][0]["field"]
    for field in WORDS:
        assert admin.get(f"/api/v1/jobs?{field}=").status_code == 422
    assert app.store.read.counts_by_status() == {"scheduled": 1}


# -- what the command line makes of it -----------------------------------------------------------


def test_a_services_words_cannot_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    async def hostile(_scope: Any, _receive: Any, send: Any) -> None:
        said = {"status": 409, "detail": "\x1b]0;owned\x07 no\x9b31m\r\u202eway"}
        kind = [(b"content-type", b"application/problem+json")]
        await send({"type": "http.response.start", "status": 409, "headers": kind})
        await send({"type": "http.response.body", "body": json.dumps(said).encode()})

    with served(hostile) as url, pytest.raises(SystemExit) as ended:
        main(["job", "list", "--url", url])
    told = capsys.readouterr().err.removesuffix("\n")
    assert ended.value.code == 1
    assert told.isprintable()
    assert "owned" in told


def test_nor_can_the_name_in_a_token(
    api: FastAPI,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ends = datetime.now(UTC) + timedelta(hours=1)
    claims = {"sub": "\x1b]0;owned\x07", "role": "admin", "exp": ends}
    headers = {"Authorization": f"Bearer {jwt.encode(claims, SECRET, algorithm='HS256')}"}
    wanted = {"role": "viewer", "subject": "ann"}
    answer = TestClient(api).post("/api/v1/tokens", json=wanted, headers=headers)
    assert answer.status_code == 201
    monkeypatch.setenv("EVENBEAT_AUTH_SECRET", SECRET)
    monkeypatch.delenv("COLUMNS", raising=False)  # a narrow table would leave columns out
    with pytest.raises(SystemExit):
        main(["token", "list", "--database", database_url])
    told = capsys.readouterr().out
    assert "owned" in told
    assert "\x1b" not in told
    assert "\x07" not in told


def test_a_wrong_option_is_explained_without_the_librarys_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["token", "create", "--role", "emperor"])
    told = capsys.readouterr().err
    assert ended.value.code == 2
    assert "'emperor' is not one of" in told
    assert "Value error" not in told


def test_a_picture_for_programs_says_when_it_was_taken(
    api: FastAPI, token_for: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    with served(api) as url, pytest.raises(SystemExit) as ended:
        main(["top", "--json", "--url", url, "--token", token_for("viewer")])
    assert ended.value.code == 0
    taken = datetime.fromisoformat(json.loads(capsys.readouterr().out)["at"])
    assert abs(datetime.now(UTC) - taken) < timedelta(minutes=1)


def test_an_execution_is_found_by_the_beginning_that_lists_show(
    app: Evenbeat, worker: Worker, client: TestClient, api: FastAPI, token_for: Any
) -> None:
    for _ in range(3):
        assert client.post("/api/v1/jobs", json={"task": "nothing"}).status_code == 201
    wait_for(lambda: app.store.read.counts_by_status() == {"completed": 3}, "three runs")
    ids = [run["id"] for run in client.get("/api/v1/executions").json()["executions"]]
    with served(api) as url, connected(url, token_for("viewer"), None) as asking:
        for whole_id, short in short_ids(ids).items():
            assert find(asking, "execution", short)["id"] == whole_id
            assert find(asking, "execution", short.upper())["id"] == whole_id
            assert find(asking, "execution", whole_id)["id"] == whole_id
        with pytest.raises(ApiError, match="more than one") as refused:
            find(asking, "execution", ids[0][:4])
        assert refused.value.exit_code == 2
        for nobody in ("0000", "ffffffff", "news", "0", "-----", ""):
            with pytest.raises(ApiError, match="There is no execution") as refused:
                find(asking, "execution", nobody)
            assert refused.value.exit_code == 4
    assert client.get("/api/v1/executions", params={"id": "zzzz"}).status_code == 422
    assert client.get("/api/v1/executions", params={"id": "0000"}).json()["executions"] == []


# -- while the database is away --------------------------------------------------------------------


def test_health_is_answered_while_every_other_request_waits_for_the_database(
    api: FastAPI, connect: Callable[[], Any], token_for: Callable[[str], str]
) -> None:
    """Whoever watches the process would restart it otherwise, which helps nobody."""
    headers = {"Authorization": f"Bearer {token_for('viewer')}"}
    with served(api) as url, ThreadPoolExecutor(50) as many, connect() as other:
        with other.transaction():
            other.execute("LOCK TABLE evenbeat.jobs IN ACCESS EXCLUSIVE MODE")
            asked = [
                many.submit(httpx.get, f"{url}/api/v1/jobs", headers=headers, timeout=PATIENCE)
                for _ in range(50)
            ]
            time.sleep(1)
            answers = [
                httpx.get(f"{url}{path}", timeout=PATIENCE) for path in ("/healthz", "/readyz")
            ]
            assert not any(one.done() for one in asked)
        assert [one.result().status_code for one in asked] == [200] * 50
    assert [answer.status_code for answer in answers] == [200, 200], "one caller cannot have it all"


def test_readers_who_keep_the_database_busy_keep_nobody_else_waiting(
    api: FastAPI,
    app: Evenbeat,
    connect: Callable[[], Any],
    token_for: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor does the database go on for those who have gone."""
    monkeypatch.setattr(places, "WAIT_SECONDS", 1.0)
    headers = {"Authorization": f"Bearer {token_for('viewer')}"}
    with served(api) as url, ThreadPoolExecutor(30) as many, connect() as other:
        with other.transaction():
            other.execute("LOCK TABLE evenbeat.documents IN ACCESS EXCLUSIVE MODE")
            search = partial(httpx.get, f"{url}/api/v1/documents?q=moon", headers=headers)
            asked = [many.submit(search, timeout=3) for _ in range(30)]
            wait_for(lambda: len(others_who_wait(app)) == 3, "three at work")
            operator = {"Authorization": f"Bearer {token_for('operator')}"}
            assert httpx.get(f"{url}/api/v1/jobs", headers=operator).status_code == 200
            refused = [one for one in asked if not one.exception()]
            assert {one.result().status_code for one in refused} == {429}
            assert refused[0].result().headers["retry-after"]
            assert "3 of one caller" in refused[0].result().json()["detail"]
            assert len(refused) == 27
            wait_for(lambda: not others_who_wait(app), "nobody reads for those who gave up", 10)
        assert search().status_code == 200


def test_what_takes_the_database_too_long_is_stopped(
    client: TestClient, connect: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "READ_SECONDS", 0.5)
    with connect() as other:
        other.execute("LOCK TABLE evenbeat.documents IN ACCESS EXCLUSIVE MODE")
        answer = client.get("/api/v1/documents?q=moon")
    assert answer.status_code == 503
    assert "took too long" in answer.json()["detail"]
    assert client.get("/api/v1/documents?q=moon").status_code == 200


def others_who_wait(app: Evenbeat) -> list[Any]:
    """The sessions of the server that wait for a table."""
    with app.store.database.transaction() as connection:
        return connection.execute(
            "SELECT pid FROM pg_locks "
            "WHERE relation = 'evenbeat.documents'::regclass AND NOT granted"
        ).fetchall()


def test_a_request_does_not_wait_long_for_a_connection(
    api: FastAPI,
    connect: Callable[[], Any],
    token_for: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The command line gives up after 30 seconds, and people long before."""
    monkeypatch.setattr(middleware, "CONNECTION_TIMEOUT", 0.5)
    headers = {"Authorization": f"Bearer {token_for('operator')}"}
    with served(api) as url, ThreadPoolExecutor(20) as many, connect() as other:

        def add() -> httpx.Response:
            job = {"task": "nothing"}
            return httpx.post(f"{url}/api/v1/jobs", json=job, headers=headers, timeout=PATIENCE)

        with other.transaction():
            other.execute("LOCK TABLE evenbeat.jobs IN ACCESS EXCLUSIVE MODE")
            asked = [many.submit(add) for _ in range(20)]
            done, _ = wait(asked, timeout=PATIENCE, return_when=FIRST_COMPLETED)
            refused = done.pop().result()
            assert refused.status_code == 503
            assert "Nothing was changed" in refused.json()["detail"]
        assert {one.result().status_code for one in asked} == {201, 503}


def test_a_change_that_was_cut_off_is_not_said_to_be_undone(
    client: TestClient, connect: Callable[[], Any]
) -> None:
    """Its commit may have arrived before the line broke."""
    client.get("/api/v1/jobs")
    with connect() as other, connect() as killer, ThreadPoolExecutor(1) as one:
        other.execute("LOCK TABLE evenbeat.jobs IN ACCESS EXCLUSIVE MODE")
        asked = one.submit(client.post, "/api/v1/jobs", json={"task": "nothing"})
        killer.autocommit = True
        wait_for(lambda: killer.execute(CUT_OFF_WHO_WAITS).fetchall(), "somebody who waits")
        answer = asked.result()
    assert answer.status_code == 503
    assert "Nothing was changed" not in answer.json()["detail"]
    assert "Idempotency-Key" in answer.json()["detail"]


CUT_OFF_WHO_WAITS = """
    SELECT pg_terminate_backend(pid) FROM pg_locks
    WHERE relation = 'evenbeat.jobs'::regclass AND NOT granted"""
