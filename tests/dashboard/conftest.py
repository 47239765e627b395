"""The dashboard on a real database, with a real worker, seen by a real browser."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from browsing import Site, opened_browser
from playwright.sync_api import Browser

from evenbeat import Context, Evenbeat
from evenbeat.api.auth.tokens import Access
from evenbeat.asgi import asgi
from loopback import SECRET, served


def declare_tasks(app: Evenbeat, gate: threading.Event) -> None:
    """What the tests run: one that ends at once, one that fails, one that waits to be let go."""

    @app.task(queue="mail", max_retries=0)
    def send_report(to: str, pages: int = 3, *, ctx: Context) -> dict[str, Any]:
        """Send a report by mail."""
        ctx.progress(pages, pages, "sent")
        ctx.report(bounced=[f"<{to}>"])
        return {"to": to, "pages": pages}

    @app.task(max_retries=0)
    def break_down() -> None:
        raise ValueError("row 7: 'abc' is not a number")

    @app.task(max_retries=0)
    def wait_for_it(*, ctx: Context) -> None:
        ctx.progress(1, 4, "waiting")
        while not gate.is_set() and not ctx.cancelled:
            time.sleep(0.02)

    @app.task(queue="talks", max_retries=1, retry_delays=["0s"])
    def talk(lines: int = 3, *, ctx: Context) -> None:
        """Log, until it is let go; fail the first time."""
        for n in range(lines):
            ctx.logger.info("line %d", n)
        while not gate.is_set() and not ctx.cancelled:
            ctx.logger.warning("still here")
            time.sleep(0.05)
        if ctx.attempt == 1:
            raise ValueError("not yet")

    @app.task
    def buy(ctx: Context) -> dict[str, Any]:
        receipt = ctx.step("charge", lambda: {"receipt": 17})
        ctx.sleep("1s")  # long enough that the run ends first
        return {**receipt, **ctx.wait_event("approved", timeout="3d")}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """For a module at most: while it is open, no event loop can run on this thread."""
    with opened_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def gate() -> threading.Event:
    """Lets the runs of `wait_for_it` end."""
    return threading.Event()


@pytest.fixture(scope="module")
def shared_site(
    module_database_url: str, browser: Browser, gate: threading.Event
) -> Iterator[Site]:
    app = Evenbeat(module_database_url, auth_secret=SECRET, poll_seconds=0.2)
    declare_tasks(app, gate)
    with app:
        access = Access.of(app.settings, app.store)
        worker = app.worker()
        worker.start()
        with served(asgi(app, access=access, worker=worker)) as url:
            yield Site(app, access, url, browser)
        gate.set()
        worker.stop(grace=1)


@pytest.fixture
def site(shared_site: Site) -> Iterator[Site]:
    """The module's site; a page on which anything went wrong fails the test."""
    yield shared_site
    assert shared_site.leave() == []


@pytest.fixture(params=["light", "dark"])
def colours(request: pytest.FixtureRequest) -> str:
    """Both of them."""
    return str(request.param)
