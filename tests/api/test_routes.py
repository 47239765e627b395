"""Every route, for everyone: who is let in, who is not, and that no route was forgotten.

The routes are those of the whole service: API, guests, admin API and dashboard. Who adds one
says in the table who may use it.
"""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import jwt
import pytest
from fastapi import APIRouter, FastAPI
from starlette.testclient import TestClient

from evenbeat import Evenbeat
from evenbeat.api.app import create
from evenbeat.api.auth.tokens import Access
from evenbeat.api.dependencies import COOKIE
from evenbeat.asgi import asgi
from loopback import SECRET

EVERYONE = "everyone"

VIEWER, OPERATOR, ADMIN = "viewer", "operator", "admin"
RANK = {VIEWER: 0, OPERATOR: 1, ADMIN: 2}

ROLES: dict[str, str] = {
    "POST /api/v1/jobs": OPERATOR,
    "GET /api/v1/jobs": VIEWER,
    "GET /api/v1/jobs/{job_id}": VIEWER,
    "PATCH /api/v1/jobs/{job_id}": OPERATOR,
    "PUT /api/v1/jobs/{job_id}": OPERATOR,
    "DELETE /api/v1/jobs/{job_id}": OPERATOR,
    "POST /api/v1/jobs/{job_id}/pause": OPERATOR,
    "POST /api/v1/jobs/{job_id}/resume": OPERATOR,
    "POST /api/v1/jobs/{job_id}/cancel": OPERATOR,
    "POST /api/v1/jobs/{job_id}/retry": OPERATOR,
    "POST /api/v1/jobs/{job_id}/run": OPERATOR,
    "GET /api/v1/jobs/{job_id}/executions": VIEWER,
    "GET /api/v1/executions/{execution_id}/log": VIEWER,
    "GET /api/v1/jobs/{job_id}/steps": VIEWER,
    "POST /api/v1/jobs/{job_id}/events/{name}": OPERATOR,
    "POST /api/v1/jobs/{job_id}/events/{name}/link": OPERATOR,
    "GET /api/v1/jobs/{job_id}/stats": VIEWER,
    "GET /api/v1/jobs/{job_id}/plans": VIEWER,
    "GET /api/v1/jobs/{job_id}/explain": VIEWER,
    "GET /api/v1/batches": VIEWER,
    "GET /api/v1/batches/{batch_id}": VIEWER,
    "POST /api/v1/batches/{batch_id}/close": OPERATOR,
    "POST /api/v1/batches/{batch_id}/{verb}": OPERATOR,
    "GET /api/v1/templates": VIEWER,
    "POST /api/v1/templates": OPERATOR,
    "GET /api/v1/templates/{name}": VIEWER,
    "PUT /api/v1/templates/{name}": OPERATOR,
    "DELETE /api/v1/templates/{name}": OPERATOR,
    "POST /api/v1/templates/{name}/preview": VIEWER,
    "POST /api/v1/templates/{name}/jobs": OPERATOR,
    "POST /api/v1/jobs/bulk": OPERATOR,
    "POST /api/v1/jobs/bulk/delete": OPERATOR,
    "POST /api/v1/jobs/bulk/{verb}": OPERATOR,
    "POST /api/v1/jobs/{job_id}/backfill": OPERATOR,
    "GET /api/v1/executions": VIEWER,
    "GET /api/v1/executions/errors": VIEWER,
    "POST /api/v1/executions/retry": OPERATOR,
    "POST /api/v1/executions/cancel": OPERATOR,
    "POST /api/v1/executions/{execution_id}/retry": OPERATOR,
    "GET /api/v1/executions/{execution_id}": VIEWER,
    "POST /api/v1/executions/{execution_id}/cancel": OPERATOR,
    "GET /api/v1/pause": VIEWER,
    "PUT /api/v1/pause": OPERATOR,
    "DELETE /api/v1/pause": OPERATOR,
    "GET /api/v1/documents": VIEWER,
    "GET /api/v1/documents/{document_id}": VIEWER,
    "DELETE /api/v1/documents/{document_id}": ADMIN,
    "GET /api/v1/sources": VIEWER,
    "POST /api/v1/schedules/preview": VIEWER,
    "GET /api/v1/queues": VIEWER,
    "POST /api/v1/queues/{name}/pause": OPERATOR,
    "POST /api/v1/queues/{name}/resume": OPERATOR,
    "GET /api/v1/limits": VIEWER,
    "GET /api/v1/limits/{key}": VIEWER,
    "PUT /api/v1/limits/{key}": OPERATOR,
    "DELETE /api/v1/limits/{key}": OPERATOR,
    "GET /api/v1/workers": VIEWER,
    "POST /api/v1/workers/{worker_id}/drain": OPERATOR,
    "GET /api/v1/tasks": VIEWER,
    "GET /api/v1/scheduler/metrics": VIEWER,
    "GET /api/v1/scheduler/doctor": VIEWER,
    "GET /api/v1/events": VIEWER,
    "GET /api/v1/scheduler/distribution": VIEWER,
    "GET /api/v1/scheduler/distribution/history": VIEWER,
    "POST /api/v1/scheduler/rebalance/preview": VIEWER,
    "POST /api/v1/scheduler/rebalance": OPERATOR,
    "GET /api/v1/scheduler/rebalances": VIEWER,
    "POST /api/v1/scheduler/rebalance/{rebalance_id}/undo": OPERATOR,
    "GET /api/v1/webhooks": VIEWER,
    "POST /api/v1/webhooks": ADMIN,
    "GET /api/v1/webhooks/{webhook_id}": VIEWER,
    "PATCH /api/v1/webhooks/{webhook_id}": ADMIN,
    "DELETE /api/v1/webhooks/{webhook_id}": ADMIN,
    "POST /api/v1/webhooks/{webhook_id}/rotate": ADMIN,
    "POST /api/v1/webhooks/{webhook_id}/test": OPERATOR,
    "GET /api/v1/webhooks/{webhook_id}/deliveries": VIEWER,
    "POST /api/v1/webhooks/{webhook_id}/redeliver": OPERATOR,
    "GET /api/v1/webhook-messages/{message_id}": VIEWER,
    "POST /api/v1/webhook-messages/{message_id}/redeliver": OPERATOR,
    "GET /api/admin/jobs/stats": OPERATOR,
    "GET /api/admin/jobs": OPERATOR,
    "PUT /api/admin/jobs/bulk/status": ADMIN,
    "POST /api/admin/jobs/bulk/retry": ADMIN,
    "PUT /api/admin/jobs/{job_id}/status": ADMIN,
    "PUT /api/admin/jobs/{job_id}/priority": ADMIN,
    "POST /api/admin/jobs/{job_id}/boost": ADMIN,
    "POST /api/admin/jobs/{job_id}/retry": ADMIN,
    "GET /api/admin/scheduled-jobs": OPERATOR,
    "POST /api/admin/scheduled-jobs": ADMIN,
    "GET /api/admin/scheduled-jobs/{job_id}": OPERATOR,
    "PUT /api/admin/scheduled-jobs/{job_id}": ADMIN,
    "DELETE /api/admin/scheduled-jobs/{job_id}": ADMIN,
    "POST /api/admin/scheduled-jobs/{job_id}/toggle": ADMIN,
    "GET /api/v1/session": VIEWER,
    "POST /api/v1/session": EVERYONE,
    "DELETE /api/v1/session": VIEWER,
    "GET /api/v1/audit": ADMIN,
    "GET /api/v1/tokens": ADMIN,
    "POST /api/v1/tokens": ADMIN,
    "DELETE /api/v1/tokens/{token_id}": ADMIN,
    "GET /metrics": VIEWER,
    "GET /healthz": EVERYONE,
    "GET /readyz": EVERYONE,
    "GET /openapi.json": EVERYONE,
}
"""Who may ask what of the API: the least role."""

PAGES: dict[str, str] = {
    "GET /login": EVERYONE,
    "POST /login": EVERYONE,
    "POST /logout": EVERYONE,
    "POST /preferences": EVERYONE,
    "GET /event": EVERYONE,
    "POST /event": EVERYONE,
    "GET /": VIEWER,
    "GET /jobs": VIEWER,
    "POST /jobs/actions": OPERATOR,
    "GET /runs": VIEWER,
    "POST /runs/actions": OPERATOR,
    "POST /undo/{undo_id}": OPERATOR,
    "GET /jobs/new": OPERATOR,
    "POST /jobs/new": OPERATOR,
    "GET /jobs/{job_id}/edit": OPERATOR,
    "POST /jobs/{job_id}/edit": OPERATOR,
    "POST /jobs/preview": OPERATOR,
    "GET /jobs/{job_id}": VIEWER,
    "GET /executions/{execution_id}": VIEWER,
    "GET /executions/{execution_id}/log": VIEWER,
    "GET /executions/{execution_id}/stop": OPERATOR,
    "POST /executions/{execution_id}/stop": OPERATOR,
    "GET /pause": OPERATOR,
    "POST /pause": OPERATOR,
    "POST /resume": OPERATOR,
    "GET /jobs/{job_id}/backfill": OPERATOR,
    "POST /jobs/{job_id}/backfill": OPERATOR,
    "POST /jobs/{job_id}/backfill/preview": OPERATOR,
    "GET /distribution": VIEWER,
    "GET /distribution/rebalance": OPERATOR,
    "POST /distribution/rebalance/preview": OPERATOR,
    "POST /distribution/rebalance": OPERATOR,
    "GET /distribution/rebalances/{rebalance_id}": VIEWER,
    "POST /distribution/rebalances/{rebalance_id}/undo": OPERATOR,
    "GET /timeline": VIEWER,
    "GET /workers": VIEWER,
    "GET /workers/{worker_id}/drain": OPERATOR,
    "POST /workers/{worker_id}/drain": OPERATOR,
    "POST /queues/{verb}": OPERATOR,
    "GET /batches": VIEWER,
    "GET /batches/{batch_id}": VIEWER,
    "GET /batches/{batch_id}/cancel": OPERATOR,
    "POST /batches/{batch_id}/{verb}": OPERATOR,
    "GET /webhooks": VIEWER,
    "GET /webhooks/messages/{message}": VIEWER,
    "POST /webhooks/{webhook_id}/test": OPERATOR,
    "POST /webhooks/messages/{message}/redeliver": OPERATOR,
    "GET /audit": ADMIN,
    "GET /settings": VIEWER,
    "POST /settings/tokens": ADMIN,
    "GET /settings/tokens/{token_id}/revoke": ADMIN,
    "POST /settings/tokens/{token_id}/revoke": ADMIN,
    "GET /docs": VIEWER,
    "GET /static/{name}": EVERYONE,
    "GET /documents": VIEWER,
}
"""And of the dashboard."""

OF_TOKENS = {"DELETE /api/v1/session", "DELETE /api/v1/tokens/{token_id}"}
"""What those who sign in at a host are told that they must do there."""

GUARDED = {route: role for route, role in ROLES.items() if role != EVERYONE}


def signed(claims: dict[str, Any], secret: str = SECRET, algorithm: str = "HS256") -> str:
    return jwt.encode(claims, secret, algorithm=algorithm)


def claims(**changes: Any) -> dict[str, Any]:
    now = datetime.now(UTC)
    usual = {"sub": "someone", "role": "admin", "iat": now, "exp": now + timedelta(hours=1)}
    return {name: value for name, value in (usual | changes).items() if value is not None}


def worthless() -> Iterator[tuple[str, str | None]]:
    """What must open no door, by name."""
    yield "no token", None
    yield "an empty one", "Bearer "
    yield "another scheme", "Basic YWRtaW46YWRtaW4="
    yield "no JWT", "Bearer not.a.token"
    yield "expired", "Bearer " + signed(claims(exp=datetime.now(UTC) - timedelta(minutes=1)))
    yield "without expiry", "Bearer " + signed(claims(exp=None))
    yield "wrong signature", "Bearer " + signed(claims(), "quite another secret, also long enough")
    yield "alg none", "Bearer " + jwt.encode(claims(), "", algorithm="none")
    yield "an unknown role", "Bearer " + signed(claims(role="emperor"))
    yield "another algorithm", "Bearer " + signed(claims(), SECRET * 2, "HS512")


def ask(client: TestClient, route: str, headers: dict[str, str] | None = None) -> int:
    """The status of a request that changes nothing: nobody's id, and a body that is none."""
    method, path = route.split(" ")
    place = re.sub(r"{(\w+)}", lambda match: _nobody(match[1]), path)
    query = {"job_id": str(uuid4())} if path.endswith("/events") else {}
    body = {"json": {}} if method in ("POST", "PUT", "PATCH") else {}
    return client.request(method, place, params=query, headers=headers, **body).status_code


def _nobody(parameter: str) -> str:
    return {"verb": "pause", "name": "%20"}.get(parameter, str(uuid4()))


def routes_of(api: FastAPI) -> Iterator[str]:
    """Every method of every path that the service answers, in the schema or not."""
    waiting: list[Any] = list(api.router.routes)
    for route in waiting:
        if (included := getattr(route, "original_router", None)) is not None:
            waiting += included.routes
            continue
        path = re.sub(r"{(\w+):\w+}", r"{\1}", route.path)
        for method in getattr(route, "methods", None) or ["mount"]:
            if method != "HEAD":
                yield f"{method} {path}"


@pytest.fixture
def whole(app: Evenbeat, access: Access) -> FastAPI:
    return asgi(app, access=access)


def test_every_route_is_in_the_table(whole: FastAPI) -> None:
    found = set(routes_of(whole))
    assert found - ROLES.keys() - PAGES.keys() == set(), "say in ROLES who may use these"
    assert ROLES.keys() | PAGES.keys() == found, "these are gone"


def test_a_route_without_a_rule_would_be_noticed(whole: FastAPI) -> None:
    whole.add_api_route("/api/v1/back-door", lambda: "open", include_in_schema=False)
    router = APIRouter()
    router.add_api_route("/api/v1/inner/{name:path}", lambda: "open", methods=["PUT"])
    whole.include_router(router)
    whole.mount("/tools", FastAPI())
    assert set(routes_of(whole)) - ROLES.keys() - PAGES.keys() == {
        "GET /api/v1/back-door", "PUT /api/v1/inner/{name}", "mount /tools",
    }  # fmt: skip


def test_no_worthless_token_opens_a_door(client_for: Any) -> None:
    client = client_for(None)
    for name, header in worthless():
        headers = {} if header is None else {"Authorization": header}
        for route in GUARDED:
            assert ask(client, route, headers) == 401, (route, name)


@pytest.mark.parametrize("role", [VIEWER, OPERATOR, ADMIN])
@pytest.mark.parametrize("door", ["client_for", "hosted_client_for"])
def test_each_role_gets_as_far_as_it_may(
    request: pytest.FixtureRequest, door: str, role: str
) -> None:
    client = request.getfixturevalue(door)(role)
    for route, needed in GUARDED.items():
        status = ask(client, route)
        if RANK[role] < RANK[needed]:
            assert status == 403, (route, status)
        elif door == "hosted_client_for" and route in OF_TOKENS:
            assert status == 409, (route, status)
        else:
            assert status in (200, 404, 422, 204), (route, status)


def test_nobody_gets_in_who_is_not_signed_in_at_the_host(hosted_client_for: Any) -> None:
    client = hosted_client_for(None)
    for name, header in worthless():
        headers = {} if header is None else {"Authorization": header}
        for route in GUARDED:
            assert ask(client, route, headers) == 401, (route, name)
    for page, needed in PAGES.items():
        status, to = visit(client, page, None)
        if page in ("GET /static/{name}", "POST /preferences", "GET /event", "POST /event"):
            assert status in (303, 404), page
        elif needed == EVERYONE:
            assert status in (401, 409, 303), page
            assert to in ("", "/ops/login"), page
        else:
            assert (status, to) == (401, ""), page


def test_refusals_are_problems_with_a_challenge(client_for: Any) -> None:
    response = client_for(None).get("/api/v1/jobs")
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["www-authenticate"].startswith("Bearer")
    response = client_for("viewer").post("/api/v1/jobs", json={})
    assert response.headers["content-type"] == "application/problem+json"
    assert "operator" in response.json()["detail"]


def test_other_methods_and_places_are_problems_too(client: TestClient) -> None:
    assert client.get("/api/v1/nothing").status_code == 404
    assert client.get("/api/v1/jobs/").status_code in (404, 422)
    response = client.delete("/api/v1/jobs")
    assert response.status_code == 405
    assert response.headers["content-type"] == "application/problem+json"


def test_while_the_database_is_away_everything_says_so() -> None:
    app = Evenbeat("postgresql://nobody@127.0.0.1:1/nothing")
    api = create(app, access=Access.open())
    client = TestClient(api, base_url="http://localhost", raise_server_exceptions=False)
    asked = [client.get("/api/v1/jobs"), client.post("/api/v1/jobs", json={"task": "x"})]
    for response in asked:
        assert response.status_code == 503, response.text
        assert response.headers["retry-after"] == "5"
        assert response.headers["content-type"] == "application/problem+json"
        assert "127.0.0.1" not in response.text


# -- pages ---------------------------------------------------------------------------------------


def visit(
    client: TestClient, page: str, token: str | None, site: str = "same-origin"
) -> tuple[int, str]:
    """The status for a browser, and where it is led."""
    method, path = page.split(" ")
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": site}
    if token is not None:
        headers["Cookie"] = f"{COOKIE}={token}"
    place = re.sub(r"{(\w+)}", lambda match: _nobody(match[1]), path)
    answer = client.request(method, place, headers=headers)
    return answer.status_code, answer.headers.get("location", "").partition("?")[0]


@pytest.mark.parametrize("role", [None, VIEWER, OPERATOR, ADMIN])
def test_each_role_sees_the_pages_that_it_may(
    whole: FastAPI, token_for: Callable[[str], str], role: str | None
) -> None:
    client = TestClient(whole, follow_redirects=False, raise_server_exceptions=False)
    for page, needed in PAGES.items():
        for token in ["worthless", None] if role is None else [token_for(role)]:
            status, to = visit(client, page, token)
            if needed == EVERYONE:
                assert status != 403, (page, status)
            elif role is None:
                assert (status, to) == (303, "/login"), page
            elif RANK[role] < RANK[needed]:
                assert status == 403, (page, status)
            else:
                assert status < 500, (page, status)
                assert status not in (401, 403), (page, status)
                assert to != "/login", page


def test_no_other_site_changes_anything(whole: FastAPI, token_for: Callable[[str], str]) -> None:
    client = TestClient(whole, follow_redirects=False, raise_server_exceptions=False)
    for page in PAGES:
        if page.startswith("POST "):
            for site in ("cross-site", "same-site", "none"):
                assert visit(client, page, token_for("admin"), site)[0] == 403, (page, site)


@pytest.mark.parametrize("role", [VIEWER, OPERATOR, ADMIN])
def test_each_role_of_a_host_sees_the_pages_that_it_may(hosted_client_for: Any, role: str) -> None:
    client = hosted_client_for(role)
    for page, needed in PAGES.items():
        status, to = visit(client, page, None)
        if needed != EVERYONE and RANK[role] < RANK[needed]:
            assert status == 403, (page, status)
        elif page in ("POST /login", "POST /logout", "POST /settings/tokens/{token_id}/revoke"):
            assert status == 409, (page, status)  # the host signs people in and out
        else:
            assert status < 500, (page, status)
            assert status not in (401, 403), (page, status)
            assert to != "/ops/login", page


def test_no_other_site_changes_anything_behind_a_host(hosted_client_for: Any) -> None:
    client = hosted_client_for("admin")
    for route in (*PAGES, *GUARDED):
        if not route.startswith("GET "):
            for site in ("cross-site", "same-site", "none"):
                assert visit(client, route, None, site)[0] == 403, (route, site)
    for route in GUARDED:
        if not route.startswith("GET "):
            foreign = {"Sec-Fetch-Site": "", "Origin": "https://evil.example"}
            assert ask(client, route, foreign) == 403, route


def test_the_document_names_what_is_public(whole: FastAPI) -> None:
    client = TestClient(whole, follow_redirects=False)
    text = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    open_to_all = {route.split("/")[1] for route, role in (ROLES | PAGES).items()
                   if role == EVERYONE and route.startswith("GET ")}  # fmt: skip
    for place in open_to_all - {"login"}:  # the sign-in page
        assert f"`/{place}`" in text
    for path in ("/healthz", "/readyz", "/openapi.json", "/static/evenbeat.css", "/login"):
        assert client.get(path).status_code == 200, path
    for path in ("/docs", "/metrics", "/redoc", "/static/../pages.py", "/static/%2e%2e/pages.py"):
        assert client.get(path).status_code in (303, 401, 404), path
