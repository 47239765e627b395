"""The service on a real database: an application with a few tasks, and a client for each role."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient
from starlette.types import ASGIApp

from evenbeat import Context, Evenbeat, Fail, compat
from evenbeat.api.app import create
from evenbeat.api.auth.tokens import Access, Role
from evenbeat.engine.worker import Worker
from loopback import SECRET, hosting, signed_in

ClientFor = Callable[..., TestClient]


def declare_tasks(app: Evenbeat) -> None:
    """What the tests run: one that ends at once, one that fails, one that waits to be cancelled."""

    @app.task(max_retries=5, timeout="30s", queue="mail")
    async def send_email(to: str, subject: str = "hi", *, ctx: Context) -> dict[str, Any]:
        """Send a mail."""
        ctx.progress(1, 1, "sent")
        return {"to": to, "subject": subject}

    @app.task(max_retries=0)
    def fails() -> None:
        raise Fail("It was meant to.")

    @app.task
    async def waits(seconds: float = 60) -> None:
        await asyncio.sleep(seconds)

    @app.task
    def crawl(url: str, source_id: str | None = None, source_name: str | None = None) -> None:
        """Stands for the crawler."""

    @app.task
    def nothing() -> None: ...


@pytest.fixture
def app(database_url: str) -> Iterator[Evenbeat]:
    """An application with tasks, on an empty database."""
    app = Evenbeat(database_url, auth_secret=SECRET, poll_seconds=0.2)
    declare_tasks(app)
    with app:
        yield app


@pytest.fixture
def access(app: Evenbeat) -> Access:
    return Access.of(app.settings, app.store)


@pytest.fixture
def api(app: Evenbeat, access: Access) -> FastAPI:
    api = create(app, access=access)
    compat.install(api)
    return api


@pytest.fixture
def token_for(access: Access) -> Callable[[str], str]:
    """Makes tokens: `token_for("viewer")`."""
    made: dict[str, str] = {}

    def token(role: str) -> str:
        if role not in made:
            issued = access.issue(Role(role), timedelta(hours=1), subject=f"a {role}")
            made[role] = issued.token
        return made[role]

    return token


@pytest.fixture
def client_for(api: FastAPI, token_for: Callable[[str], str]) -> ClientFor:
    """Makes clients: `client_for("viewer")`, or `client_for(None)` without a token."""

    def client(role: str | None) -> TestClient:
        headers = {} if role is None else {"Authorization": f"Bearer {token_for(role)}"}
        return TestClient(api, headers=headers, raise_server_exceptions=False)

    return client


@pytest.fixture
def client(client_for: ClientFor) -> TestClient:
    """An operator's client."""
    return client_for("operator")


@pytest.fixture
def worker(app: Evenbeat) -> Iterator[Worker]:
    """A worker that runs until the test ends."""
    worker = app.worker()
    worker.start()
    yield worker
    worker.stop(grace=0)


@pytest.fixture
def hosted_client_for(app: Evenbeat) -> ClientFor:
    """Makes browsers: `hosted_client_for("viewer")` has signed in at the host."""

    def client(role: str | None, host: ASGIApp | None = None) -> TestClient:
        client = TestClient(
            host or hosting(app.asgi(auth=signed_in)),
            base_url="http://shop.example",
            headers={"Sec-Fetch-Site": "same-origin"},
            follow_redirects=False,
            raise_server_exceptions=False,
        )
        if role is not None:
            client.post("/sign-in", json={"name": f"a {role}", "role": role})
        client.base_url = "http://shop.example/ops"
        return client

    return client
