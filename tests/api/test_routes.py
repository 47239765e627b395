"""Every route, for everyone: who is let in, who is not, and that no route was forgotten."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import jwt
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from evenbeat import Evenbeat
from evenbeat.api.app import create
from evenbeat.api.auth.tokens import Access
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
    "GET /api/v1/jobs/{job_id}/stats": VIEWER,
    "GET /api/v1/jobs/{job_id}/plans": VIEWER,
    "GET /api/v1/jobs/{job_id}/explain": VIEWER,
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
    "GET /api/v1/executions/{execution_id}": VIEWER,
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
    "GET /api/v1/tokens": ADMIN,
    "POST /api/v1/tokens": ADMIN,
    "DELETE /api/v1/tokens/{token_id}": ADMIN,
    "GET /metrics": VIEWER,
    "GET /healthz": EVERYONE,
    "GET /readyz": EVERYONE,
}
"""Who may ask what: the least role."""

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


def test_every_route_is_in_the_table(api: FastAPI) -> None:
    document = api.openapi()["paths"]
    found = {f"{method.upper()} {path}" for path, item in document.items() for method in item}
    assert found - ROLES.keys() == set(), "say in ROLES who may use these"
    assert ROLES.keys() - found == set(), "these are gone"


def test_no_worthless_token_opens_a_door(client_for: Any) -> None:
    client = client_for(None)
    for name, header in worthless():
        headers = {} if header is None else {"Authorization": header}
        for route in GUARDED:
            assert ask(client, route, headers) == 401, (route, name)


@pytest.mark.parametrize("role", [VIEWER, OPERATOR, ADMIN])
def test_each_role_gets_as_far_as_it_may(client_for: Any, role: str) -> None:
    client = client_for(role)
    for route, needed in GUARDED.items():
        status = ask(client, route)
        if RANK[role] < RANK[needed]:
            assert status == 403, (route, status)
        else:
            assert status in (200, 404, 422, 204), (route, status)


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
