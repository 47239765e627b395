"""Documents: what crawls have fetched, found as one types, and harmless whatever it says."""

import itertools
from typing import NamedTuple
from uuid import UUID

from browsing import Site, accessibility_problems
from playwright.sync_api import expect

from evenbeat.crawl.documents import Documents, Lease
from evenbeat.domain.job import JobSpec, NewJob


class Kept(NamedTuple):
    key: str
    title: str
    text: str
    depth: int = 0

    @property
    def url(self) -> str:
        return f"https://{self.key}"


def crawl(site: Site, *pages: Kept) -> None:
    """Keep pages as a crawl does."""
    store = site.app.store
    store.add(NewJob(JobSpec("crawl", queue="web"), {"url": "https://a.b"}))
    (job,) = store.claim(UUID(int=1), 1, queues=["web"], tasks=["crawl"])
    assert job.lock_token is not None
    lease = Lease(job.id, job.lock_token)
    Documents(store.database).begin(lease, "news", "https://a.b", "The news")
    Documents(store.database).save(lease, "news", pages)
    store.control.cancel([job.id])


def test_pages_are_found_as_one_types(site: Site, colours: str) -> None:
    page = site.visit("viewer", "/documents", color_scheme=colours)
    if colours == "light":
        expect(page.get_by_role("heading", name="Nothing was crawled yet")).to_be_visible()
    hostile = "<img src=x onerror=alert(1)> a fox in a box"
    many = [Kept(f"a.b/{n}", f"Page {n}", "Filler about the harbour.") for n in range(30)]
    crawl(site, Kept("a.b/moon", "Moon <b>landing</b>", hostile), *many)

    page.reload()
    expect(page.locator("#results tbody tr")).to_have_count(20)
    page.get_by_role("link", name="Next").click()
    expect(page.locator("#results tbody tr")).to_have_count(11)

    page.get_by_label("Search crawled pages").fill("foxes")
    row = page.locator("#results tbody tr")
    expect(row).to_have_count(1)
    expect(row.locator("mark")).to_have_text("fox")
    expect(row.get_by_role("link")).to_have_text("Moon <b>landing</b>")
    assert row.locator("img").count() == 0
    assert accessibility_problems(page) == []

    page.get_by_label("Search crawled pages").fill("nothing like it")
    expect(page.get_by_role("heading", name="No page matches")).to_be_visible()


def test_on_a_phone_nothing_lies_upon_the_text(site: Site) -> None:
    crawl(site, Kept("a.b/" + "long" * 60, "Word" * 60, "Filler about the harbour. " * 20))
    page = site.visit("viewer", "/documents", viewport={"width": 390, "height": 844})
    cells = page.locator("#results tbody td").evaluate_all(
        "cells => cells.map(cell => cell.getBoundingClientRect().toJSON())"
    )
    assert len(cells) >= 3
    assert all(cell["left"] >= 0 and cell["right"] <= 390 for cell in cells)
    assert all(a["bottom"] <= b["top"] for a, b in itertools.pairwise(cells))


def test_on_a_phone_the_bar_of_a_short_page_is_no_taller(site: Site) -> None:
    crawl(site, Kept("a.b/", "Page", "Filler about the harbour."))
    heights = set()
    for query in ("", "?q=nothinglikeit"):
        page = site.visit("viewer", f"/documents{query}", viewport={"width": 390, "height": 844})
        heights.add(page.locator("body > .side").evaluate("bar => bar.offsetHeight"))
    assert len(heights) == 1


def test_odd_addresses_show_a_page(site: Site) -> None:
    page = site.visit("viewer", "/documents")
    for query in ("source=nobody", "q=%22", "page=999"):
        assert page.request.get(f"/documents?{query}").status == 200, query
    for query in ("q=%00", "page=0", "page=-1", "page=x", "page=99999999"):
        assert page.request.get(f"/documents?{query}").status == 422, query
