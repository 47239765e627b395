"""The built-in task `crawl`: where it may not go, what it obeys, and what it says when it fails."""

import asyncio
import subprocess
import sys
from datetime import timedelta

import psutil
import pytest
from loopback_site import Site, serving

from evenbeat import Evenbeat
from evenbeat.crawl.robots import Robots, RobotsUnreadable
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.errors import InvalidInput
from evenbeat.external.addresses import Policy
from evenbeat.testing import Harness

HTML = {"content-type": "text/html"}
HOME = (200, HTML, b"<title>Home</title>Welcome home. <a href='/next'>next</a>")


@pytest.fixture
def site():
    with serving() as site:
        site.answers["/"] = HOME
        yield site


@pytest.fixture
def crawls(database_url):
    """Runs crawls of these payloads, side by side; returns the job and the execution of each."""

    def run(payloads, **settings):
        app = Evenbeat(database_url, **settings)
        app.include_builtins()
        with Harness(app) as harness:
            jobs = [NewJob(JobSpec("crawl"), {"delay": 0} | payload) for payload in payloads]
            ids = [added.id for added in app.enqueue_many(jobs)]
            assert harness.drain() == len(ids)
            read = app.store.read
            return [(read.job(id_), read.executions_of(id_).executions[0]) for id_ in ids]

    return run


@pytest.fixture
def crawl(crawls):
    """Runs one crawl with these settings and payload."""
    return lambda payload, **settings: crawls([payload], **settings)[0]


@pytest.fixture
def local(crawl):
    """The same, on a machine whose operator allows loopback addresses."""
    return lambda url, **payload: crawl({"url": url} | payload, allow_private_addresses=True)


def asked(site: Site) -> list[str]:
    return [seen.path for seen in site.seen]


# -- where it may not go -------------------------------------------------------------------------


def test_addresses_that_are_not_public_are_refused(site, crawls):
    hosts = ["localhost", "2130706433", "[::ffff:127.0.0.1]", "0.0.0.0"]  # noqa: S104
    tried = [f"http://{host}:{site.port}/" for host in hosts]
    tried += ["http://169.254.169.254/latest/meta-data/"]
    for job, run in crawls([{"url": url} for url in tried]):
        assert (job.status, run.error_code) == ("failed", "address_refused")
        assert "only public addresses" in run.error_message
    assert site.seen == []


def test_metadata_services_are_refused_even_where_private_addresses_are_not(local):
    _, run = local("http://169.254.169.254/latest/meta-data/")
    assert run.error_code == "address_refused"


@pytest.mark.parametrize("goal", ["start", "page", "robots"])
def test_redirects_to_addresses_that_are_not_allowed_are_not_followed(crawl, goal):
    """The first site is on a network that the operator allows, the second is not. The port is one,
    so that an address is all that differs."""
    with serving("127.0.0.2") as open_site, serving() as inner:
        away = (302, {"location": f"{inner.url}/secret"}, b"")
        open_site.answers["/"] = HOME
        place = {"start": "/", "page": "/next", "robots": "/robots.txt"}[goal]
        open_site.answers[place] = away
        job, run = crawl({"url": f"{open_site.url}/"}, allowed_networks="127.0.0.2/32")
        assert inner.seen == []
    expected = {
        "start": ("failed", "left_the_site"),
        "page": ("completed", None),
        "robots": ("failed", "address_refused"),
    }
    assert (job.status, run.error_code) == expected[goal]


def test_wrong_payloads_are_refused_when_they_are_added(database_url):
    app = Evenbeat(database_url)
    app.include_builtins()
    signature = app.registry.get("crawl").signature
    for payload in (
        {"url": "file:///etc/passwd"},
        {"url": "https://user:word@example.com/"},
        {"url": "https://example.com", "max_pages": 0},
        {"url": "https://example.com", "max_depth": -1},
        {"url": "https://example.com", "delay": float("nan")},
        {"url": "https://example.com", "allowed_paths": ["docs"]},
        {"url": "https://example.com", "source_id": ""},
        {"url": "https://example.com", "nonsense": 1},
    ):
        with pytest.raises(InvalidInput):
            signature.encode((), payload)
    signature.encode((), {"subreddit_id": 1})  # what the admin API sends
    signature.encode((), {})


# -- what it obeys -------------------------------------------------------------------------------


def test_robots_rules_for_us_go_before_those_for_all(site, local):
    site.answers["/robots.txt"] = (
        200, {}, b"User-agent: *\nDisallow: /\n\nUser-agent: evenbeat\nDisallow: /next\n",
    )  # fmt: skip
    job, run = local(site.url)
    assert (job.status, run.items_crawled, run.result["forbidden_by_robots"]) == ("completed", 1, 1)
    assert asked(site) == ["/robots.txt", "/"]


def test_a_start_page_that_robots_may_not_see(site, local):
    site.answers["/robots.txt"] = (200, {}, b"User-agent: *\nDisallow: /\n")
    job, run = local(site.url)
    assert (job.status, run.error_code) == ("failed", "robots_refused")
    assert asked(site) == ["/robots.txt"]


def test_rules_that_cannot_be_read_forbid_everything_for_now(site, local):
    site.answers["/robots.txt"] = (503, {}, b"")
    job, run = local(site.url)
    assert (job.status, run.error_code) == ("scheduled", "robots_unreadable")
    assert asked(site) == ["/robots.txt"]


def test_a_crawl_delay_is_kept(site, local):
    """With half a minute between pages, a crawl of one second fetches one."""
    site.answers["/robots.txt"] = (200, {}, b"User-agent: *\nCrawl-delay: 30\n")
    site.answers["/next"] = HOME
    _, run = local(site.url, max_seconds=1)
    assert (run.items_crawled, run.result["ended_by"]) == (1, "max_seconds")
    assert asked(site) == ["/robots.txt", "/"]


def test_a_host_without_rules_allows_everything(site):
    rules = asyncio.run(Robots(Policy(allow_private=True), "Evenbeat").rules(site.url))
    assert rules.can_fetch(f"{site.url}/x", "Evenbeat")
    assert not rules.crawl_delay("Evenbeat")


def test_rules_that_cannot_be_read_are_asked_for_once(site):
    site.answers["/robots.txt"] = (503, {}, b"")
    robots = Robots(Policy(allow_private=True), "Evenbeat")

    async def ask():
        asks = [robots.rules(f"{site.url}/{n}") for n in range(3)]
        return await asyncio.gather(*asks, return_exceptions=True)

    said = [*asyncio.run(ask()), *asyncio.run(ask())]
    assert [type(one) for one in said] == [RobotsUnreadable] * 6
    assert asked(site) == ["/robots.txt"]


def test_a_site_that_has_too_many_of_us_gets_fewer(site, local):
    """Of a hundred pages at once it answers one with 429: two seconds later it has seen few."""
    links = "".join(f"<a href='/{n}'>{n}</a>" for n in range(100))
    site.answers |= {f"/{n}": (429, HTML, b"") for n in range(100)}
    site.answers["/"] = (200, HTML, links.encode())
    _, run = local(site.url, delay=0.01, max_seconds=2)
    assert (run.items_crawled, run.result["ended_by"]) == (1, "max_seconds")
    assert len(asked(site)) < 20


def test_pages_that_do_not_want_to_be_indexed_or_followed(site, local):
    site.answers["/"] = (200, HTML, b"<a href='/a'>a</a><a href='/b' rel=nofollow>b</a>")
    site.answers["/a"] = (
        200, HTML, b"<meta name=robots content='noindex,nofollow'><a href='/c'>c</a>",
    )  # fmt: skip
    _, run = local(site.url)
    assert (run.items_crawled, run.items_indexed) == (2, 1)
    assert run.result["not_to_be_indexed"] == 1
    assert asked(site) == ["/robots.txt", "/", "/a"]


# -- what goes wrong -----------------------------------------------------------------------------


START_PAGES = {
    "/404": ((404, HTML, b""), "failed", "http_404"),
    "/503": ((503, HTML, b""), "scheduled", "http_503"),
    "/image": ((200, {"content-type": "image/png"}, b"x"), "failed", "not_text"),
    "/loop": ((302, {"location": "/loop"}, b""), "scheduled", "no_pages"),
    "/large": ((200, HTML | {"content-length": str(10**9)}, b"x"), "failed", "page_refused"),
}


def test_a_crawl_fails_when_its_start_page_does(site, crawls):
    site.answers |= {path: answer for path, (answer, _, _) in START_PAGES.items()}
    payloads = [{"url": site.url + path} for path in START_PAGES]
    done = crawls(payloads, allow_private_addresses=True)
    for (_, status, code), (job, run) in zip(START_PAGES.values(), done, strict=True):
        assert (job.status, run.status, run.error_code) == (status, "failed", code)
        assert run.error_message
        assert not run.items_crawled


def test_a_site_says_when_to_come_back(site, local):
    site.answers["/"] = (429, HTML | {"retry-after": "1800"}, b"")
    job, run = local(site.url)
    assert (job.status, run.error_code) == ("scheduled", "http_429")
    assert job.next_run_at - run.completed_at == timedelta(minutes=30)


def test_a_page_on_which_reading_fails_is_told_of(site, local):
    site.answers["/next"] = (200, HTML, b"<base href='http://[x'><a href='/z'>z</a>")
    _, run = local(site.url)
    assert (run.status, run.result["errors"]) == ("completed", 1)
    (problem,) = run.result["problems"]
    assert problem["url"] == f"{site.url}/next"
    assert "cannot be read" in problem["reason"]


_OF_A_LARGE_WORKER = """
import asyncio, sys
from evenbeat.crawl.child import CrawlRequest, crawler, messages
from evenbeat.external.processes import started

memory = bytearray(1100 * 2**20)
memory[::4096] = bytes(len(memory[::4096]))
del memory

async def main():
    request = CrawlRequest(sys.argv[1], 9, 9, 60, 9, 0, 20, (), "Evenbeat", True, ())
    async with started(crawler(request)) as child:
        async for message in messages(child):
            if message["kind"] == "end":
                print(message["ended_by"], message["counts"]["pages"])

asyncio.run(main())
"""


def test_how_large_the_worker_once_was_is_not_held_against_the_crawler(site):
    argv = [sys.executable, "-c", _OF_A_LARGE_WORKER, site.url]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["complete", "1"]


def is_crawler(process):
    try:
        return "evenbeat.crawl.child" in " ".join(process.cmdline())
    except psutil.Error:  # it has just ended
        return False


def test_crawls_of_one_worker_take_turns(site, crawls):
    crawlers = []

    def count(_seen):
        below = psutil.Process().children(recursive=True)
        crawlers.append(sum(is_crawler(process) for process in below))
        return HOME

    site.answers |= {"/1": count, "/2": count}
    payloads = [{"url": f"{site.url}{path}"} for path in ("/1", "/2")]
    done = crawls(payloads, allow_private_addresses=True, crawl_processes=1)
    assert [run.status for _, run in done] == ["completed", "completed"]
    assert crawlers == [1, 1]


def test_nobody_there(local):
    job, run = local("http://127.0.0.1:9/")
    assert (job.status, run.error_code) == ("scheduled", "connection_failed")


def test_a_source_is_found_by_its_id_once_its_url_is_known(site, crawl):
    job, run = crawl({"subreddit_id": 7}, allow_private_addresses=True)
    assert (job.status, run.error_code) == ("failed", "no_url")
    assert "crawled before" in run.error_message
    for payload in ({}, {"url": f"https://{'ü' * 80}.example/"}):
        job, run = crawl(payload, allow_private_addresses=True)
        assert (job.status, run.error_code) == ("failed", "no_url")
    _, run = crawl({"subreddit_id": 7, "url": site.url}, allow_private_addresses=True)
    assert run.status == "completed"
    _, run = crawl({"source_id": "7"}, allow_private_addresses=True)
    assert (run.status, run.items_crawled, run.items_indexed) == ("completed", 1, 0)
