"""Access over HTTP: every kind of token on a route of every level, revocation, login codes."""

import logging
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from uuid import UUID, uuid4

import jwt
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from evenbeat.api import problems
from evenbeat.api.auth.tokens import FRESH_SECONDS, Access, RevokedTokens, Role
from evenbeat.api.dependencies import Admin, MaybePrincipal, Operator, Viewer
from evenbeat.api.places import Places
from evenbeat.errors import CannotIssue, DatabaseUnavailable, NotAuthenticated, NotFound
from evenbeat.settings import load_settings
from evenbeat.store.store import Store

SECRET = "a secret for tests that is long enough"  # noqa: S105
DAY = timedelta(days=1)
ROUTES = {"/look": Role.VIEWER, "/operate": Role.OPERATOR, "/administer": Role.ADMIN}


@pytest.fixture
def access(store: Store) -> Access:
    return Access.of(load_settings(auth_secret=SECRET), store)


def guarded(access: Access) -> FastAPI:
    """The smallest service with a route for each role."""
    api = FastAPI()
    problems.install(api)
    api.state.service = SimpleNamespace(access=access, places=Places(10))

    @api.get("/look")
    def look(principal: Viewer) -> str:
        return principal.subject

    @api.get("/operate")
    def operate(principal: Operator) -> str:
        return principal.subject

    @api.get("/administer")
    def administer(principal: Admin) -> str:
        return principal.subject

    @api.get("/page")
    def page(principal: MaybePrincipal) -> str | None:
        return principal.subject if principal else None

    return api


@pytest.fixture
def client(access: Access) -> Iterator[TestClient]:
    with TestClient(guarded(access), base_url="http://evenbeat.example") as client:
        yield client


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def signed(key: str = SECRET, algorithm: str = "HS256", **changes: object) -> str:
    now = int(time.time())
    claims = {"sub": "eve", "role": "admin", "iat": now, "exp": now + 86_400, "jti": "x"} | changes
    return jwt.encode(
        {name: value for name, value in claims.items() if value is not ...},
        None if algorithm == "none" else key,
        algorithm=algorithm,
    )


# -- every kind of token on every level ------------------------------------------------------------

PAST = int(time.time()) - 60

BAD = {
    "no token": {},
    "empty": {"Authorization": ""},
    "no scheme": {"Authorization": signed()},
    "another scheme": {"Authorization": "Basic YWRtaW46YWRtaW4="},
    "scheme alone": {"Authorization": "Bearer "},
    "garbage": bearer("garbage"),
    "two tokens": bearer(f"{signed()} {signed()}"),
    "huge": bearer("a" * 60_000),
    "expired": bearer(signed(iat=PAST - 60, exp=PAST)),
    "without exp": bearer(signed(exp=...)),
    "without sub": bearer(signed(sub=...)),
    "wrong signature": bearer(signed("another secret, just as long as the right one")),
    "alg none": bearer(signed(algorithm="none")),
    "another hash": bearer(signed(SECRET * 2, "HS512")),
    "unknown role": bearer(signed(role="root")),
    "no role": bearer(signed(role=...)),
    "iat in the future": bearer(signed(iat=int(time.time()) + 86_000)),
    "jti that is no text": bearer(signed(jti=7)),
}


@pytest.mark.parametrize("headers", BAD.values(), ids=BAD)
def test_what_is_no_good_token_is_refused_on_every_level(client, caplog, headers):
    caplog.set_level(logging.DEBUG)
    for path in ROUTES:
        answer = client.get(path, headers=headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == 'Bearer realm="evenbeat"'
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == 401
        for shown in (answer.text, str(answer.headers), caplog.text):
            assert SECRET not in shown
            for part in headers.get("Authorization", "").removeprefix("Bearer ").split("."):
                assert len(part) < 8 or part not in shown


LET_IN = {
    Role.VIEWER: {"/look"},
    Role.OPERATOR: {"/look", "/operate"},
    Role.ADMIN: {"/look", "/operate", "/administer"},
}


@pytest.mark.parametrize("role", Role)
def test_each_role_on_each_level(client, access, role):
    token = access.issue(role, DAY, subject="ann").token
    for path, needed in ROUTES.items():
        answer = client.get(path, headers=bearer(token))
        if path in LET_IN[role]:
            assert (answer.status_code, answer.json()) == (200, "ann")
        else:
            assert answer.status_code == 403
            assert answer.json()["detail"] == (
                f"This takes the role {needed} or above; you have {role}."
            )
            assert "www-authenticate" not in answer.headers


def test_two_authorization_headers_are_refused(client, access):
    good = access.issue(Role.ADMIN, DAY, subject="ann").token
    headers = [("Authorization", f"Bearer {good}"), ("Authorization", "Bearer other")]
    assert client.get("/look", headers=headers).status_code == 401


def test_the_scheme_may_be_written_in_any_case(client, access):
    token = access.issue(Role.VIEWER, DAY, subject="ann").token
    assert client.get("/look", headers={"authorization": f"bearer  {token}"}).status_code == 200


def test_a_page_knows_who_asks_if_anyone(client, access):
    token = access.issue(Role.VIEWER, DAY, subject="ann").token
    assert client.get("/page", headers=bearer(token)).json() == "ann"
    assert client.get("/page").json() is None
    assert client.get("/page", headers=bearer("garbage")).json() is None


def test_the_document_shows_the_scheme_and_the_refusals(client):
    document = client.get("/openapi.json").json()
    scheme = document["components"]["securitySchemes"]["token"]
    assert (scheme["type"], scheme["scheme"], scheme["bearerFormat"]) == ("http", "bearer", "JWT")
    for path in ROUTES:
        operation = document["paths"][path]["get"]
        assert operation["security"] == [{"token": []}]
    assert "security" not in document["paths"]["/page"]["get"]


# -- tokens in the list ----------------------------------------------------------------------------


def test_a_token_is_listed_without_itself(access, store, connect):
    issued = access.issue(Role.OPERATOR, DAY, subject="  deploy ", by="ann")
    (listed,) = access.tokens()
    assert (listed.id, listed.subject, listed.role) == (issued.id, "deploy", "operator")
    assert (listed.kind, listed.created_by, listed.revoked_at) == ("token", "ann", None)
    assert listed.expires_at == issued.expires_at
    assert abs(issued.expires_at - datetime.now(UTC) - DAY) < timedelta(minutes=1)
    claims = jwt.decode(issued.token, SECRET, algorithms=["HS256"])
    assert claims["exp"] == issued.expires_at.timestamp()
    assert (claims["sub"], claims["role"], claims["jti"]) == ("deploy", "operator", str(issued.id))
    everything = str(connect().execute("SELECT * FROM evenbeat.tokens").fetchall())
    assert not any(part in everything for part in issued.token.split("."))


def test_the_list_pages_newest_first_and_can_leave_out_what_no_longer_counts(access):
    made = [access.issue(Role.VIEWER, DAY, subject=f"n{i}") for i in range(5)]
    access.revoke(made[1].id)
    assert [token.subject for token in access.tokens()] == ["n4", "n3", "n2", "n1", "n0"]
    assert [token.subject for token in access.tokens(limit=2, offset=1)] == ["n3", "n2"]
    assert [token.subject for token in access.tokens(active=True)] == ["n4", "n3", "n2", "n0"]
    assert (access.count_tokens(), access.count_tokens(active=True)) == (5, 4)


def test_tokens_long_expired_are_forgotten_but_never_a_revoked_one_that_still_counts(store):
    now = datetime.now(UTC)
    add = {"subject": "x", "role": "viewer", "created_by": "x"}
    old, recent, revoked_id = uuid4(), uuid4(), uuid4()
    store.access.add_token(old, expires_at=now - 8 * DAY, now=now - 9 * DAY, **add)
    store.access.add_token(recent, expires_at=now - 6 * DAY, now=now - 9 * DAY, **add)
    store.access.add_token(revoked_id, expires_at=now + DAY, now=now - 900 * DAY, **add)
    assert store.access.revoke_token(revoked_id)
    store.access.add_token(uuid4(), expires_at=now + DAY, **add)
    kept = {token.id for token in store.access.tokens()}
    assert old not in kept
    assert {recent, revoked_id} <= kept
    assert store.access.revoked_tokens() == {revoked_id}


# -- revoking --------------------------------------------------------------------------------------


def test_a_revoked_token_is_refused_here_at_once_and_for_good(client, access):
    issued = access.issue(Role.ADMIN, DAY, subject="ann")
    assert client.get("/look", headers=bearer(issued.token)).status_code == 200
    access.revoke(issued.id)
    answer = client.get("/look", headers=bearer(issued.token))
    assert (answer.status_code, answer.json()["detail"]) == (
        401,
        "The token was revoked. Get a new one.",
    )
    first = access.tokens()[0].revoked_at
    access.revoke(issued.id)
    assert access.tokens()[0].revoked_at == first


def test_revoking_what_does_not_exist(access):
    with pytest.raises(NotFound, match="no token with id"):
        access.revoke(uuid4())


def test_a_revoked_token_is_refused_elsewhere_when_the_list_is_read_again(access, store):
    there = Access.of(load_settings(auth_secret=SECRET), store)
    issued = access.issue(Role.ADMIN, DAY, subject="ann")
    assert there.authenticate(issued.token).subject == "ann"
    access.revoke(issued.id)
    there._revoked._fresh_until = time.monotonic()  # two seconds later
    with pytest.raises(NotAuthenticated, match="revoked"):
        there.authenticate(issued.token)
    assert FRESH_SECONDS <= 5


def test_reading_the_list_is_not_repeated_for_each_request(access, store, monkeypatch):
    reads = []
    real = store.access.revoked_tokens
    monkeypatch.setattr(store.access, "revoked_tokens", lambda: reads.append(1) or real())
    monkeypatch.setattr(access._revoked, "_fresh_seconds", 60)
    token = access.issue(Role.VIEWER, DAY, subject="ann").token
    for _ in range(10):
        access.authenticate(token)
    assert len(reads) == 1


class Outage:
    """Tables of a database that can be switched off."""

    def __init__(self, real: object) -> None:
        self.real = real
        self.down = False

    def revoked_tokens(self) -> frozenset[UUID]:
        if self.down:
            raise DatabaseUnavailable("down")
        return self.real.revoked_tokens()


def test_while_the_database_is_down_the_last_known_list_stands(access, store):
    tables = Outage(store.access)
    list_ = RevokedTokens(tables, fresh_seconds=0)
    issued = access.issue(Role.ADMIN, DAY, subject="ann")
    access.revoke(issued.id)
    assert list_.ids() == {str(issued.id)}
    tables.down = True
    assert list_.ids() == {str(issued.id)}


def test_before_the_first_answer_of_the_database_nobody_gets_in(access, store):
    tables = Outage(store.access)
    tables.down = True
    list_ = RevokedTokens(tables)
    for _ in range(2):
        with pytest.raises(DatabaseUnavailable):
            list_.ids()
    tables.down = False
    assert list_.ids() == frozenset()


def test_without_a_database_the_answer_is_503(store):
    nowhere = Store("postgresql://nobody@127.0.0.1:1/none", timeout=0.2)
    access = Access.of(load_settings(auth_secret=SECRET), nowhere)
    client = TestClient(guarded(access))
    assert client.get("/look", headers=bearer(signed())).status_code == 503
    assert client.get("/look", headers=bearer("garbage")).status_code == 401
    nowhere.close()


def test_what_is_revoked_while_the_list_is_read_does_not_count_as_seen(access, store):
    issued = access.issue(Role.ADMIN, DAY, subject="ann")

    class Slow(Outage):
        def revoked_tokens(self) -> frozenset[UUID]:
            found = self.real.revoked_tokens()
            if not found:
                self.real.revoke_token(issued.id)
                list_.invalidate()
            return found

    list_ = RevokedTokens(Slow(store.access), fresh_seconds=60)
    list_.ids()
    assert list_.ids() == {str(issued.id)}


# -- login codes -----------------------------------------------------------------------------------


def test_a_code_is_good_for_one_session(access, connect):
    code = access.login_code(Role.OPERATOR, subject="ann")
    stored = str(connect().execute("SELECT * FROM evenbeat.login_codes").fetchall())
    assert code not in stored
    issued = access.redeem(code)
    principal = access.authenticate(issued.token)
    assert (principal.subject, principal.role) == ("ann", Role.OPERATOR)
    assert abs(issued.expires_at - datetime.now(UTC) - timedelta(hours=12)) < timedelta(minutes=1)
    (listed,) = access.tokens()
    assert (listed.id, listed.kind, listed.created_by) == (issued.id, "session", "login link")
    with pytest.raises(NotAuthenticated, match="used before") as caught:
        access.redeem(code)
    assert code not in str(caught.value)


@pytest.mark.parametrize("code", ["", "wrong", "x" * 100_000, "\x00", "\ud800", "ü'; --"])
def test_a_wrong_code_gives_nothing(access, code):
    with pytest.raises(NotAuthenticated):
        access.redeem(code)
    assert access.tokens() == []


def test_a_code_is_short_lived(access, store):
    now = datetime.now(UTC)
    code = access.login_code(Role.ADMIN)
    from evenbeat.api.auth.tokens import _hash

    late = now + timedelta(minutes=10, seconds=5)
    used = store.access.redeem_login_code(_hash(code), uuid4(), expires_at=late + DAY, now=late)
    assert used is None
    assert access.tokens() == []


@pytest.mark.parametrize("ttl", [timedelta(0), -DAY, 2 * DAY])
def test_the_life_of_a_code_has_bounds(access, ttl):
    with pytest.raises(ValueError, match="ttl must be from 1s to 1d"):
        access.login_code(Role.ADMIN, ttl)


def test_of_many_that_redeem_a_code_at_once_one_gets_in(access):
    code = access.login_code(Role.ADMIN)
    start, outcomes = threading.Barrier(8), []

    def redeem() -> None:
        start.wait()
        try:
            outcomes.append(access.redeem(code).id)
        except NotAuthenticated:
            outcomes.append(None)

    threads = [threading.Thread(target=redeem) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 8
    assert len([one for one in outcomes if one]) == 1
    assert len(access.tokens()) == 1


def test_a_service_that_only_verifies_makes_neither_tokens_nor_codes(store):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    private = ec.generate_private_key(ec.SECP256R1())
    pem = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    settings = load_settings(auth_public_key=pem.decode(), auth_role_claim="groups")
    access = Access.of(settings, store)
    assert not access.can_issue
    for verb in (
        lambda: access.issue(Role.VIEWER, DAY, subject="x"),
        lambda: access.login_code(Role.VIEWER),
        lambda: access.redeem("code"),
    ):
        with pytest.raises(CannotIssue, match="only verifies"):
            verb()
    assert access.tokens() == []
    now = int(time.time())
    claims = {"sub": "ann@idp", "groups": ["staff", "operator"], "exp": now + 60}
    principal = access.authenticate(jwt.encode(claims, private, algorithm="ES256"))
    assert (principal.subject, principal.role, principal.token_id) == (
        "ann@idp",
        Role.OPERATOR,
        None,
    )
