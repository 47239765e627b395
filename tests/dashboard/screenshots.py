"""`make screenshots`: every screen with a plausible company's data, light and dark.

A real server and a real worker; only the week of history is written as rows (see `company.py`).
To add a screen, add a line to `SCREENS`.
"""

import io
import os
import sys
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from browsing import opened_browser
from company import add_jobs, application, liven, write_past
from crowd import crowd
from PIL import Image
from playwright.sync_api import Page

from evenbeat import Evenbeat
from evenbeat.api.auth.tokens import Access, Role
from evenbeat.api.dependencies import COOKIE
from evenbeat.asgi import asgi
from evenbeat.testing import temporary_server
from loopback import served

IMAGES = Path(__file__).parents[2] / "docs" / "images"
MOST_BYTES = 150_000
_WIDE = {"width": 1360, "height": 940}
_PHONE = {"width": 390, "height": 844}


class Screen(NamedTuple):
    """A picture: its name, where it is, and what to do there first."""

    name: str
    path: str
    prepare: Callable[[Page], object] = lambda page: page.wait_for_timeout(300)


def _open_failed_run(page: Page) -> None:
    page.locator("#runs details").first.locator("summary").click()
    page.locator("#runs pre").first.wait_for()


def _fill_form(page: Page) -> None:
    page.get_by_label("Task").fill("import_feed")
    page.get_by_label("Name").fill("import feed · harbour-lights")
    page.get_by_label("Payload").fill('{\n  "feed": "harbour-lights"\n}')
    page.get_by_label("Every", exact=True).fill("45m")
    page.locator("#preview-place").wait_for()


def _open_rebalance(page: Page) -> None:
    page.locator("#rebalance").click()
    page.locator("dialog .chart").wait_for()
    page.wait_for_timeout(300)


SCREENS = (
    Screen("overview", "/", lambda page: page.locator("#spread .chart").wait_for()),
    Screen("jobs", "/jobs?sort=next_run_at"),
    Screen("runs", "/runs?status=failed&since=7d"),
    Screen("job", "/jobs/{VAT check}"),
    Screen("new-job", "/jobs/new", _fill_form),
    Screen("timeline", "/timeline?by=job"),
    Screen("workers", "/workers"),
    Screen("settings", "/settings"),
    Screen("docs", "/docs", lambda page: page.locator("#rebalance summary").click()),
)
CROWDED_SCREENS = (
    Screen("distribution", "/distribution"),
    Screen("rebalance", "/distribution", _open_rebalance),
)
PHONE_SCREENS = (
    Screen("phone-overview", "/"),
    Screen("phone-jobs", "/jobs"),
    Screen("phone-runs", "/runs"),
    Screen("phone-distribution", "/distribution"),
)


def main(*wanted: str) -> None:
    """Take all pictures, or those that are named."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TZ", "UTC")
    with (
        temporary_server() as url,
        tempfile.TemporaryDirectory() as home,
        application(url, data_dir=home) as app,
    ):
        jobs = add_jobs(app)
        runs = write_past(url, jobs, app.store.clock())
        while app.store.upkeep.count_outcomes():
            pass
        liven(app, jobs)
        app.store.upkeep.count_jobs()
        print(f"{len(jobs)} jobs, {runs:,} runs")
        _take_all(app, wanted)


def _take_all(app: Evenbeat, wanted: tuple[str, ...]) -> None:
    worker = app.worker()
    worker.start()
    access = Access.of(app.settings, app.store)
    with served(asgi(app, access=access, worker=worker)) as address, opened_browser() as browser:
        cookie = _sign_in(access, address)
        for theme in ("light", "dark"):
            page = browser.new_page(base_url=address, viewport=_WIDE, color_scheme=theme)
            page.context.add_cookies([cookie])
            _take_some(app, page, SCREENS, wanted, f"-{theme}")
        phone = browser.new_page(
            base_url=address, viewport=_PHONE, is_mobile=True, has_touch=True, device_scale_factor=2
        )
        phone.context.add_cookies([cookie])
        _take_some(app, phone, PHONE_SCREENS, wanted)
        crowd(app)
        for theme in ("light", "dark"):
            page = browser.new_page(base_url=address, viewport=_WIDE, color_scheme=theme)
            page.context.add_cookies([cookie])
            _take_some(app, page, CROWDED_SCREENS, wanted, f"-{theme}")
    worker.stop(grace=0)


def _sign_in(access: Access, address: str) -> Any:
    day = timedelta(days=1)
    access.issue(Role.VIEWER, 90 * day, subject="wall screen", by="maria@example.com")
    access.issue(Role.OPERATOR, 30 * day, subject="deploy script", by="maria@example.com")
    issued = access.issue(Role.ADMIN, day, subject="maria@example.com")
    return {"name": COOKIE, "value": issued.token, "url": address}


def _take_some(
    app: Evenbeat,
    page: Page,
    screens: tuple[Screen, ...],
    wanted: tuple[str, ...],
    suffix: str = "",
) -> None:
    for screen in screens:
        if not wanted or screen.name in wanted:
            _take(app, page, screen, f"{screen.name}{suffix}")


def _take(app: Evenbeat, page: Page, screen: Screen, name: str) -> None:
    page.goto(_resolved(app, screen.path))
    page.locator("#live[data-state=on]").wait_for()
    screen.prepare(page)
    path = IMAGES / f"{name}.png"
    path.write_bytes(_small(page.screenshot()))
    print(f"{path.name}: {path.stat().st_size:,} bytes")
    assert path.stat().st_size <= MOST_BYTES, f"{path.name} is too large"


def _resolved(app: Evenbeat, path: str) -> str:
    """The path with `{a job's name}` replaced by its id."""
    before, brace, rest = path.partition("{")
    if not brace:
        return path
    name, _, after = rest.partition("}")
    job = app.store.read.job_by_name(name)
    assert job is not None, name
    return f"{before}{job.id}{after}"


def _small(picture: bytes) -> bytes:
    """The same in 256 colours, none of which is off by more than the eye can see."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    few = image.quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    out = io.BytesIO()
    few.save(out, "PNG", optimize=True)
    return out.getvalue()


if __name__ == "__main__":
    main(*sys.argv[1:])
