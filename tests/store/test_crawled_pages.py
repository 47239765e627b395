"""Crawled pages in the database: written by the lease's holder only, found by their words."""

import random
import re
import time
from datetime import UTC, datetime, timedelta
from string import ascii_letters
from typing import NamedTuple
from uuid import UUID

import psycopg
import pytest

from evenbeat.crawl.child import CrawledPage as Crawled
from evenbeat.crawl.documents import Documents, Lease
from evenbeat.crawl.normal_forms import page_key
from evenbeat.domain.ids import uuid7
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.errors import LeaseLost, NotFound
from evenbeat.store.store import Store

T0 = datetime(2030, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


class Page(NamedTuple):
    key: str
    title: str
    text: str
    depth: int = 0

    @property
    def url(self) -> str:
        return f"https://{self.key}"


A = Page("a.b/1", "A garden", "The quick brown fox jumps over the lazy dog.")
B = Page("a.b/2", "Foxes", "Something else entirely, at length. " * 30)


@pytest.fixture
def lease(store: Store) -> Lease:
    """The lease of a running crawl that has begun with the source `s`."""
    store.add(NewJob(JobSpec("crawl"), {"url": "https://a.b"}), now=T0)
    (job,) = store.claim(UUID(int=1), 1, now=T0)
    assert job.lock_token is not None
    lease = Lease(job.id, job.lock_token)
    Documents(store.database).begin(lease, "s", "https://a.b", "A B", now=T0)
    return lease


def texts(store: Store, words: str) -> list[str]:
    return [hit.title for hit in Documents(store.database).search(words)[0]]


def test_new_same_and_changed_pages(store: Store, lease: Lease):
    save = Documents(store.database).save
    assert save(lease, "s", [A, B], now=T0) == (2, 0)
    assert save(lease, "s", [A, B], now=T0 + DAY) == (0, 0)
    changed = A._replace(text="A slow fox.")
    assert save(lease, "s", [changed, B], now=T0 + 2 * DAY) == (1, 0)
    first, second = Documents(store.database).search()[0]
    assert first.title == "A garden"
    document = Documents(store.database).get(first.id)
    assert document.text == "A slow fox."
    assert (document.first_seen_at, document.changed_at, document.seen_at) == (
        T0, T0 + 2 * DAY, T0 + 2 * DAY,
    )  # fmt: skip
    assert (second.changed_at, second.seen_at) == (T0, T0 + 2 * DAY)


def test_of_two_pages_with_one_key_the_last_counts(store: Store, lease: Lease):
    assert Documents(store.database).save(lease, "s", [A, A._replace(title="Again")], now=T0) == (
        1,
        0,
    )
    assert Documents(store.database).search()[0][0].title == "Again"


def test_what_is_gone_is_not_found_until_it_is_back(store: Store, lease: Lease):
    save = Documents(store.database).save
    save(lease, "s", [A, B], now=T0)
    assert save(lease, "s", [], gone=[A.key, "never/there"], now=T0 + DAY) == (0, 1)
    assert save(lease, "s", [], gone=[A.key], now=T0 + DAY) == (0, 0)
    assert texts(store, "quick") == []
    assert Documents(store.database).search()[1] == 1
    assert save(lease, "s", [A], gone=[A.key], now=T0 + 2 * DAY) == (1, 0)
    assert texts(store, "quick") == ["A garden"]


def test_pages_of_two_sources_are_apart(store: Store, lease: Lease):
    Documents(store.database).begin(lease, "t", "https://c.d", None, now=T0)
    Documents(store.database).save(lease, "s", [A], now=T0)
    Documents(store.database).save(lease, "t", [A], now=T0)
    assert Documents(store.database).search("fox")[1] == 2
    assert Documents(store.database).search("fox", source="t")[1] == 1
    assert Documents(store.database).search(source="t")[1] == 1
    assert [source.id for source in Documents(store.database).sources()[0]] == ["s", "t"]


@pytest.mark.parametrize("lost", ["other token", "cancelled", "deleted"])
def test_who_has_lost_the_lease_writes_nothing(store: Store, lease: Lease, lost: str):
    documents = Documents(store.database)
    documents.save(lease, "s", [A], now=T0)
    if lost == "cancelled":
        store.control.cancel([lease.job_id], now=T0)
    elif lost == "deleted":
        store.control.delete([lease.job_id])
    else:
        lease = lease._replace(token=uuid7())
    for write in (
        lambda: documents.begin(lease, "t", "https://c.d", None),
        lambda: documents.save(lease, "s", [B], gone=[A.key]),
        lambda: documents.end(lease, "s", items_crawled=1, items_indexed=1),
    ):
        with pytest.raises(LeaseLost):
            write()
    assert [hit.title for hit in documents.search()[0]] == ["A garden"]
    (source,) = documents.sources()[0]
    assert (source.id, source.crawled_at) == ("s", None)


def test_nobody_takes_the_lease_while_a_batch_is_written(store: Store, lease: Lease, connect):
    with store.database.transaction() as writing:
        params = lease._asdict() | {
            "source": "s", "keys": [], "urls": [], "titles": [], "texts": [], "hashes": [],
            "depths": [], "gone": [], "now": None,
        }  # fmt: skip
        assert store.database.rows("save_documents", params, writing) == [(0, 0)]
        thief = connect()
        thief.execute("SET lock_timeout = 50")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            thief.execute("UPDATE evenbeat.jobs SET lock_token = %s", (uuid7(),))


def test_words_phrases_and_operators(store: Store, lease: Lease):
    Documents(store.database).save(lease, "s", [A, B], now=T0)
    assert texts(store, "foxes") == ["Foxes", "A garden"]  # a title counts more
    assert texts(store, '"quick brown"') == texts(store, "“quick brown”") == ["A garden"]
    assert texts(store, '"brown quick"') == []
    assert texts(store, "fox -dog") == ["Foxes"]
    assert sorted(texts(store, "garden or length")) == ["A garden", "Foxes"]
    for odd in ("", " ", "'", '"', "a & | !", "((", ":*", "the", "\\", "%s"):
        assert texts(store, odd) == []


def test_snippets_mark_what_was_found(store: Store, lease: Lease):
    Documents(store.database).save(lease, "s", [A], now=T0)
    (hit,) = Documents(store.database).search("jumping dogs")[0]
    assert "<mark>jumps</mark> over the lazy <mark>dog</mark>" in hit.snippet
    assert hit.rank is not None
    assert hit.rank > 0


def test_pages_of_results(store: Store, lease: Lease):
    pages = [A._replace(key=f"a.b/{n}") for n in range(5)]
    Documents(store.database).save(lease, "s", pages, now=T0)
    search = Documents(store.database).search
    seen = [hit.id for o in (0, 2, 4) for hit in search("fox", limit=2, offset=o)[0]]
    assert len(set(seen)) == 5
    assert search("fox", limit=2, offset=2)[1] == 5
    assert search("fox", offset=100) == ([], 5)
    assert Documents(store.database).search(offset=100) == ([], 5)
    assert Documents(store.database).sources(offset=100) == ([], 1)


def test_search_asks_its_index(store: Store, lease: Lease, connect):
    pages = [Page(f"a.b/{n}", f"Page {n}", f"word{n} common") for n in range(500)]
    Documents(store.database).save(lease, "s", pages, now=T0)
    with connect() as look:
        look.execute("ANALYZE evenbeat.documents")
        look.execute("SET enable_seqscan = off")
        plan = look.execute(
            "EXPLAIN SELECT 1 FROM evenbeat.documents d WHERE gone_at IS NULL"
            " AND d.search @@ websearch_to_tsquery('pg_catalog.english', 'word77')"
        ).fetchall()
    assert "documents_search" in str(plan)


def test_documents_come_and_go(store: Store, lease: Lease):
    Documents(store.database).save(lease, "s", [A], now=T0)
    document_id = Documents(store.database).search()[0][0].id
    Documents(store.database).delete(document_id)
    for missing in (Documents(store.database).get, Documents(store.database).delete):
        with pytest.raises(NotFound, match="document"):
            missing(document_id)
    assert Documents(store.database).save(lease, "s", [A], now=T0) == (1, 0)


def test_a_large_page_with_odd_characters(store: Store, lease: Lease):
    huge = A._replace(text=" ".join(f"wört{n}" for n in range(9000))[:100_000], title="😀" * 500)
    assert Documents(store.database).save(lease, "s", [huge], now=T0) == (1, 0)
    assert texts(store, "wört77") == ["😀" * 500]


def test_long_urls_of_a_long_source_fit_into_the_index(store: Store, lease: Lease):
    """Random letters, which do not shrink when the index packs them."""
    letters = random.Random(7)  # noqa: S311
    start = "https://example.com/" + "".join(letters.choices(ascii_letters, k=2000))
    url = "https://example.com/" + "".join(letters.choices(ascii_letters, k=2000))
    page = Crawled.of({"url": url, "title": "Long", "text": "A long address.", "depth": 0})
    Documents(store.database).begin(lease, start, start, None, now=T0)
    assert Documents(store.database).save(lease, start, [page], now=T0) == (1, 0)
    assert Documents(store.database).save(lease, start, [], gone=[page_key(url)], now=T0) == (0, 1)


def test_a_source_remembers_how_it_was_crawled(store: Store, lease: Lease):
    documents = Documents(store.database)
    documents.end(lease, "s", items_crawled=7, items_indexed=3, now=T0 + DAY)
    source = documents.source("s")
    assert source is not None
    assert (source.url, source.name, source.crawled_at) == ("https://a.b", "A B", T0 + DAY)
    assert (source.items_crawled, source.items_indexed) == (7, 3)
    documents.begin(lease, "s", "https://a.b/new", None, now=T0 + 2 * DAY)
    source = documents.source("s")
    assert source is not None
    assert (source.url, source.name, source.tried_at) == ("https://a.b/new", "A B", T0 + 2 * DAY)
    assert documents.source("nobody") is None


@pytest.mark.parametrize(
    ("words", "marks"),
    [
        ("ponies", {"ponies"}),
        ("a pony", {"ponies"}),
        ('"quick brown fox"', {"quick", "brown", "fox"}),
        ("lazy -cat", {"lazy"}),
    ],
)
def test_a_snippet_is_made_where_the_words_stand(
    store: Store, lease: Lease, words: str, marks: set[str]
):
    documents = Documents(store.database)
    filling = "Nothing of that is said here, where no animal is. " * 1000
    text = (
        f"A fox. {filling}\nPonies are small. The quick brown fox jumps over a lazy dog.\n{filling}"
    )
    documents.save(lease, "s", [Page("a.b/9", "Long", text)], now=T0)
    ((hit,), _) = documents.search(words)
    assert set(re.findall("<mark>(.*?)</mark>", hit.snippet.lower())) == marks


def test_many_words_are_ranked_in_passing(store: Store, lease: Lease):
    """Of 40 words that stand on each page hundreds of times, it took 20 ms to see how near to each
    other they are, and half a second to make a snippet."""
    documents = Documents(store.database)
    words = [f"w{n}" for n in range(40)]
    pages = [Page(f"a.b/{n}", "Of it", " ".join(words * 600)) for n in range(20)]
    documents.save(lease, "s", pages, now=T0)
    begun = time.monotonic()
    hits, total = documents.search(" or ".join([*words[:39], "title"]))
    assert (len(hits), total) == (20, 20)
    assert time.monotonic() - begun < 4, "on a busy machine; alone it is a tenth of that"
