"""Signing in by token and by link, signing out, and what nobody may do without."""

from datetime import timedelta

import httpx
import pytest
from browsing import Site, accessibility_problems

from evenbeat.api.auth.tokens import Role
from evenbeat.api.dependencies import COOKIE
from loopback import hosting, lead_to_sign_in, served

_HOUR = timedelta(hours=1)


def test_a_token_opens_the_page_that_was_asked_for(site: Site) -> None:
    page = site.visit(None, "/jobs?status=failed")
    assert "/login?next=" in page.url
    page.get_by_label("Token").fill("nonsense")
    page.get_by_role("button", name="Sign in").click()
    assert "cannot be read" in page.get_by_role("alert").inner_text()
    site.of(page).tolerate("401")
    token = site.access.issue(Role.VIEWER, _HOUR, subject="vera").token
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/jobs?status=failed")
    assert page.locator(".who-name").inner_text() == "vera"


def test_a_link_signs_in_once_and_leaves_no_code_behind(site: Site) -> None:
    code = site.access.login_code(Role.OPERATOR)
    page = site.visit(None, f"/login?code={code}&next=/jobs")
    assert page.url == f"{site.url}/jobs"
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/login")
    page.goto("/")
    assert "/login" in page.url
    page.goto(f"/login?code={code}")
    assert "used before" in page.get_by_role("alert").inner_text()
    site.of(page).tolerate("401")


@pytest.mark.parametrize(
    "elsewhere", ["//evil.example", "https://evil.example/", "/\\evil.example", "javascript:1"]
)
def test_next_never_leads_away(site: Site, elsewhere: str) -> None:
    code = site.access.login_code(Role.VIEWER)
    answer = httpx.get(f"{site.url}/login", params={"code": code, "next": elsewhere})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert COOKIE in answer.cookies
    assert "HttpOnly" in answer.headers["set-cookie"]


def test_another_sites_page_can_neither_sign_in_nor_change_anything(site: Site) -> None:
    token = site.access.issue(Role.ADMIN, _HOUR, subject="ada").token
    foreign = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    for path, form in (
        ("/login", {"token": token}),
        ("/jobs/actions", {"verb": "pause", "all": "1", "confirmed": "1"}),
        ("/jobs/new", {"task": "send_report"}),
        ("/preferences", {"theme": "dark"}),
    ):
        answer = httpx.post(site.url + path, data=form, headers=foreign, cookies={COOKIE: token})
        assert answer.status_code == 403, path


def test_the_sign_in_is_accessible(site: Site, colours: str) -> None:
    page = site.visit(None, "/login", color_scheme=colours)
    assert accessibility_problems(page) == []


def test_pages_are_not_kept_and_files_are_by_their_content(site: Site) -> None:
    page = site.visit("viewer", "/jobs")
    answers = {answer.url.removeprefix(site.url): answer for answer in site.of(page).answers}
    assert answers["/jobs"].headers["cache-control"] == "no-store"
    assert "default-src 'self'" in answers["/jobs"].headers["content-security-policy"]
    files = [url for url in answers if url.startswith("/static/")]
    assert len(files) >= 2
    for url in files:
        assert "immutable" in answers[url].headers["cache-control"]
        old = httpx.get(site.url + url.partition("?")[0] + "?v=old")
        assert old.headers["cache-control"] == "no-cache"
    assert httpx.get(f"{site.url}/static/..%2fpages.py").status_code == 404


def test_programs_keep_their_problem_documents(site: Site) -> None:
    problem = "application/problem+json"
    for path, accept in (("/nowhere", "*/*"), ("/api/v1/nowhere", "text/html")):
        answer = httpx.get(site.url + path, headers={"Accept": accept})
        assert (answer.status_code, answer.headers["content-type"]) == (404, problem), path


def test_a_session_that_ended_leads_to_the_sign_in(site: Site) -> None:
    page = site.visit("operator", "/jobs/new")
    page.locator("#live[data-state=on]").wait_for()  # else its stream is refused, noisily
    page.context.clear_cookies()
    page.get_by_label("Once").check()
    page.get_by_role("button", name="Add job").click()
    page.wait_for_url("**/login")


def test_a_hosts_session_that_ended_leads_to_the_hosts_sign_in(site: Site) -> None:
    service = site.app.asgi(auth=lead_to_sign_in)
    with served(hosting(service)) as url:
        page = site.visit(None, f"{url}/ops/jobs/new")
        assert page.url == f"{url}/sign-in?next=/ops/jobs/new"
        page.request.post(f"{url}/sign-in", data={"name": "olga", "role": "operator"})
        page.goto(f"{url}/ops/jobs/new")
        assert page.locator(".who-name").inner_text() == "olga"
        assert page.get_by_role("button", name="Sign out").count() == 0
        page.locator("#live[data-state=on]").wait_for()
        page.context.clear_cookies()
        page.get_by_label("Once").check()
        page.get_by_role("button", name="Add job").click()
        page.wait_for_url(f"{url}/sign-in?next=/ops/jobs/new")
        assert "Sign in to the shop" in page.content()
        site.of(page).tolerate("favicon")
        site.leave()
