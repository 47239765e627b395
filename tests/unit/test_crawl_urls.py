"""Which URLs mean one page, which one site, and what a page's markup says."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy.http import HtmlResponse, Response, TextResponse

from evenbeat.crawl.child import MOST_TEXT, CrawledPage, CrawlRequest
from evenbeat.crawl.normal_forms import (
    canonical_url,
    page_key,
    pattern_of,
    same_site,
    tidy,
    under,
)
from evenbeat.crawl.spider import content_of, legible

words = st.text("abcdefgh0125679-._~%/ äö", max_size=12)
urls = st.builds(
    lambda scheme, host, port, path, query, fragment: (
        f"{scheme}://{host}{port}/{path}?{query}#{fragment}"
    ),
    st.sampled_from(["http", "https"]),
    st.sampled_from(["example.com", "WWW.Example.com", "bücher.example", "[::1]", "10.0.0.1"]),
    st.sampled_from(["", ":80", ":443", ":8080"]),
    words,
    st.lists(st.tuples(words, words).map("=".join), max_size=4).map("&".join),
    words,
)


@given(urls)
def test_one_spelling_stays_as_it_is(url: str):
    once = canonical_url(url)
    assert canonical_url(once) == once
    assert page_key(once) == page_key(url)
    assert same_site(once, url)
    assert "#" not in once


@given(urls, st.permutations(["b=2", "a=1", "c=3"]))
def test_the_order_of_the_query_makes_no_difference(url: str, pairs: list[str]):
    bare = url.partition("?")[0]
    assert canonical_url(f"{bare}?{'&'.join(pairs)}") == canonical_url(f"{bare}?a=1&b=2&c=3")


@pytest.mark.parametrize(
    "other",
    [
        "http://example.com/a",
        "https://example.com/a/",
        "https://www.example.com/a",
        "https://EXAMPLE.com:443/a#there",
        "https://example.com./a?utm_source=x&gclid=1",
        "https://example.com/a;jsessionid=12AB?fbclid=3",
        "https://example.com/a/index.html",
    ],
)
def test_spellings_of_one_page(other: str):
    assert page_key(other) == page_key("https://example.com/a") == "example.com/a"


@pytest.mark.parametrize(
    "other",
    [
        "https://example.com/b",
        "https://example.com/A",
        "https://example.com/a?id=1",
        "https://example.com:8443/a",
        "https://sub.example.com/a",
    ],
)
def test_other_pages(other: str):
    assert page_key(other) != page_key("https://example.com/a")


@pytest.mark.parametrize(
    ("other", "usual"),
    [
        ("https://a.b/caf%c3%a9", "https://a.b/caf%C3%A9"),
        ("https://a.b/café", "https://a.b/caf%C3%A9"),
        ("https://a.b/%7Ejoe/%41?q=%6d%26", "https://a.b/~joe/A?q=m%26"),
        ("https://a.b/x/%2e%2e/%2F%zz", "https://a.b/x/%2E%2E/%2F%25zz"),
    ],
)
def test_escapes_have_one_spelling(other: str, usual: str):
    assert canonical_url(other) == canonical_url(usual) == usual


def test_long_keys_are_short_and_still_differ():
    long = "https://example.com/" + "x" * 1500
    keys = {page_key(long + end) for end in ("a", "b")}
    assert len(keys) == 2
    assert {len(key) for key in keys} == {500}
    assert page_key(long + "a/") in keys


@pytest.mark.parametrize(
    "text", ["ftp://example.com/", "mailto:a@b.c", "/a", "http://", "", "http://[x"]
)
def test_what_is_no_url(text: str):
    with pytest.raises(ValueError):  # noqa: PT011
        canonical_url(text)
    assert not same_site(text, "https://example.com/")


@pytest.mark.parametrize(
    ("url", "belongs"),
    [
        ("http://example.com/x", True),
        ("https://www.example.com/x", True),
        ("https://sub.example.com/x", False),
        ("https://bücher.example/x", False),
        ("https://example.com.evil.org/x", False),
        ("https://example.com:8443/x", False),
        ("https://example.com@evil.org/x", False),
    ],
)
def test_what_belongs_to_a_site(url: str, belongs: bool):
    assert same_site(url, "https://example.com/") is belongs


def test_hosts_are_compared_as_the_network_knows_them():
    assert canonical_url("https://BÜCHER.example/ä") == "https://xn--bcher-kva.example/%C3%A4"
    assert same_site("https://www.xn--bcher-kva.example/", "http://bücher.example/x")


@pytest.mark.parametrize(
    ("url", "pattern"),
    [
        ("https://a.b/calendar/2026/11", "/calendar/0/0"),
        ("https://a.b/cal?month=2026-11&view=week", "/cal?month&view"),
        ("https://a.b/cal?view=day&month=1", "/cal?month&view"),
        ("https://a.b/2026/05/a-title", "/0/0/a-title"),
        ("https://a.b/x/6f9619ff-8b86-d011-b42d-00c04fc964ff", "/x/*"),
        ("https://a.b", "/"),
    ],
)
def test_patterns(url: str, pattern: str):
    assert pattern_of(url) == pattern


def test_paths_below_paths():
    assert under("https://a.b/anything", [])
    assert under("https://a.b/docs", ["/docs"])
    assert under("https://a.b/docs/x", ["/blog", "/docs/"])
    assert not under("https://a.b/docs-old", ["/docs"])
    assert under("https://a.b", ["/"])


# -- what a page says ----------------------------------------------------------------------------


def html(body: str, **headers: str) -> HtmlResponse:
    return HtmlResponse("http://a.b/", body=body.encode(), headers=headers, encoding="utf-8")


def test_the_text_is_what_a_reader_sees():
    content = content_of(
        html(
            "<html><head><title> A\n title </title><style>p {}</style></head><body>"
            "<script>no()</script><h1>Head</h1><p>One <b>bold</b>est&nbsp;word<br>next</p>"
            "<template>no</template><!-- no --><td>a</td><td>b</td>tail\x00\ue000</body></html>"
        )
    )
    assert content is not None
    assert content.title == "A title"
    assert content.text == "Head\nOne boldest word\nnext\na\nb\ntail"
    assert content.may_index
    assert content.may_follow


@pytest.mark.parametrize(
    ("body", "headers", "rules"),
    [
        ('<meta name="robots" content="NOINDEX">', {}, (False, True)),
        ('<meta name="Robots" content="nofollow, noarchive">', {}, (True, False)),
        ('<meta name="robots" content="none">', {}, (False, False)),
        ('<meta name="googlebot" content="noindex">', {}, (True, True)),
        ("x", {"X-Robots-Tag": "noindex"}, (False, True)),
    ],
)
def test_pages_have_a_say_too(body: str, headers: dict[str, str], rules: tuple[bool, bool]):
    content = content_of(html(body, **headers))
    assert content is not None
    assert (content.may_index, content.may_follow) == rules


@pytest.mark.parametrize("body", ["", " ", "<", "<html></html>", "<p>" * 5000 + "deep"])
def test_odd_markup_is_read_all_the_same(body: str):
    content = content_of(html(body))
    assert content is not None
    assert content.text in {"", "deep", "<"}


def test_text_without_markup_and_what_is_none():
    plain = TextResponse("http://a.b/", body=b"First line\nand <more>", encoding="utf-8")
    content = content_of(plain)
    assert content is not None
    assert (content.title, content.text) == ("First line", "First line\nand <more>")
    assert content_of(Response("http://a.b/", body=b"\x00")) is None


@pytest.mark.parametrize("charset", ["base64", "rot13", "idna", "unicode_escape", "nonsense"])
def test_a_charset_that_is_none_is_not_believed(charset: str):
    kind = {"content-type": f"text/html; charset={charset}"}
    page = HtmlResponse("http://a.b/", body=b"<title>x</title>ok \\ud800 \xff", headers=kind)
    content = content_of(legible(page))
    assert content is not None
    assert content.title == "x"
    assert content.text.startswith("ok")


def test_typographic_marks_do_not_stick_to_words():
    said = "“Moon”—landing… 1914\u20131918, don\u2019t hy\u00adphen 5€。漢字、x"
    assert tidy(said) == '"Moon" - landing... 1914 - 1918, don\'t hyphen 5 € 。 漢字 、 x'


@given(st.text(max_size=200))
def test_tidy_text_can_be_stored(text: str):
    tidied = tidy(text)
    assert tidied == tidy(tidied)
    assert not any(unicodedata.category(c) in ("Cc", "Cs") for c in tidied.replace("\n", ""))
    tidied.encode()


def test_a_request_survives_its_way():
    request = CrawlRequest(
        "http://a.b/", 1, 2, 3.5, 4, 0.5, 6, ["/x"], "Evenbeat", True, ["10.0.0.0/8"]
    )
    assert CrawlRequest(*json.loads(json.dumps(request))) == request


def test_what_the_child_says_is_cut_to_size():
    url = "https://a.b/" + "u" * 9999
    said = {"url": url, "title": "t" * 9999, "text": "x" * 999_999, "depth": 3}
    page = CrawledPage.of(said)
    assert (len(page.url), len(page.title), len(page.text)) == (2048, 500, MOST_TEXT)
    assert page.key.startswith("a.b/uuu")
    with pytest.raises(ValueError, match="not an http or https URL"):
        CrawledPage.of(said | {"url": "javascript:alert(1)"})
