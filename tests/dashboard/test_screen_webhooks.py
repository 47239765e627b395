"""Webhooks: the endpoints, how they do, and what was sent to them, again if need be."""

from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from browsing import Site, accessibility_problems
from playwright.sync_api import expect

from evenbeat.domain.webhooks import QUEUE, WebhookEvent, message_id
from evenbeat.store.webhooks import Attempted

SECRET_URL = "https://127.0.0.1:9/T0/very-secret?key=hidden"  # noqa: S105


@pytest.fixture(autouse=True)
def _undelivered(site: Site) -> Iterator[None]:
    """The site has a worker; what is sent here waits, and what becomes of it is for the test."""
    site.app.store.control.pause_queue(QUEUE)
    for hook in site.app.store.webhooks.endpoints():
        site.app.store.webhooks.delete(hook.id)
    yield
    for hook in site.app.store.webhooks.endpoints():
        site.app.store.webhooks.delete(hook.id)
    site.app.store.control.resume_queue(QUEUE)


def attempt(site: Site, message: object, **how: object) -> None:
    delivered = bool(how.pop("delivered", False))
    made = Attempted(uuid4(), datetime.now(UTC), 12.0, delivered, **how)
    site.app.store.webhooks.record(message, made)


def test_endpoints_and_what_was_sent_to_them(site: Site, colours: str) -> None:
    store = site.app.store
    page = site.visit("operator", "/webhooks", color_scheme=colours)
    expect(page.get_by_role("heading", name="No webhooks yet")).to_be_visible()
    assert accessibility_problems(page) == []

    well = store.webhooks.add("https://127.0.0.2:9/x", ["job.failed"], tags=["money"])
    hook = store.webhooks.add(SECRET_URL, list(WebhookEvent), description="The pager")
    sent, failed = (store.webhooks.test(hook.id).id for _ in range(2))
    attempt(site, sent, delivered=True, status_code=204)
    hostile = "<img src=x onerror=alert(1)>"
    attempt(site, failed, status_code=500, error_code="http_500", error="No.", response=hostile)

    page.reload()
    expect(page.locator("#endpoints tbody tr")).to_have_count(2)
    expect(page.locator("#endpoints")).to_contain_text("failing")
    expect(page.locator("#endpoints")).to_contain_text("tags money")
    expect(page.locator("#deliveries tbody tr")).to_have_count(2)
    assert "secret" not in page.content()
    assert "whsec_" not in page.content()
    assert accessibility_problems(page) == []
    page.get_by_role("navigation", name="States").get_by_role("link", name="delivered").click()
    expect(page.locator("#deliveries tbody tr")).to_have_count(1)

    page.goto(f"/webhooks/messages/{message_id(failed)}")
    expect(page.locator("#attempts")).to_contain_text(hostile)
    assert page.locator("#attempts img").count() == 0
    expect(page.get_by_text('"type": "webhook.test"')).to_be_visible()
    assert accessibility_problems(page) == []
    page.get_by_role("button", name="Redeliver").click()
    expect(page.get_by_text("The message is being sent again.")).to_be_visible()

    page.goto(f"/webhooks?webhook={well.id}")
    page.get_by_role("button", name="Test 127.0.0.2:9").click()
    expect(page.get_by_text("A test message is on its way.")).to_be_visible()
    assert store.webhooks.messages(well.id).total == 1


def test_an_address_shows_the_endpoint_that_it_names_or_none(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenbeat.dashboard.webhooks._MOST_ENDPOINTS", 1)
    old, _new = (
        site.app.store.webhooks.add(f"https://127.0.0.{n}:9/x", ["job.failed"]) for n in (3, 4)
    )
    page = site.visit("viewer", "/webhooks")
    expect(page.get_by_role("heading", name="Sent to 127.0.0.4:9")).to_be_visible()
    page.goto(f"/webhooks?webhook={old.id}")
    expect(page.get_by_role("heading", name="Sent to 127.0.0.3:9")).to_be_visible()
    for nothing in ("x", uuid4()):
        assert page.request.get(f"/webhooks?webhook={nothing}").status == 404


def test_a_viewer_looks_and_changes_nothing(site: Site) -> None:
    hook = site.app.store.webhooks.add(SECRET_URL, ["job.failed"])
    message = site.app.store.webhooks.test(hook.id).id
    page = site.visit("viewer", "/webhooks")
    expect(page.locator("#deliveries tbody tr").first).to_be_visible()
    assert page.get_by_role("button", name="Redeliver").count() == 0
    page.goto(f"/webhooks/messages/{message_id(message)}")
    assert page.get_by_role("button", name="Redeliver").count() == 0
    for nothing in ("msg_1", message_id(uuid4())):
        answer = page.request.get(f"/webhooks/messages/{nothing}")
        assert answer.status == 404
        assert "There is no webhook message" in answer.text()
