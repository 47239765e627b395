"""The dashboard's pages, for everyone: who is let in, and that none was forgotten."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.testclient import TestClient

from evenbeat import Evenbeat, dashboard
from evenbeat.api.auth.tokens import Access
from evenbeat.api.dependencies import COOKIE
from evenbeat.asgi import asgi

PUBLIC = {"GET /login", "POST /login", "POST /logout", "POST /preferences", "GET /static/{name}"}
"""What needs no sign-in."""


def pages() -> Iterator[str]:
    for screen in dashboard._SCREENS:
        for route in screen.router.routes:
            assert isinstance(route, APIRoute)
            yield from (f"{method} {route.path}" for method in route.methods)


@pytest.fixture
def whole(app: Evenbeat, access: Access) -> FastAPI:
    return asgi(app, access=access)


def ask(
    client: TestClient, page: str, token: str | None, site: str = "same-origin"
) -> tuple[int, str]:
    method, path = page.split(" ")
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": site}
    if token is not None:
        headers["Cookie"] = f"{COOKIE}={token}"
    place = re.sub(r"{\w+(:\w+)?}", lambda _: str(uuid4()), path)
    answer = client.request(method, place, headers=headers)
    return answer.status_code, answer.headers.get("location", "")


def test_the_public_pages_are_these() -> None:
    assert set(pages()) >= PUBLIC


def test_the_document_names_what_is_public(whole: FastAPI) -> None:
    client = TestClient(whole, follow_redirects=False)
    text = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    for path in ("/healthz", "/readyz", "/openapi.json", "/static"):
        assert f"`{path}`" in text
    for path in ("/healthz", "/readyz", "/openapi.json", "/static/evenbeat.css", "/login"):
        assert client.get(path).status_code == 200, path
    for path in ("/docs", "/metrics", "/redoc", "/static/../pages.py", "/static/%2e%2e/pages.py"):
        assert client.get(path).status_code in (303, 401, 404), path


def test_nobody_gets_in_without_signing_in(whole: FastAPI) -> None:
    client = TestClient(whole, follow_redirects=False, raise_server_exceptions=False)
    for page in sorted(set(pages()) - PUBLIC):
        for token in (None, "worthless"):
            status, to = ask(client, page, token)
            assert (status, to.partition("?")[0]) == (303, "/login"), page


def test_a_viewer_changes_nothing(whole: FastAPI, token_for: Callable[[str], str]) -> None:
    client = TestClient(whole, follow_redirects=False, raise_server_exceptions=False)
    for page in sorted(set(pages()) - PUBLIC):
        if page.startswith("POST "):
            assert ask(client, page, token_for("viewer"))[0] == 403, page


def test_no_other_site_changes_anything(whole: FastAPI, token_for: Callable[[str], str]) -> None:
    client = TestClient(whole, follow_redirects=False, raise_server_exceptions=False)
    for page in sorted(set(pages())):
        if page.startswith("POST "):
            for site in ("cross-site", "same-site", "none"):
                assert ask(client, page, token_for("admin"), site)[0] == 403, (page, site)
