"""`evenbeat serve` as it stands behind proxies, in logs and on terminals."""

import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from real_processes import Running, Start
from said import Command

from loopback import SECRET
from waiting import wait_for

Serve = Callable[..., tuple[Running, str]]


@pytest.fixture
def serve(start: Start, tmp_path: Path, database_url: str) -> Serve:
    """Starts the service on any free port; gives the process and its address."""

    def run(**environment: str) -> tuple[Running, str]:
        running = start(
            *("-m", "evenbeat", "serve", "--no-worker", "--port", "0"),
            EVENBEAT_DATABASE_URL=database_url,
            EVENBEAT_DATA_DIR=str(tmp_path / "data"),
            EVENBEAT_AUTH_SECRET=SECRET,
            **environment,
        )
        url = running.wait_for_line("Dashboard").split()[-1].rstrip("/")
        wait_for(lambda: httpx.get(f"{url}/readyz").status_code == 200, "ready")
        return running, url

    return run


def test_pages_lead_nowhere_else_and_hold_no_plugins(serve: Serve):
    _, url = serve()
    for place in ("/login", "/nowhere", "/api/v1/jobs", "/healthz", "/static/evenbeat.css"):
        policy = httpx.get(url + place).headers["content-security-policy"].split("; ")
        assert {"default-src 'self'", "form-action 'self'", "object-src 'none'"} <= set(policy)
        assert {"frame-ancestors 'none'", "base-uri 'none'"} <= set(policy)


# -- proxies ---------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere 127.0.0.1 is the only one")
@pytest.mark.parametrize(
    ("trusted", "is_secure"),
    [
        (None, False),
        ("127.0.0.5", True),
        ("10.1.0.0/16,127.0.0.0/29", True),
        ("10.1.0.0/16", False),
    ],
)
def test_the_cookie_is_secure_behind_a_proxy_that_is_listed(
    serve: Serve, evenbeat: Command, trusted: str | None, is_secure: bool
):
    token = evenbeat("token", "create", "--role", "viewer", EVENBEAT_AUTH_SECRET=SECRET).out.strip()
    _, url = serve(**({"EVENBEAT_TRUSTED_PROXIES": trusted} if trusted else {}))
    transport = httpx.HTTPTransport(local_address="127.0.0.5")
    with httpx.Client(transport=transport, headers={"X-Forwarded-Proto": "https"}) as proxy:
        cookie = proxy.post(f"{url}/api/v1/session", json={"token": token}).headers["set-cookie"]
    assert ("Secure" in cookie) is is_secure
    with httpx.Client(transport=httpx.HTTPTransport(local_address="127.0.0.5")) as plain:
        cookie = plain.post(f"{url}/api/v1/session", json={"token": token}).headers["set-cookie"]
    assert "Secure" not in cookie


# -- the link to sign in ---------------------------------------------------------------------------


def test_a_log_holds_no_sign_in_link(serve: Serve, evenbeat: Command):
    running, url = serve()
    line = running.wait_for_line("Sign in")
    assert "code=" not in running.text
    assert f"evenbeat token login --url {url}" in line
    link = evenbeat("token", "login", "--url", url, EVENBEAT_AUTH_SECRET=SECRET).out.strip()
    assert httpx.get(link).status_code == 303


@pytest.fixture
def on_terminal(tmp_path: Path, database_url: str) -> Iterator[Callable[[], str]]:
    """Starts the service on a terminal; what it has shown so far."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "evenbeat", "serve", "--no-worker", "--port", "0"],
        cwd=tmp_path,
        env=os.environ
        | {"EVENBEAT_DATABASE_URL": database_url, "EVENBEAT_DATA_DIR": str(tmp_path / "data")},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.set_blocking(ours, False)
    shown = bytearray()

    def text() -> str:
        while True:
            try:
                shown.extend(os.read(ours, 65_536))
            except BlockingIOError:
                return shown.decode()

    yield text
    process.terminate()
    process.wait(30)
    os.close(ours)
    os.close(theirs)


def test_a_terminal_shows_one(on_terminal: Callable[[], str]):
    wait_for(lambda: "/login?code=" in on_terminal(), "the link")
