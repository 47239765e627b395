"""`app.asgi()`: the service inside of somebody else's application."""

import re
from datetime import UTC, datetime, timedelta

import jwt
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from evenbeat import Evenbeat
from evenbeat.api.auth.tokens import Access, Role
from evenbeat.asgi import asgi
from loopback import SECRET


def mounted(app: Evenbeat, *, auth: bool = True, peer: str = "127.0.0.1") -> TestClient:
    """A client, as if on another machine, of an application that has the service at /ops."""
    site = Starlette(routes=[Mount("/ops", app.asgi(auth=auth))])
    return TestClient(
        site,
        base_url="http://localhost",
        client=(peer, 50_000),
        follow_redirects=False,
        raise_server_exceptions=False,
    )


def test_it_is_all_there_under_the_prefix_and_behind_its_door(
    app: Evenbeat, access: Access
) -> None:
    client = mounted(app)
    assert client.get("/ops/healthz").json() == {"status": "ok"}
    assert client.get("/ops/api/v1/jobs").status_code == 401
    assert client.get("/ops/jobs").headers["location"] == "/ops/login?next=%2Fops%2Fjobs"
    assert client.get("/api/v1/jobs").status_code == 404

    answer = client.get(f"/ops/login?code={access.login_code(Role.OPERATOR)}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/ops/")
    assert "path=/ops;" in answer.headers["set-cookie"].lower()
    page = client.get("/ops/")
    assert page.status_code == 200
    links = re.findall(r'(?:href|src|action)="(/[^"]*)"', page.text)
    assert len(links) > 10
    assert [link for link in links if not link.startswith("/ops/")] == []

    token = access.issue(Role.OPERATOR, timedelta(hours=1), subject="ann").token
    headers = {"Authorization": f"Bearer {token}"}
    answer = client.post("/ops/api/v1/jobs", json={"task": "nothing"}, headers=headers)
    assert answer.status_code == 201
    assert answer.headers["location"].endswith(f"/ops/api/v1/jobs/{answer.json()['id']}")


def test_while_the_database_is_away_it_says_so() -> None:
    client = mounted(Evenbeat("postgresql://nobody@127.0.0.1:1/nothing", auth_secret=SECRET))
    assert client.get("/ops/healthz").status_code == 200
    assert client.get("/ops/readyz").status_code == 503
    assert client.get("/ops/api/v1/jobs").status_code == 401
    claims = {"sub": "ann", "role": "admin", "exp": datetime.now(UTC) + timedelta(hours=1)}
    token = jwt.encode(claims | {"jti": "one"}, SECRET, algorithm="HS256")
    for path in ("/ops/api/v1/jobs", "/ops/jobs"):
        answer = client.get(path, headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 503, path
        assert answer.headers["retry-after"] == "5"


@pytest.mark.parametrize(
    ("peer", "status"),
    [
        ("127.0.0.1", 200),
        ("127.9.9.9", 200),
        ("::1", 200),
        ("::ffff:127.0.0.1", 200),
        ("192.0.2.7", 403),
        ("2001:db8::7", 403),
        ("::ffff:192.0.2.7", 403),
    ],
)
def test_without_authentication_only_this_machine_is_let_in_whatever_host_it_names(
    app: Evenbeat, peer: str, status: int
) -> None:
    client = mounted(app, auth=False, peer=peer)
    assert client.get("/ops/api/v1/jobs").status_code == status
    assert client.get("/ops/jobs").status_code == status
    answer = client.post("/ops/api/v1/session", json={"token": "x"})
    assert answer.status_code == status


def test_a_name_that_is_pointed_here_is_refused(app: Evenbeat) -> None:
    client = TestClient(asgi(app, access=Access.open()), base_url="http://rebound.example")
    assert client.get("/api/v1/jobs").status_code == 403


def test_the_openapi_document_is_written_out_once_for_each_place(app: Evenbeat) -> None:
    client = mounted(app)
    first, second = (client.get("/ops/openapi.json") for _ in range(2))
    assert first.json()["servers"] == [{"url": "/ops"}]
    assert "/api/v1/jobs" in first.json()["paths"]
    assert first.content == second.content
    tag = first.headers["etag"]
    known = client.get("/ops/openapi.json", headers={"If-None-Match": f'"other", W/{tag}'})
    assert (known.status_code, known.content, known.headers["etag"]) == (304, b"", tag)
    assert "servers" not in TestClient(app.asgi(), "http://localhost").get("/openapi.json").json()
