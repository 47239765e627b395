"""Signing in with a browser: cookies, login links, other sites' pages, tokens over HTTP."""

import logging
import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import httpx
import jwt
import pytest
import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient

from evenbeat import Evenbeat
from evenbeat.api.auth.tokens import Access, Role
from evenbeat.api.dependencies import COOKIE
from evenbeat.asgi import asgi
from evenbeat.settings import load_settings
from evenbeat.store.store import Store

SECRET = "a secret for tests that is long enough"  # noqa: S105
DAY = timedelta(days=1)
BASE = "http://evenbeat.example:8060"
OURS = {"Origin": BASE}


@pytest.fixture
def app(database_url: str) -> Iterator[Evenbeat]:
    with Evenbeat(database_url, auth_secret=SECRET) as app:
        yield app


@pytest.fixture
def access(app: Evenbeat) -> Access:
    return Access.of(app.settings, app.store)


@pytest.fixture
def service(app: Evenbeat, access: Access) -> FastAPI:
    return asgi(app, access=access)


@pytest.fixture
def client(service: FastAPI) -> TestClient:
    return TestClient(service, base_url=BASE, follow_redirects=False)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def attributes(answer: httpx.Response) -> set[str]:
    """What the cookie says of itself, but for its value."""
    return {part.strip().lower() for part in answer.headers["set-cookie"].split(";")[1:]}


# -- signing in and out --------------------------------------------------------------------------


def test_the_login_link_signs_in_once_and_leaves_no_code_behind(client, access):
    code = access.login_code(Role.OPERATOR, subject="ann")
    answer = client.get(f"/login?code={code}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-store"
    assert code not in str(answer.headers) + answer.text
    (age,) = (part for part in attributes(answer) if part.startswith("max-age="))
    assert attributes(answer) - {age} == {"httponly", "path=/", "samesite=lax"}
    assert 43_000 < int(age.removeprefix("max-age=")) <= 43_200
    me = client.get("/api/v1/session").json()
    assert (me["subject"], me["role"], me["open"]) == ("ann", "operator", False)


def test_a_used_link_leads_in_whom_it_let_in_and_nobody_else(client, access, service):
    code = access.login_code(Role.ADMIN)
    assert client.get(f"/login?code={code}").status_code == 303
    assert client.get(f"/login?code={code}").headers["location"] == "/"
    other = TestClient(service, base_url=BASE, follow_redirects=False)
    answer = other.get(f"/login?code={code}")
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert "was used before" in answer.text
    assert code not in answer.text
    assert answer.headers["referrer-policy"] == "no-referrer"


def test_a_token_or_a_code_signs_in_over_the_api(client, access, service):
    issued = access.issue(Role.VIEWER, DAY, subject="ann")
    answer = client.post("/api/v1/session", json={"token": f" {issued.token}\n"})
    assert answer.status_code == 200
    assert answer.json() == {
        "subject": "ann",
        "role": "viewer",
        "expires_at": issued.expires_at.isoformat().replace("+00:00", "Z"),
        "open": False,
    }
    assert issued.token not in answer.text
    assert client.get("/api/v1/session").json()["subject"] == "ann"
    other = TestClient(service, base_url=BASE)
    answer = other.post("/api/v1/session", json={"code": access.login_code(Role.ADMIN)})
    assert (answer.status_code, answer.json()["role"]) == (200, "admin")
    assert other.get("/api/v1/session").status_code == 200


def test_the_cookie_ends_with_the_token(client, access):
    token = access.issue(Role.VIEWER, timedelta(minutes=2), subject="ann").token
    answer = client.post("/api/v1/session", json={"token": token})
    (age,) = (int(part[8:]) for part in attributes(answer) if part.startswith("max-age="))
    assert 0 < age <= 120


def test_behind_tls_and_a_prefix_the_cookie_is_secure_and_stays_there(service, access):
    client = TestClient(
        service, base_url="https://example.org", root_path="/beat", follow_redirects=False
    )
    answer = client.get(f"/login?code={access.login_code(Role.VIEWER)}")
    assert answer.headers["location"] == "/beat/"
    assert {"secure", "path=/beat"} <= attributes(answer)


def test_mounted_in_another_application(service, access):
    outer = FastAPI()
    outer.mount("/beat", service)
    client = TestClient(outer, base_url=BASE, follow_redirects=False)
    answer = client.get(f"/beat/login?code={access.login_code(Role.VIEWER)}")
    assert answer.headers["location"] == "/beat/"
    assert "path=/beat" in attributes(answer)
    assert client.get("/beat/api/v1/session").json()["role"] == "viewer"


def test_signing_in_by_the_plain_form(client, access):
    assert 'name="token"' in client.get("/login").text
    token = access.issue(Role.VIEWER, DAY, subject="ann").token
    wrong = client.post("/login", data={"token": "<b>wrong</b>"}, headers=OURS)
    assert wrong.status_code == 401
    assert "<b>" not in wrong.text
    assert client.post("/login", data={"token": ""}, headers=OURS).status_code == 401
    right = client.post("/login", data={"token": token}, headers=OURS)
    assert (right.status_code, right.headers["location"]) == (303, "/")
    assert client.get("/login").headers["location"] == "/"


def test_signing_out_ends_a_session_even_for_who_kept_the_cookie(client, access):
    client.get(f"/login?code={access.login_code(Role.ADMIN)}")
    kept = client.cookies[COOKIE]
    answer = client.delete("/api/v1/session", headers=OURS)
    assert answer.status_code == 204
    assert "max-age=0" in attributes(answer)
    assert COOKIE not in client.cookies
    assert client.get("/api/v1/session").status_code == 401
    assert client.get("/api/v1/session", headers=bearer(kept)).status_code == 401


def test_signing_out_leaves_a_token_valid_that_was_pasted_in(client, access):
    token = access.issue(Role.ADMIN, DAY, subject="deploy").token
    client.post("/api/v1/session", json={"token": token})
    assert client.delete("/api/v1/session", headers=OURS).status_code == 204
    assert client.get("/api/v1/session").status_code == 401
    assert client.get("/api/v1/session", headers=bearer(token)).status_code == 200


def test_a_header_decides_alone_even_if_the_cookie_is_good(client, access):
    client.get(f"/login?code={access.login_code(Role.ADMIN)}")
    assert client.get("/api/v1/session").status_code == 200
    for header in ("", "Bearer", "Bearer garbage", "Basic x"):
        answer = client.get("/api/v1/session", headers={"Authorization": header})
        assert answer.status_code == 401, header


@pytest.mark.parametrize("cookie", ["garbage", "a.b.c", "x" * 10_000])
def test_a_bad_cookie_is_refused(client, cookie):
    answer = client.get("/api/v1/session", headers={"Cookie": f"{COOKIE}={cookie}"})
    assert answer.status_code == 401
    assert cookie not in answer.text


BODIES = {
    "nothing": {},
    "both": {"token": "private-text", "code": "private-text"},
    "nulls": {"token": None, "code": None},
    "another field": {"tokn": "private-text"},
    "a number": {"token": 123454321},
    "an object": {"token": {"private-text": "private-text"}},
    "a list": ["private-text"],
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_wrong_sign_in_is_explained_without_repeating_it(client, body, caplog):
    caplog.set_level(logging.DEBUG)
    answer = client.post("/api/v1/session", json=body)
    assert answer.status_code == 422
    for shown in (answer.text, caplog.text):
        assert "private-text" not in shown
        assert "123454321" not in shown


@pytest.mark.parametrize("body", [{"token": "secret-text"}, {"code": "secret-text"}, {"token": ""}])
def test_a_failed_sign_in_is_a_401_that_tells_nothing(client, body, caplog):
    caplog.set_level(logging.DEBUG)
    answer = client.post("/api/v1/session", json=body)
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert "secret-text" not in answer.text + caplog.text


def test_a_token_too_long_for_a_cookie_says_so(client):
    claims = {"sub": "ann", "role": "viewer", "exp": int(time.time()) + 60, "groups": "x" * 4000}
    token = jwt.encode(claims, SECRET, algorithm="HS256")
    answer = client.post("/api/v1/session", json={"token": token})
    assert answer.status_code == 422
    assert "browsers keep 3800 in a cookie" in answer.json()["detail"]
    assert client.get("/api/v1/session", headers=bearer(token)).status_code == 200


# -- other sites' pages --------------------------------------------------------------------------

FOREIGN = {
    "no sign of origin": {},
    "another site": {"Origin": "http://evil.example"},
    "another port": {"Origin": "http://evenbeat.example:3000"},
    "a name that ends alike": {"Origin": f"{BASE}.evil.example"},
    "hidden origin": {"Origin": "null"},
    "empty origin": {"Origin": ""},
    "fetch metadata": {"Sec-Fetch-Site": "cross-site", **OURS},
    "a sister site": {"Sec-Fetch-Site": "same-site", **OURS},
    "typed in": {"Sec-Fetch-Site": "none"},
}


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
def test_with_the_cookie_a_change_must_come_from_our_own_pages(client, access, headers):
    client.get(f"/login?code={access.login_code(Role.ADMIN)}")
    answer = client.post("/api/v1/tokens", json={"role": "admin"}, headers=headers)
    assert answer.status_code == 403
    assert "own pages only" in answer.json()["detail"]
    assert [token.kind for token in access.tokens()] == ["session"]
    assert client.get("/api/v1/session", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [OURS, {"Origin": BASE.upper().replace("HTTP", "http")}, {"Sec-Fetch-Site": "same-origin"}],
)
def test_our_own_pages_may_change_things(client, access, headers):
    client.get(f"/login?code={access.login_code(Role.ADMIN)}")
    answer = client.post("/api/v1/tokens", json={"role": "viewer"}, headers=headers)
    assert answer.status_code == 201


def test_a_program_with_a_token_needs_no_origin(client, access):
    token = access.issue(Role.ADMIN, DAY, subject="deploy").token
    for headers in ({}, {"Origin": "http://elsewhere.example"}):
        answer = client.post(
            "/api/v1/tokens", json={"role": "viewer"}, headers=bearer(token) | headers
        )
        assert answer.status_code == 201


def test_another_site_cannot_sign_a_browser_in(client, access):
    body = {"token": access.issue(Role.ADMIN, DAY, subject="eve").token}
    foreign = {"Origin": "http://evil.example"}
    assert client.post("/api/v1/session", json=body, headers=foreign).status_code == 403
    assert client.post("/login", data=body, headers=foreign).status_code == 403


# -- without tokens ------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "[::1]", "a.localhost"])
def test_no_auth_lets_everyone_in_who_calls_this_machine_by_its_name(app, host):
    client = TestClient(asgi(app, access=Access.open()), base_url=f"http://{host}:8060")
    assert client.get("/api/v1/session").json() == {
        "subject": "everyone",
        "role": "admin",
        "expires_at": None,
        "open": True,
    }
    assert client.get("/api/v1/session", headers=bearer("garbage")).status_code == 200
    assert client.post("/api/v1/session", json={"token": "any"}).json()["role"] == "admin"
    assert client.delete("/api/v1/session").status_code == 204
    assert client.get("/api/v1/tokens").json()["tokens"] == []
    answer = client.post("/api/v1/tokens", json={"role": "viewer"})
    assert (answer.status_code, "--no-auth" in answer.json()["detail"]) == (409, True)
    assert client.delete(f"/api/v1/tokens/{uuid4()}").status_code == 409


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "0.0.0.1",
        "10.0.0.1",
        "[::]",
        "",
        "[",
        "a@",
        "evil.example\\@localhost",
        "evil.example@localhost",
        "localhost/x",
        "localhost#",
    ],
)
def test_no_auth_answers_to_no_name_that_others_could_point_here(app, host):
    client = TestClient(asgi(app, access=Access.open()), base_url="http://127.0.0.1")
    for method in ("GET", "DELETE"):
        answer = client.request(method, "/api/v1/session", headers={"Host": host})
        assert answer.status_code == 403
    answer = client.post("/api/v1/session", json={"token": "x"}, headers={"Host": host})
    assert answer.status_code == 403
    assert client.get("/login", headers={"Host": host}).status_code == 403


@pytest.mark.parametrize(
    "headers", [{"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}]
)
def test_no_auth_takes_no_change_from_other_sites_pages(app, headers):
    client = TestClient(asgi(app, access=Access.open()), base_url="http://127.0.0.1:8060")
    assert client.delete("/api/v1/session", headers=headers).status_code == 403
    ours = {"Origin": "http://127.0.0.1:8060"}
    assert client.delete("/api/v1/session", headers=ours).status_code == 204


# -- tokens over the API -------------------------------------------------------------------------


@pytest.fixture
def admin(client: TestClient, access: Access) -> TestClient:
    client.headers |= bearer(access.issue(Role.ADMIN, DAY, subject="root").token)
    return client


def test_an_admin_makes_lists_and_revokes_tokens(admin):
    answer = admin.post(
        "/api/v1/tokens", json={"role": "operator", "expires": "90d", "subject": "Jürgen"}
    )
    assert answer.status_code == 201
    assert answer.headers["cache-control"] == "no-store"
    made = answer.json()
    assert (made["role"], made["subject"]) == ("operator", "Jürgen")
    lives = datetime.fromisoformat(made["expires_at"]) - datetime.now(UTC)
    assert timedelta(days=89) < lives <= timedelta(days=90)
    assert admin.get("/api/v1/session", headers=bearer(made["token"])).json()["role"] == "operator"

    listed = admin.get("/api/v1/tokens").json()
    assert listed["total"] == 2
    assert made["token"] not in str(listed)
    newest = listed["tokens"][0]
    assert (newest["id"], newest["created_by"], newest["status"]) == (made["id"], "root", "active")

    assert admin.delete(f"/api/v1/tokens/{made['id']}").status_code == 204
    assert admin.delete(f"/api/v1/tokens/{made['id']}").status_code == 204
    assert admin.get("/api/v1/session", headers=bearer(made["token"])).status_code == 401
    assert admin.get("/api/v1/tokens").json()["tokens"][0]["status"] == "revoked"
    assert admin.get("/api/v1/tokens?active=true").json()["total"] == 1
    assert admin.get("/api/v1/tokens?limit=1&offset=1").json()["tokens"][0]["subject"] == "root"


def test_a_token_is_for_its_maker_and_a_month_unless_it_says_otherwise(admin):
    made = admin.post("/api/v1/tokens", json={"role": "viewer"}).json()
    assert made["subject"] == "root"
    lives = datetime.fromisoformat(made["expires_at"]) - datetime.now(UTC)
    assert timedelta(days=29) < lives <= timedelta(days=30)


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR])
def test_tokens_are_for_admins_only(client, access, role):
    issued = access.issue(role, DAY, subject="ann")
    headers = bearer(issued.token)
    assert client.get("/api/v1/tokens", headers=headers).status_code == 403
    new = client.post("/api/v1/tokens", json={"role": "admin"}, headers=headers)
    assert new.status_code == 403
    assert client.delete(f"/api/v1/tokens/{issued.id}", headers=headers).status_code == 403
    assert client.get("/api/v1/session", headers=headers).status_code == 200


WRONG = [
    ({}, "role"),
    ({"role": "root"}, "role"),
    ({"role": "viewer", "expires": "0s"}, "expires"),
    ({"role": "viewer", "expires": "-1d"}, "expires"),
    ({"role": "viewer", "expires": "3651d"}, "expires"),
    ({"role": "viewer", "expires": "soon"}, "expires"),
    ({"role": "viewer", "expires": None}, "expires"),
    ({"role": "viewer", "subject": ""}, "subject"),
    ({"role": "viewer", "subject": "a\nb"}, "subject"),
    ({"role": "viewer", "subject": "x" * 201}, "subject"),
    ({"role": "viewer", "subject": "\x00"}, "subject"),
    ({"role": "viewer", "lifetime": "1d"}, "lifetime"),
]


@pytest.mark.parametrize(("body", "field"), WRONG)
def test_a_wrong_wish_is_refused_by_field(admin, access, body, field):
    answer = admin.post("/api/v1/tokens", json=body)
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]
    assert len(access.tokens()) == 1


def test_revoking_what_is_not_there(admin):
    assert admin.delete(f"/api/v1/tokens/{uuid4()}").status_code == 404
    assert admin.delete("/api/v1/tokens/7").status_code == 422


# -- a real server's log -------------------------------------------------------------------------


def test_the_code_is_gone_from_the_address_even_if_the_database_is(app):
    nowhere = Store("postgresql://nobody@127.0.0.1:1/none", timeout=0.2)
    service = asgi(app, access=Access.of(load_settings(auth_secret=SECRET), nowhere))
    seen = []

    async def watching(scope, receive, send) -> None:
        await service(scope, receive, send)
        seen.append(scope["query_string"])

    answer = TestClient(watching, base_url=BASE).get("/login?code=private-text")
    nowhere.close()
    assert (answer.status_code, seen) == (503, [b""])
    assert "private-text" not in answer.text


def test_no_code_token_or_cookie_reaches_the_log_of_a_real_server(service, access, caplog):
    caplog.set_level(logging.DEBUG)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(service, log_config=None, lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        code, token = (
            access.login_code(Role.ADMIN),
            access.issue(Role.VIEWER, DAY, subject="x").token,
        )
        try:
            with httpx.Client(base_url=url) as browser:
                assert browser.get(f"/login?code={code}").status_code == 303
                cookie = browser.cookies[COOKIE]
                assert browser.get(f"/login?code={code}").status_code == 303
                assert browser.get("/api/v1/session").status_code == 200
            assert httpx.get(f"{url}/login?code={code}").status_code == 401
            assert httpx.get(f"{url}/api/v1/session", headers=bearer(token)).status_code == 200
            assert httpx.get(f"{url}/api/v1/session", headers=bearer(token[:-9])).status_code == 401
        finally:
            server.should_exit = True
            thread.join()
    log = "\n".join(r.getMessage() for r in caplog.records if not r.name.startswith("http"))
    assert '"GET /login HTTP/1.1" 303' in log
    for secret in (code, token.split(".")[1], cookie.split(".")[1], SECRET):
        assert secret not in log
