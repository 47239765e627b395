"""A real server and a real browser, for tests and for pictures."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, Response, expect, sync_playwright

from evenbeat import Evenbeat
from evenbeat.api.auth.tokens import Access, Role
from evenbeat.api.dependencies import COOKIE
from waiting import PATIENCE

expect.set_options(timeout=PATIENCE * 1000)

_SERIOUS = ("serious", "critical")


def chromium() -> str:
    """Where Debian's Chromium is; EVENBEAT_TEST_CHROMIUM names another."""
    named = os.environ.get("EVENBEAT_TEST_CHROMIUM")
    found = named or shutil.which("chromium") or shutil.which("chromium-browser")
    assert found, "Chromium is missing. `make chromium` installs it on Debian."
    return found


@contextmanager
def opened_browser() -> Iterator[Browser]:
    """A browser without a window."""
    with sync_playwright() as playwright:
        # Without a graphics card, its process in software has held up a page for minutes.
        arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=chromium(), args=arguments)
        yield browser
        browser.close()


@dataclass
class Visit:
    """A page in a context of its own, signed in, with everything that went wrong on it."""

    page: Page
    context: BrowserContext
    errors: list[str] = field(default_factory=list)
    answers: list[Response] = field(default_factory=list)

    def watch(self) -> None:
        self.page.on("console", lambda said: self._note(said.type, said.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("response", self._keep)

    def _keep(self, answer: Response) -> None:
        self.answers.append(answer)

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.errors.append(f"{kind}: {text}")

    def tolerate(self, words: str) -> None:
        """Forget errors with these words in them: they were meant to happen."""
        self.errors = [error for error in self.errors if words not in error]


@dataclass
class Site:
    """A service with a dashboard, a worker and jobs, and visitors of any role."""

    app: Evenbeat
    access: Access
    url: str
    browser: Browser
    visits: list[Visit] = field(default_factory=list)

    def visit(self, role: str | None = "operator", path: str = "/", **options: Any) -> Page:
        """A new visitor's page; without a role, nobody is signed in."""
        context = self.browser.new_context(base_url=self.url, **options)
        context.set_default_timeout(PATIENCE * 1000)
        if role is not None:
            issued = self.access.issue(Role(role), timedelta(hours=1), subject=f"a {role}")
            context.add_cookies([{"name": COOKIE, "value": issued.token, "url": self.url}])
        visit = Visit(context.new_page(), context)
        visit.watch()
        self.visits.append(visit)
        visit.page.goto(path)
        return visit.page

    def of(self, page: Page) -> Visit:
        """What is known of a page."""
        return next(visit for visit in self.visits if visit.page is page)

    def leave(self) -> list[str]:
        """Close every page; returns what went wrong on them."""
        errors = [error for visit in self.visits for error in visit.errors]
        for visit in self.visits:
            visit.context.close()
        self.visits.clear()
        return errors


def accessibility_problems(page: Page, *, everything: bool = False) -> list[str]:
    """What axe finds serious on a page, or everything, each with where it is."""
    found = Axe().run(page).response["violations"]
    return [
        f"{one['id']}: {one['help']} at {node['target']}: {node.get('failureSummary', '')}"
        for one in found
        if everything or one["impact"] in _SERIOUS
        for node in one["nodes"]
    ]


def weight(visit: Visit) -> tuple[int, int]:
    """How many requests a visit has made, and how many bytes came back; the stream of events
    counts as a request."""
    total = 0
    for answer in visit.answers:
        if "/events" not in answer.url:
            sizes = answer.request.sizes()
            total += sizes["responseBodySize"] + sizes["responseHeadersSize"]
    return len(visit.answers), total
