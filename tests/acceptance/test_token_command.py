"""`evenbeat token`: what scripts get on standard output, and what people read beside it."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest

from evenbeat.api.auth.tokens import Access, Role
from evenbeat.cli import main
from evenbeat.errors import NotAuthenticated
from evenbeat.settings import load_settings
from evenbeat.store.store import Store
from waiting import PATIENCE


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict:
        return json.loads(self.out)


Evenbeat = Callable[..., Said]


@pytest.fixture
def evenbeat(database_url, tmp_path, monkeypatch, capsys) -> Evenbeat:
    """Runs a command in this process, on the test's database and in its directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVENBEAT_DATABASE_URL", database_url)
    monkeypatch.setenv("EVENBEAT_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("LOGNAME", "ann")
    monkeypatch.delenv("COLUMNS", raising=False)

    def run(*arguments: str) -> Said:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        return Said(int(ended.value.code or 0), *capsys.readouterr())

    return run


@pytest.fixture
def access(evenbeat: Evenbeat, store: Store) -> Access:
    """What a service on the same machine would use."""
    return Access.of(load_settings(), store)


def test_create_gives_the_token_alone_and_the_rest_beside_it(evenbeat, access):
    said = evenbeat("token", "create", "--role", "operator", "--expires", "90d")
    assert said.code == 0
    token = said.out.removesuffix("\n")
    assert token.count(".") == 2
    assert not token.split()[1:]
    principal = access.authenticate(token)
    assert (principal.subject, principal.role) == ("ann", Role.OPERATOR)
    assert "A token for ann, operator, until 20" in said.err
    assert f"evenbeat token revoke {principal.token_id}" in said.err
    assert token not in said.err


def test_create_as_json(evenbeat, access):
    said = evenbeat("token", "create", "--role", "viewer", "--subject", "Jürgen", "--json")
    assert (said.code, said.err) == (0, "")
    assert set(said.json) == {"token", "id", "subject", "role", "expires_at"}
    assert access.authenticate(said.json["token"]).subject == "Jürgen"


def test_the_first_command_makes_the_secret(evenbeat, tmp_path):
    assert evenbeat("token", "create", "--role", "viewer").code == 0
    assert stat.S_IMODE((tmp_path / "data" / "secret").stat().st_mode) == 0o600


def test_list_shows_tokens_but_never_the_tokens_themselves(evenbeat):
    nothing = evenbeat("token", "list")
    assert (nothing.code, nothing.out) == (0, "")
    assert "There are no tokens" in nothing.err
    tokens = [
        evenbeat("token", "create", "--role", role, "--subject", f"for-{role}", "--json").json
        for role in ("viewer", "admin")
    ]
    assert evenbeat("token", "revoke", tokens[0]["id"]).err == f"Revoked {tokens[0]['id']}.\n"
    listed = evenbeat("token", "list").out.splitlines()
    assert listed[0].split() == [
        "id",
        "subject",
        "role",
        "kind",
        "status",
        "expires",
        "created",
        "by",
    ]
    assert listed[1].split()[:5] == [tokens[1]["id"], "for-admin", "admin", "token", "active"]
    assert listed[2].split()[:5] == [tokens[0]["id"], "for-viewer", "viewer", "token", "revoked"]
    as_json = evenbeat("token", "list", "--active", "--json")
    assert [token["id"] for token in as_json.json["tokens"]] == [tokens[1]["id"]]
    assert not any(token["token"] in as_json.out + "".join(listed) for token in tokens)
    assert evenbeat("token", "list", "--limit", "1").err == "1 more; see --limit.\n"


def test_revoke_ends_a_token(evenbeat, access):
    made = evenbeat("token", "create", "--role", "viewer", "--json").json
    assert access.authenticate(made["token"])
    said = evenbeat("token", "revoke", made["id"], "--json")
    assert said.json == {"id": made["id"], "status": "revoked"}
    access._revoked.invalidate()
    with pytest.raises(NotAuthenticated, match="revoked"):
        access.authenticate(made["token"])


def test_login_gives_a_link_that_works_once(evenbeat, access):
    said = evenbeat("token", "login", "--role", "operator", "--url", "https://beat.example/x/")
    assert said.code == 0
    link, _, code = said.out.strip().partition("?code=")
    assert link == "https://beat.example/x/login"
    assert said.err == "Signs in once as operator, within 10m:\n"
    assert access.redeem(code).role is Role.OPERATOR
    with pytest.raises(NotAuthenticated):
        access.redeem(code)
    shown = evenbeat("token", "login", "--json").json
    assert shown["url"].startswith("http://127.0.0.1:8060/login?code=")
    assert (shown["role"], shown["expires_in"]) == ("admin", 600)


WRONG = [
    (("create",), 2, "--role"),
    (("create", "--role", "root"), 2, "'root' is not one of 'viewer', 'operator', 'admin'"),
    (("create", "--role", "viewer", "--expires", "0s"), 2, "from 1s to 3650d, not 0s"),
    (("create", "--role", "viewer", "--expires", "11y"), 2, "is not a duration"),
    (("create", "--role", "viewer", "--expires", "4000d"), 2, "from 1s to 3650d"),
    (("create", "--role", "viewer", "--subject", "a\nb"), 2, "printable characters"),
    (("revoke", "7"), 2, "should be a valid UUID"),
    (("revoke", str(uuid4())), 4, "There is no token with id"),
    (("login", "--ttl", "2d"), 2, "ttl must be from 1s to 1d"),
    (("login", "--url", "beat.example"), 2, "--url must be the address"),
    (("list", "--limit", "0"), 2, "--limit"),
    (("list", "--database", "postgresql://nobody@127.0.0.1:1/none"), 3, "cannot be reached"),
    (("list", "--database", " "), 2, "--database is empty"),
]


@pytest.mark.parametrize(("arguments", "code", "words"), WRONG)
def test_mistakes_get_a_line_and_a_code(evenbeat, arguments, code, words):
    said = evenbeat("token", *arguments)
    assert (said.code, said.out) == (code, "")
    assert words in said.err
    assert "Traceback" not in said.err


def test_a_secret_that_others_can_read_stops_the_command(evenbeat, tmp_path):
    evenbeat("token", "create", "--role", "viewer")
    file = tmp_path / "data" / "secret"
    file.chmod(0o644)
    said = evenbeat("token", "create", "--role", "viewer")
    assert (said.code, said.out) == (2, "")
    assert "mode 0644 lets others at it" in said.err
    assert file.read_text().strip() not in said.err


def test_where_only_a_public_key_is_known_no_token_can_be_made(evenbeat, monkeypatch):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    public = ec.generate_private_key(ec.SECP256R1()).public_key()
    pem = public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    monkeypatch.setenv("EVENBEAT_AUTH_PUBLIC_KEY", pem.decode())
    for command in (("create", "--role", "viewer"), ("login",)):
        said = evenbeat("token", *command)
        assert (said.code, said.out) == (1, "")
        assert "only verifies tokens" in said.err


def test_in_a_real_shell_the_token_can_be_piped(database_url: str, tmp_path: Path):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("EVENBEAT_")}
    environment = {"EVENBEAT_DATABASE_URL": database_url, "EVENBEAT_DATA_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "evenbeat", "token", "create", "--role", "viewer"],
        env=kept | environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    assert done.stdout.count("\n") == 1
    assert done.stdout.strip().count(".") == 2
    assert "shown only this once" in done.stderr
