"""Settings: health, tokens, what is in force; and the API reference, whose lines really work."""

import os
import shutil
import subprocess
from datetime import timedelta

import httpx
import pytest
from browsing import Site, accessibility_problems, weight
from fastapi import FastAPI, Response
from playwright.sync_api import Page, expect

from evenbeat.api.auth.tokens import Access, Role
from evenbeat.asgi import asgi
from evenbeat.dashboard.reference import type_of
from evenbeat.domain.ids import uuid7
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.settings import Settings, setting_name
from loopback import SECRET, served

HOUR = timedelta(hours=1)


def client(site: Site, role: str) -> httpx.Client:
    token = site.access.issue(Role(role), HOUR, subject=f"x {role}").token
    return httpx.Client(base_url=site.url, headers={"Authorization": f"Bearer {token}"})


def make_token(page: Page, subject: str, role: str) -> str:
    page.get_by_label("Label").fill(subject)
    page.get_by_label("Role").select_option(role)
    page.get_by_role("button", name="Create token").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("you won't see it again")
    return dialog.locator("#new-token").inner_text().strip()


def session(site: Site, token: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.get(f"{site.url}/api/v1/session", headers=headers)


# -- tokens ----------------------------------------------------------------------------------------


def test_a_token_is_made_copied_used_and_revoked(site: Site) -> None:
    allowed = ["clipboard-read", "clipboard-write"]
    page = site.visit("admin", "/settings", permissions=allowed)
    token = make_token(page, "deploy script", "operator")
    assert session(site, token).json()["role"] == "operator"
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == token
    page.get_by_role("dialog").get_by_role("link", name="Done").click()
    page.wait_for_url("**/settings")
    assert token not in page.content()
    assert all(token not in str(cookie) for cookie in page.context.cookies())

    row = page.locator("#tokens tbody tr").filter(has_text="deploy script")
    expect(row).to_contain_text("active")
    row.get_by_role("link", name="Revoke").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("link", name="Back").click()
    assert session(site, token).status_code == 200
    row.get_by_role("link", name="Revoke").click()
    dialog.get_by_role("button", name="Revoke").click()
    expect(page.locator(".notice")).to_contain_text("The token is revoked")
    assert session(site, token).status_code == 401
    expect(row).to_have_count(0)
    page.locator("#tokens").get_by_role("link", name="All").click()
    expect(row).to_contain_text("revoked")


def test_bad_wishes_are_refused_with_the_form_as_it_was(site: Site) -> None:
    with client(site, "admin") as admin:
        before = site.access.count_tokens()
        bad = {"subject": "tab\there", "role": "viewer", "expires": "30d"}
        answer = admin.post("/settings/tokens", data=bad)
        assert (answer.status_code, "printable characters" in answer.text) == (422, True)
        for wrong in ({"role": "king"}, {"expires": "soon"}, {"expires": "99999d"}):
            answer = admin.post("/settings/tokens", data=bad | {"subject": "me"} | wrong)
            assert (answer.status_code, 'role="alert"' in answer.text) == (422, True), wrong
        assert site.access.count_tokens() == before
        assert admin.post(f"/settings/tokens/{uuid7()}/revoke", data={}).status_code == 404


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_tokens_are_for_admins(site: Site, role: str) -> None:
    page = site.visit(role, "/settings")
    expect(page.locator("#health")).to_be_visible()
    assert page.locator("#tokens").count() == 0
    assert page.locator("main button").count() == 0
    with client(site, role) as other:
        wanted = {"subject": "me", "role": "admin", "expires": "1d"}
        assert other.post("/settings/tokens", data=wanted).status_code == 403
        assert other.get(f"/settings/tokens/{uuid7()}/revoke").status_code == 403
        assert other.post(f"/settings/tokens/{uuid7()}/revoke", data={}).status_code == 403


def test_without_sign_in_there_are_no_tokens(site: Site) -> None:
    with served(asgi(site.app, access=Access.open())) as url:
        page = site.visit(None, f"{url}/settings")
        expect(page.locator("#tokens")).to_contain_text("--no-auth")
        assert page.locator("#tokens form").count() == 0


# -- what is in force ------------------------------------------------------------------------------


def test_every_setting_shows_and_no_secret_does(site: Site) -> None:
    page = site.visit("viewer", "/settings")
    for field in Settings.model_fields:
        name = page.locator("#current td .mono").get_by_text(setting_name(field), exact=True)
        expect(name).to_have_count(1)
    secret = page.locator("#current tr").filter(has_text="auth_secret").first
    expect(secret).to_contain_text("set, not shown")
    assert SECRET not in page.content()
    assert site.app.store.database.url not in page.content()
    expect(page.locator(".figures")).to_contain_text("30 days")


def test_health_tells_what_is_wrong_and_what_to_do(site: Site) -> None:
    page = site.visit("viewer", "/settings")
    expect(page.locator("#health")).to_contain_text("passed")
    past = site.app.store.clock() - HOUR
    orphan = site.app.add(NewJob(JobSpec("nobody_has_it", "nowhere"), name="orphan", start=past))
    page.reload()
    finding = page.locator("#health .findings li").filter(has_text="nobody_has_it")
    expect(finding).to_be_visible()
    expect(finding.locator(".remedy")).not_to_be_empty()
    site.app.store.control.delete([orphan.id])


# -- the API reference -----------------------------------------------------------------------------


def test_the_reference_has_every_operation(site: Site) -> None:
    document = httpx.get(f"{site.url}/openapi.json", timeout=60).json()
    page = site.visit("viewer", "/docs")
    shown = page.locator(".operation > summary").all_inner_texts()
    operations = {(m.upper(), path) for path, item in document["paths"].items() for m in item}
    assert {tuple(text.split()[:2]) for text in shown} == operations
    ids = page.locator("[id]").evaluate_all("all => all.map(one => one.id)")
    assert len(ids) == len(set(ids))


def test_an_operation_lists_its_parameters_and_the_fields_of_its_body(site: Site) -> None:
    page = site.visit("viewer", "/docs")
    adding = page.locator("#create_job")
    table = adding.get_by_role("table", name="Parameters: Add a job")
    expect(table).to_be_hidden()
    adding.locator("summary").click()
    expect(table).to_contain_text("Idempotency-Key")
    expect(table).to_contain_text("max_retries")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_line_to_try_works_as_printed(site: Site) -> None:
    token = site.access.issue(Role.ADMIN, HOUR, subject="reader").token
    line = site.visit("viewer", "/docs").locator("#try").inner_text()
    command = ["sh", "-c", f"{line} -sS --fail-with-body"]
    env = os.environ | {"TOKEN": token}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (line, done.stdout, done.stderr)
    assert '"total"' in done.stdout


def test_it_knows_where_it_is_mounted(site: Site) -> None:
    outer = FastAPI()
    # The browser asks the host for one when it shows a document that names none.
    outer.add_api_route("/favicon.ico", lambda: Response(status_code=204))
    outer.mount("/ops", asgi(site.app, access=site.access))
    with served(outer) as url:
        page = site.visit(None, f"{url}/ops/login?code={site.access.login_code(Role.ADMIN)}")
        nav = page.get_by_role("navigation", name="Screens")
        for name, heading in (
            ("Distribution", "Distribution"),
            ("Timeline", "Timeline"),
            ("Workers", "Workers and queues"),
            ("Settings", "Settings"),
            ("API", "API reference"),
        ):
            nav.get_by_role("link", name=name).click()
            expect(page.get_by_role("heading", level=1)).to_have_text(heading)
            assert page.url.startswith(f"{url}/ops/")
        expect(page.locator("#try")).to_contain_text(f'"{url}/ops/api/v1/jobs?limit=5"')
        page.get_by_role("link", name="OpenAPI document").click()
        assert page.url == f"{url}/ops/openapi.json"


def test_types_in_a_few_words() -> None:
    text, ref = {"type": "string"}, {"$ref": "#/components/schemas/Job"}
    assert type_of({"anyOf": [text, {"type": "null"}]}) == "string or null"
    assert type_of({"type": "array", "items": ref}) == "array of Job"
    assert type_of({"enum": ["a", "b"], "type": "string"}) == "a | b"
    assert type_of({}) == "any"


def test_they_are_light_accessible_and_fit_a_phone(site: Site, colours: str) -> None:
    page = site.visit("admin", "/settings", color_scheme=colours)
    requests, size = weight(site.of(page))
    assert requests <= 6
    assert size <= 150_000
    for path in ("/settings", "/docs"):
        page.goto(path)
        assert accessibility_problems(page) == [], path
    page.goto("/settings")
    make_token(page, "for a look", "viewer")
    assert accessibility_problems(page) == []
    page.set_viewport_size({"width": 390, "height": 844})
    for path in ("/settings", "/docs"):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path


def test_the_audit_log_shows_who_changed_what(site: Site, colours: str) -> None:
    name = f"digest-{uuid7().hex[-6:]}"
    job = site.app.schedule("send_report", every="1h", name=name, to="ada")
    page = site.visit("admin", f"/jobs/{job.id}", color_scheme=colours)
    page.get_by_role("button", name="Pause").first.click()
    expect(page.get_by_text("Paused 1 job")).to_be_visible()
    page.goto("/settings")
    page.get_by_role("link", name="Audit log").click()
    row = page.locator("tbody tr").first
    assert name in row.inner_text()
    assert "status: scheduled → paused" in row.inner_text()
    assert "dashboard" in row.inner_text()
    assert accessibility_problems(page, everything=True) == []
    page.set_viewport_size({"width": 390, "height": 844})
    assert accessibility_problems(page, everything=True) == []
    viewer = site.visit("viewer", "/settings")
    assert viewer.get_by_role("link", name="Audit log").count() == 0
