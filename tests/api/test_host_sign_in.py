"""`app.asgi(auth=callable)`: the service inside of an application that signs people in itself."""

import asyncio
import logging
import re
import threading
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends, FastAPI
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, SimpleUser
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.routing import Mount
from starlette.testclient import TestClient
from starlette.types import Message, Receive, Scope, Send

from api.conftest import ClientFor
from evenbeat import Caller, Evenbeat
from evenbeat.api.auth.host import HostAccess
from evenbeat.asgi import asgi
from evenbeat.errors import EvenbeatError, InvalidInput
from loopback import SECRET, hosting, lead_to_sign_in, served

Auth = Callable[[Request], Any]
PROBLEM = "application/problem+json"


def mounted(app: Evenbeat, auth: Auth) -> TestClient:
    host = Starlette(routes=[Mount("/ops", app.asgi(auth=auth))])
    return TestClient(
        host, "http://shop.example/ops", follow_redirects=False, raise_server_exceptions=False
    )


# -- who is let in ---------------------------------------------------------------------------------


def test_whoever_is_signed_in_at_the_host_is_signed_in_here(
    hosted_client_for: ClientFor,
) -> None:
    client = hosted_client_for("operator")
    assert client.get("/api/v1/session").json() == {
        "subject": "a operator", "role": "operator", "expires_at": None, "open": False,
    }  # fmt: skip
    page = client.get("/").text
    assert "a operator" in page
    assert "Sign out" not in page
    links = re.findall(r'(?:href|src|action)="(/[^"]*)"', page)
    assert len(links) > 10
    assert [link for link in links if not link.startswith("/ops/")] == []
    assert client.get("/login?next=/ops/jobs").headers["location"] == "/ops/jobs"
    assert "there are no tokens" in hosted_client_for("admin").get("/settings").text
    assert "Bearer" not in client.get("/docs").text
    assert "Bearer" not in client.get("/openapi.json").json()["info"]["description"]


def test_nobody_else_is_and_is_told_where_to_sign_in(hosted_client_for: ClientFor) -> None:
    client = hosted_client_for(None)
    answer = client.get("/api/v1/jobs")
    assert (answer.status_code, answer.headers["content-type"]) == (401, PROBLEM)
    assert "www-authenticate" not in answer.headers
    assert "signed in to the application that this service is mounted in" in answer.text
    page = client.get("/jobs")
    assert (page.status_code, "location" in page.headers) == (401, False)
    assert 'href="/ops/login"' not in page.text
    assert client.get("/login").status_code == 401


def test_tokens_of_this_service_count_for_nothing(
    hosted_client_for: ClientFor, token_for: Callable[[str], str]
) -> None:
    client = hosted_client_for(None)
    bearer = {"Authorization": f"Bearer {token_for('admin')}"}
    assert client.get("/api/v1/jobs", headers=bearer).status_code == 401
    cookie = {"Cookie": f"evenbeat_session={token_for('admin')}"}
    assert client.get("/api/v1/jobs", headers=cookie).status_code == 401
    answer = client.post("/api/v1/session", json={"token": token_for("admin")})
    assert answer.status_code == 409
    assert "neither has nor needs tokens" in answer.json()["detail"]
    assert "set-cookie" not in answer.headers
    made = hosted_client_for("admin").post("/api/v1/tokens", json={"role": "admin"})
    assert made.status_code == 409


def test_health_is_as_without_a_host_and_asks_nobody(app: Evenbeat) -> None:
    asked: list[str] = []
    client = mounted(app, lambda request: asked.append(request.url.path))
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").status_code == 200
    assert client.get("/openapi.json").status_code == 200
    assert client.get("/static/evenbeat.css").status_code == 200
    assert asked == []
    assert client.get("/metrics").status_code == 401
    assert asked == ["/ops/metrics"]


@pytest.mark.parametrize("path", ["/", "/api/v1/jobs"])
def test_each_request_asks_once(app: Evenbeat, path: str) -> None:
    asked: list[str] = []

    def auth(request: Request) -> Caller:
        asked.append(request.url.path)
        return Caller("ann", "admin")

    client = mounted(app, auth)
    assert client.get(path).status_code == 200
    body = {"task": "nothing", "payload": {"x": "x" * 100_000}}  # its sender is asked for early
    assert client.post("/api/v1/jobs", json=body).status_code == 422
    assert asked == [f"/ops{path}", "/ops/api/v1/jobs"]


def later(request: Request) -> Any:
    """A plain function that returns what is to be awaited."""
    return asynchronous(request)


def test_who_one_service_lets_in_is_nobody_to_another_that_gets_the_same_request(
    app: Evenbeat,
) -> None:
    lenient = asgi(app, access=HostAccess(lambda _: Caller("ann", "admin")))
    strict = asgi(app, access=HostAccess(lambda _: None))

    async def one_after_the_other(scope: Scope, receive: Receive, send: Send) -> None:
        async def drop(_message: Message) -> None: ...

        async def nothing() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        await lenient(scope, nothing, drop)
        await strict(scope, receive, send)

    client = TestClient(one_after_the_other, "http://shop.example")
    assert client.get("/api/v1/jobs").status_code == 401


class Signing:
    async def __call__(self, _request: Request) -> Caller:
        await asyncio.sleep(0)
        return Caller("ann", "admin")


async def asynchronous(request: Request) -> Caller:
    return Caller("ann", "admin")


@pytest.mark.parametrize("auth", [asynchronous, Signing(), later])
def test_the_function_may_be_async(app: Evenbeat, auth: Auth) -> None:
    assert mounted(app, auth).get("/api/v1/session").json()["subject"] == "ann"


def test_an_async_function_is_called_on_the_hosts_own_loop_and_a_plain_one_on_none(
    app: Evenbeat,
) -> None:
    loops: list[Any] = []
    threads: list[int] = []

    async def on_the_loop(request: Request) -> Caller:
        loops.append(asyncio.get_running_loop())
        return Caller("ann", "admin")

    def in_a_thread(request: Request) -> Caller:
        threads.append(threading.get_ident())
        return Caller("bob", "viewer")

    @asynccontextmanager
    async def lifespan(host: FastAPI) -> AsyncIterator[None]:
        loops.append(asyncio.get_running_loop())
        threads.append(threading.get_ident())
        yield

    host = FastAPI(lifespan=lifespan)
    host.mount("/async", app.asgi(auth=on_the_loop))
    host.mount("/plain", app.asgi(auth=in_a_thread))
    with TestClient(host, "http://shop.example") as client:
        assert client.get("/async/").status_code == 200
        assert client.get("/plain/").status_code == 200
    assert loops[0] is loops[1]
    assert threads[0] != threads[1]


# -- a host on FastAPI -----------------------------------------------------------------------------


def test_a_fastapi_host_with_its_own_state_and_root_path(app: Evenbeat) -> None:
    """The function sees the host's application, and the session as its middleware made it."""
    host = FastAPI()
    host.state.roles = {"ann@shop.example": "operator"}
    host.add_middleware(SessionMiddleware, secret_key=SECRET)

    def user(request: Request) -> str | None:
        return request.session.get("user")

    @host.post("/sign-in/{name}")
    def sign_in(request: Request, name: str) -> None:
        request.session["user"] = name

    @host.get("/me")
    def me(name: Annotated[str | None, Depends(user)]) -> str | None:
        return name

    def auth(request: Request) -> Caller | None:
        name = user(request)
        if name is None:
            return None
        request.session["seen"] = request.scope["root_path"]
        return Caller(name, request.app.state.roles[name])

    host.mount("/ops", app.asgi(auth=auth))
    client = TestClient(host, "http://shop.example", root_path="/shop", follow_redirects=False)
    client.headers["Sec-Fetch-Site"] = "same-origin"
    assert client.get("/shop/ops/jobs").status_code == 401
    client.post("/shop/sign-in/ann@shop.example")
    assert client.get("/shop/me").json() == "ann@shop.example"
    page = client.get("/shop/ops/")
    assert page.status_code == 200
    links = re.findall(r'(?:href|src|action)="(/[^"]*)"', page.text)
    assert [link for link in links if not link.startswith("/shop/ops/")] == []
    form = {"theme": "dark", "next": "/shop/ops/jobs"}
    answer = client.post("/shop/ops/preferences", data=form)
    assert answer.headers["location"] == "/shop/ops/jobs"
    assert "path=/shop/ops;" in answer.headers["set-cookie"].lower()
    made = client.post("/shop/ops/api/v1/jobs", json={"task": "nothing"})
    assert made.status_code == 201
    assert made.headers["location"].endswith(f"/shop/ops/api/v1/jobs/{made.json()['id']}")
    assert client.get("/shop/me").json() == "ann@shop.example"


def test_the_name_is_kept_with_what_somebody_did(
    app: Evenbeat, hosted_client_for: ClientFor
) -> None:
    client = hosted_client_for("operator")
    made = client.post("/api/v1/jobs", json={"task": "nothing"}).json()
    assert made["created_by"] == "a operator"
    form = {"task": "nothing", "kind": "once", "payload": "{}"}
    answer = client.post("/jobs/new", data=form)
    assert answer.status_code == 303
    assert {job.created_by for job in app.store.read.jobs().jobs} == {"a operator"}
    assert client.post("/api/v1/scheduler/rebalance", json={}).status_code == 200
    assert [one.created_by for one in app.store.placement.rebalances(limit=2)] == ["a operator"]


# -- refusals --------------------------------------------------------------------------------------


def test_a_host_may_lead_people_to_its_sign_in(app: Evenbeat, hosted_client_for: ClientFor) -> None:
    client = hosted_client_for(None, hosting(app.asgi(auth=lead_to_sign_in)))
    html = {"Accept": "text/html"}
    for path in ("/jobs", "/login", "/"):
        answer = client.get(path, headers=html)
        location = f"/sign-in?next=/ops{path}"
        assert (answer.status_code, answer.headers["location"]) == (303, location)
    assert client.get("/api/v1/jobs").status_code == 401
    client.post("http://shop.example/sign-in", json={"name": "ann", "role": "viewer"})
    assert client.get("/jobs", headers=html).status_code == 200


@pytest.mark.parametrize("status", [401, 403, 429])
def test_a_host_may_refuse_by_an_http_exception(app: Evenbeat, status: int) -> None:
    def auth(request: Request) -> Caller:
        raise HTTPException(status, "Ask Ann first.", {"Retry-After": "7"})

    client = mounted(app, auth)
    answer = client.get("/api/v1/jobs")
    assert (answer.status_code, answer.headers["retry-after"]) == (status, "7")
    assert answer.json()["detail"] == "Ask Ann first."
    page = client.get("/jobs")
    assert page.status_code == status
    assert "Ask Ann first." in page.text
    large = client.post("/api/v1/jobs", content=b"x" * 100_000)
    assert large.status_code == status


class BasicBackend(AuthenticationBackend):
    """Knows one person, by what browsers send by themselves once they have asked for it."""

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, SimpleUser] | None:
        known = "Basic " + b64encode(b"ann:tea").decode()
        if conn.headers.get("authorization") != known:
            return None
        return AuthCredentials(["authenticated"]), SimpleUser("ann")


def test_a_host_with_starlettes_own_authentication_and_a_password_prompt(app: Evenbeat) -> None:
    def auth(request: Request) -> Caller:
        if not request.user.is_authenticated:
            raise HTTPException(401, "Who are you?", {"WWW-Authenticate": 'Basic realm="shop"'})
        return Caller(request.user.display_name, "operator")

    host = Starlette(
        routes=[Mount("/ops", app.asgi(auth=auth))],
        middleware=[Middleware(AuthenticationMiddleware, backend=BasicBackend())],
    )
    client = TestClient(host, "http://shop.example/ops", follow_redirects=False)
    for path in ("/jobs", "/api/v1/jobs"):
        answer = client.get(path)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (
            401, 'Basic realm="shop"',
        )  # fmt: skip
        assert "Who are you?" in answer.text
        assert client.get(path, auth=("ann", "coffee")).status_code == 401
        assert client.get(path, auth=("ann", "tea")).status_code == 200
    made = client.post("/api/v1/jobs", json={"task": "nothing"}, auth=("ann", "tea"))
    assert made.json()["created_by"] == "ann"
    foreign = client.post(
        "/api/v1/jobs",
        json={"task": "nothing"},
        auth=("ann", "tea"),
        headers={"Sec-Fetch-Site": "cross-site"},
    )
    assert foreign.status_code == 403


def raising(error: BaseException) -> Auth:
    def auth(request: Request) -> Caller:
        raise error

    return auth


async def asynchronous_body(request: Request) -> Caller:
    return Caller((await request.body()).decode(), "admin")


WRONG: dict[str, tuple[Auth, str]] = {
    "an error": (raising(RuntimeError("password hunter2")), "raised RuntimeError; see the log."),
    "success by exception": (raising(HTTPException(200)), "raised HTTPException; see the log."),
    "an unknown role": (
        lambda _: Caller("ann", "boss"),
        "returned the role 'boss'; a role is one of viewer, operator, admin.",
    ),
    "no role": (lambda _: Caller("ann", None), "returned the role 'None'"),  # type: ignore[arg-type]
    "an empty name": (lambda _: Caller(" ", "admin"), "1 to 200 printable characters"),
    "a name that is no text": (
        lambda _: Caller(7, "admin"),  # type: ignore[arg-type]
        "returned a name that is of the type int; it must be a text.",
    ),
    "True": (lambda _: True, "returned bool; it must return a Caller or None."),
    "a role alone": (lambda _: "admin", "returned str; it must"),
    "a pair": (lambda _: ("ann", "admin"), "returned tuple; it must"),
    "its body": (asynchronous_body, "raised RuntimeError"),
}


@pytest.mark.parametrize(("auth", "words"), WRONG.values(), ids=WRONG)
def test_a_function_that_fails_lets_nobody_in(
    app: Evenbeat, caplog: pytest.LogCaptureFixture, auth: Auth, words: str
) -> None:
    client = mounted(app, auth)
    for method, path in (("GET", "/api/v1/jobs"), ("POST", "/api/v1/jobs"), ("GET", "/metrics")):
        answer = client.request(method, path)
        assert (answer.status_code, answer.headers["content-type"]) == (500, PROBLEM)
        assert words in answer.json()["detail"]
        assert "hunter2" not in answer.text
    page = client.get("/jobs")
    assert page.status_code == 500
    assert "The auth function" in page.text
    assert client.get("/healthz").status_code == 200
    record = next(r for r in caplog.records if r.levelno == logging.ERROR)
    assert "Nobody was let in." in record.getMessage()
    assert (record.exc_info is not None) == ("raised" in words)
    assert app.store.read.jobs().jobs == []


@pytest.mark.parametrize("auth", [None, "admin", 0, {}, lambda: None, divmod])
def test_what_is_no_function_of_a_request_is_refused_at_once(app: Evenbeat, auth: Any) -> None:
    with pytest.raises(InvalidInput, match="auth must be True, False, or a function") as caught:
        app.asgi(auth=auth)
    assert caught.value.field == "auth"
    assert isinstance(caught.value, EvenbeatError)


# -- requests that are not the user's own ----------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, 201),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "http://shop.example"}, 201),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://evil.example", "Authorization": "Bearer anything"}, 403),
        ({}, 403),
        ({"Authorization": "Bearer anything"}, 403),
    ],
    ids=str,
)
def test_a_change_with_the_hosts_cookie_comes_from_our_own_pages(
    hosted_client_for: ClientFor, headers: dict[str, str], status: int
) -> None:
    client = hosted_client_for("admin")
    del client.headers["Sec-Fetch-Site"]
    made = client.post("/api/v1/jobs", json={"task": "nothing"}, headers=headers)
    assert made.status_code == status, made.text


def test_a_program_that_sends_no_cookie_may_change_things(app: Evenbeat) -> None:
    def auth(request: Request) -> Caller | None:
        known = request.headers.get("authorization") == "Bearer key of deploy"
        return Caller("deploy", "operator") if known else None

    client = mounted(app, auth)
    job = {"task": "nothing"}
    key = {"Authorization": "Bearer key of deploy"}
    assert client.post("/api/v1/jobs", json=job, headers=key).json()["created_by"] == "deploy"
    assert client.post("/api/v1/jobs", json=job).status_code == 401
    foreign = key | {"Origin": "http://evil.example"}
    assert client.post("/api/v1/jobs", json=job, headers=foreign).status_code == 403


# -- the event stream ------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [None, RuntimeError("gone"), HTTPException(303)], ids=repr)
def test_a_stream_ends_with_the_sign_in(
    app: Evenbeat, monkeypatch: pytest.MonkeyPatch, end: Exception | None
) -> None:
    monkeypatch.setattr("evenbeat.api.live_events.QUIET_SECONDS", 0.1)
    present = threading.Event()
    present.set()

    async def auth(request: Request) -> Caller | None:
        if present.is_set():
            return Caller("ann", "viewer")
        if end is not None:
            raise end
        return None

    with (
        served(Starlette(routes=[Mount("/ops", app.asgi(auth=auth))])) as url,
        httpx.stream("GET", f"{url}/ops/api/v1/events") as stream,
    ):
        assert stream.status_code == 200
        lines = stream.iter_lines()
        while not next(lines).startswith(": still here"):
            pass
        present.clear()
        assert all(isinstance(line, str) for line in lines)
