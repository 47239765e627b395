"""Keys, roles and the secret file: what is believed, and what is refused in which words."""

import hashlib
import hmac
import json
import os
import re
import stat
import subprocess
import sys
import time
from base64 import urlsafe_b64encode
from datetime import timedelta
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from evenbeat.api.auth.signing import TokenKeys, secret_from_file
from evenbeat.api.auth.tokens import (
    MAX_LIFETIME,
    Access,
    IssuedToken,
    Role,
    check_lifetime,
    check_subject,
    role_in,
)
from evenbeat.domain.ids import uuid7
from evenbeat.errors import CannotIssue, InvalidInput, InvalidSettings, NotAuthenticated
from evenbeat.settings import Settings, load_settings

SECRET = "correct horse battery staple, and then some more"  # noqa: S105
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())


def public_pem(private) -> str:
    return private.public_key().public_bytes(
        Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
    ).decode()  # fmt: skip


def private_pem(private) -> str:
    return private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@pytest.fixture(autouse=True)
def _nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in Settings.model_fields:
        monkeypatch.delenv(f"EVENBEAT_{name.upper()}", raising=False)


def claims(**changes) -> dict:
    now = int(time.time())
    full = {"sub": "ann", "role": "viewer", "iat": now, "exp": now + 86_400, "jti": "one"} | changes
    return {name: value for name, value in full.items() if value is not ...}


def keys(**settings) -> TokenKeys:
    return TokenKeys.load(load_settings(**({"auth_secret": SECRET} | settings)))


def signed(key=SECRET, algorithm="HS256", headers=None, **changes) -> str:
    return jwt.encode(claims(**changes), key, algorithm=algorithm, headers=headers)


def encoded(part: object) -> str:
    return urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


def refusal(found: TokenKeys, token: str) -> str:
    with pytest.raises(NotAuthenticated) as caught:
        found.verify(token)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return str(caught.value)


# -- verifying -----------------------------------------------------------------------------------

UNSIGNED = f"{encoded({'alg': 'none', 'typ': 'JWT'})}.{encoded(claims())}."

REFUSED = {
    "empty": ("", "cannot be read"),
    "garbage": ("garbage", "cannot be read"),
    "three dots": ("a.b.c", "cannot be read"),
    "not ascii": ("ü.ä.ö", "cannot be read"),
    "lone surrogate": ("\ud800.a.b", "cannot be read"),
    "NUL": ("\x00.\x00.\x00", "cannot be read"),
    "huge": ("a" * 8193, "longer than 8192 characters"),
    "unsigned": (UNSIGNED, "not signed with HS256"),
    "unsigned, spelt oddly": (UNSIGNED.replace("none", "None"), "cannot be read|not signed"),
    "other secret": (signed("another secret that is quite as long as it"), "another key"),
    "other hash": (signed(algorithm="HS512", key=SECRET * 2), "not signed with HS256"),
    "a list for claims": (jwt.api_jws.encode(b"[]", SECRET, "HS256"), "cannot be read"),
    "expired": (signed(exp=int(time.time()) - 11), "has expired"),
    "no exp": (signed(exp=...), "no claim 'exp'"),
    "exp in words": (signed(exp="tomorrow"), "cannot be read"),
    "exp beyond numbers": (signed(exp=float("inf")), "cannot be read"),
    "exp null": (signed(exp=None), "no claim 'exp'"),
    "no sub": (signed(sub=...), "no claim 'sub'"),
    "iat in the future": (signed(iat=int(time.time()) + 86_000), "not valid yet"),
    "nbf in the future": (signed(nbf=int(time.time()) + 86_000), "not valid yet"),
    "for another audience": (signed(aud="shop"), "another audience"),
}


@pytest.mark.parametrize(("token", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_token_of_ours_is_refused_and_not_repeated(token: str, reason: str):
    message = refusal(keys(), token)
    assert re.search(reason, message)
    for part in filter(lambda part: len(part) > 5, token.split(".")):
        assert part not in message


def test_a_changed_token_is_refused():
    header, _, signature = signed().split(".")
    assert "another key" in refusal(keys(), f"{header}.{encoded(claims(role='admin'))}.{signature}")


def test_a_sound_token_gives_its_claims():
    given = claims()
    assert keys().verify(jwt.encode(given, SECRET, algorithm="HS256")) == given


def test_clocks_may_be_ten_seconds_apart():
    now = int(time.time())
    assert keys().verify(signed(exp=now - 5))
    assert keys().verify(signed(iat=now + 5))


@pytest.mark.parametrize(("private", "algorithm"), [(RSA, "RS256"), (EC, "ES256")])
def test_a_public_key_verifies_and_fixes_the_algorithm(private, algorithm, tmp_path):
    pem = public_pem(private)
    (tmp_path / "idp.pem").write_text(pem)
    token = signed(private_pem(private), algorithm)
    for given in (pem, str(tmp_path / "idp.pem"), "idp.pem"):
        found = keys(auth_secret=None, auth_public_key=given)
        assert found.algorithm == algorithm
        assert found.verify(token)["sub"] == "ann"
        assert found.signing is None
    foreign = ec.generate_private_key(ec.SECP256R1()) if algorithm == "ES256" else (
        rsa.generate_private_key(public_exponent=65537, key_size=2048)
    )  # fmt: skip
    assert "another key" in refusal(found, signed(private_pem(foreign), algorithm))
    assert "not signed with" in refusal(found, UNSIGNED)


@pytest.mark.parametrize("private", [RSA, EC])
def test_the_public_key_is_no_shared_secret(private):
    """Who knows the public key, and all may, must not be able to sign HS256 with it."""
    pem = public_pem(private)
    header, body = encoded({"alg": "HS256", "typ": "JWT"}), encoded(claims(role="admin"))
    mac = hmac.new(pem.encode(), f"{header}.{body}".encode(), hashlib.sha256).digest()
    forged = f"{header}.{body}.{urlsafe_b64encode(mac).decode().rstrip('=')}"
    assert "not signed with" in refusal(keys(auth_secret=None, auth_public_key=pem), forged)
    with_secret = signed(private_pem(private), "RS256" if private is RSA else "ES256")
    assert "not signed with HS256" in refusal(keys(), with_secret)


def test_a_public_key_cannot_issue():
    found = keys(auth_secret=None, auth_public_key=public_pem(EC))
    with pytest.raises(CannotIssue, match=r"only verifies tokens.*your identity provider"):
        found.sign(claims())


def test_issuer_and_audience_are_checked_when_set():
    found = keys(auth_issuer="https://id.example", auth_audience="evenbeat")
    assert "no claim 'iss'" in refusal(found, signed(aud="evenbeat"))
    assert "another issuer" in refusal(found, signed(aud="evenbeat", iss="https://evil.example"))
    assert "another audience" in refusal(found, signed(aud="shop", iss="https://id.example"))
    assert found.verify(signed(aud=["shop", "evenbeat"], iss="https://id.example"))
    assert found.verify(found.sign(claims()))["iss"] == "https://id.example"


WRONG_KEYS = {
    "a private key": (private_pem(EC), "cannot be read as a public key"),
    "no PEM": (
        "-----BEGIN PUBLIC KEY-----\nxxxx\n-----END PUBLIC KEY-----",
        "cannot be read as a public key",
    ),
    "no file": ("nowhere.pem", "No such file"),
    "a directory": (".", "Is a directory"),
    "a NUL": ("a\x00b", "cannot be read as a public key"),
    "a short RSA key": (
        public_pem(rsa.generate_private_key(public_exponent=65537, key_size=1024)),  # noqa: S505
        "too short",
    ),
    "another curve": (public_pem(ec.generate_private_key(ec.SECP384R1())), "another kind"),
}


@pytest.mark.parametrize(("given", "reason"), WRONG_KEYS.values(), ids=WRONG_KEYS)
def test_a_public_key_that_cannot_be_used(given: str, reason: str):
    with pytest.raises(InvalidSettings, match=reason) as caught:
        keys(auth_secret=None, auth_public_key=given)
    assert caught.value.field == "auth_public_key"
    assert given.strip("-")[30:60] not in str(caught.value) or len(given) < 60


def test_one_key_decides():
    with pytest.raises(InvalidSettings, match="Both auth_secret and auth_public_key are set"):
        keys(auth_public_key=public_pem(EC))


@pytest.mark.parametrize("secret", ["short", " " * 40, "x" * 31])
def test_a_short_secret_is_refused_and_stays_hidden(secret: str):
    with pytest.raises(InvalidSettings) as caught:
        load_settings(auth_secret=secret)
    assert str(caught.value) == (
        "auth_secret=…: it must be a text of at least 32 bytes, best a random one."
    )


def test_nothing_shows_a_key_or_a_token():
    found = keys()
    issued = IssuedToken("header.claims.signature", uuid7(), "ann", Role.VIEWER, None)
    shown = f"{found!r} {found} {load_settings(auth_secret=SECRET)!r} {issued!r} {issued}"
    assert SECRET not in shown
    assert "signature" not in shown
    assert "TokenKeys(HS256)" in shown


# -- roles ---------------------------------------------------------------------------------------


def test_roles_cover_those_below():
    covers = {(one, other) for one in Role for other in Role if one.covers(other)}
    assert covers == {
        ("viewer", "viewer"),
        ("operator", "viewer"),
        ("operator", "operator"),
        ("admin", "viewer"),
        ("admin", "operator"),
        ("admin", "admin"),
    }


@pytest.mark.parametrize(
    ("given", "claim", "role"),
    [
        ({"role": "operator"}, "role", "operator"),
        ({"role": ["viewer", "admin", "other"]}, "role", "admin"),
        ({"realm_access": {"roles": ["x", "operator"]}}, "realm_access.roles", "operator"),
        ({"https://a.example/role": "viewer"}, "https://a.example/role", "viewer"),
        ({"a.b": "viewer", "a": {"b": "admin"}}, "a.b", "viewer"),
    ],
)
def test_the_role_of_claims(given, claim, role):
    assert role_in(given, claim) == role


@pytest.mark.parametrize(
    "given",
    [{}, {"role": None}, {"role": "root"}, {"role": "Admin"}, {"role": []}, {"role": ""},
     {"role": 3}, {"role": [["admin"]]}, {"role": {"admin": True}}, {"roles": "admin"}],
)  # fmt: skip
def test_no_known_role_is_no_role(given):
    with pytest.raises(NotAuthenticated, match="There are: viewer, operator, admin"):
        role_in(given, "role")


@pytest.mark.parametrize("subject", ["", "  ", "x" * 201, "a\nb", "a\x00b", "a\u202eb"])
def test_a_subject_is_a_readable_name(subject: str):
    with pytest.raises(InvalidInput, match="1 to 200 printable characters"):
        check_subject(subject)
    assert check_subject(" Jürgen 🙂 ") == "Jürgen 🙂"


@pytest.mark.parametrize(
    "lifetime",
    [timedelta(0), timedelta(seconds=-1), timedelta(milliseconds=999), timedelta(days=3651)],
)
def test_a_lifetime_is_neither_nothing_nor_for_ever(lifetime: timedelta):
    with pytest.raises(InvalidInput, match="expires must be from 1s to 3650d, not "):
        check_lifetime(lifetime, MAX_LIFETIME, "expires")


def test_open_access_has_no_tokens():
    access = Access.open()
    assert access.is_open
    assert not access.can_issue
    assert access.tokens() == []
    for verb in (
        lambda: access.issue(Role.VIEWER, timedelta(days=1), subject="ann"),
        lambda: access.login_code(Role.VIEWER),
        lambda: access.redeem("code"),
        lambda: access.revoke(uuid7()),
    ):
        with pytest.raises(CannotIssue, match="runs with --no-auth"):
            verb()


# -- the secret file -----------------------------------------------------------------------------


def test_the_first_start_makes_a_private_secret_and_the_second_uses_it(tmp_path):
    old = os.umask(0)
    try:
        found = keys(auth_secret=None, data_dir=tmp_path / "above" / "new" / "data")
    finally:
        os.umask(old)
    file = tmp_path / "above" / "new" / "data" / "secret"
    assert stat.S_IMODE(file.parents[2].stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert len(file.read_bytes().strip()) == 64
    assert [entry.name for entry in file.parent.iterdir()] == ["secret"]
    again = keys(auth_secret=None, data_dir=file.parent)
    assert again.verify(found.sign(claims()))
    elsewhere = keys(auth_secret=file.read_text())  # what `cat` gives, line end and all
    assert elsewhere.verify(found.sign(claims()))


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o644, 0o660, 0o620])
def test_a_secret_that_others_can_reach_is_refused(tmp_path, mode):
    file = tmp_path / "secret"
    file.write_text(SECRET)
    file.chmod(mode)
    with pytest.raises(InvalidSettings, match=f"mode {mode:04o} lets others at it") as caught:
        secret_from_file(file)
    assert SECRET not in str(caught.value)
    file.chmod(0o600)
    assert secret_from_file(file) == SECRET.encode()


@pytest.mark.parametrize("content", ["", "\n", "short"])
def test_a_file_without_a_secret_is_refused(tmp_path, content):
    (tmp_path / "secret").write_text(content)
    (tmp_path / "secret").chmod(0o600)
    with pytest.raises(InvalidSettings, match=r"it takes at least 32.*a new one is made"):
        secret_from_file(tmp_path / "secret")


def test_a_secret_that_cannot_be_made_says_what_to_set(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidSettings, match=r"cannot be had: .*set EVENBEAT_AUTH_SECRET"):
        secret_from_file(tmp_path / "file" / "secret")


MAKER = """
import sys
from pathlib import Path
from evenbeat.api.auth.signing import secret_from_file
print("ready", flush=True)
sys.stdin.readline()
print(secret_from_file(Path(sys.argv[1])).decode(), flush=True)
"""


def test_processes_that_start_together_agree_on_one_secret(tmp_path):
    file = tmp_path / "data" / "secret"
    command = [sys.executable, "-W", "error", "-c", MAKER, str(file)]
    makers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(5)
    ]
    for maker in makers:
        assert maker.stdout.readline() == "ready\n"
    for maker in makers:
        maker.stdin.write("go\n")
        maker.stdin.flush()
    answers = {maker.communicate(timeout=60)[0].strip() for maker in makers}
    assert answers == {file.read_text().strip()}
    assert [entry.name for entry in file.parent.iterdir()] == ["secret"]
