"""The child process of a crawl: what it is asked, how the worker runs it, and what it does.

Scrapy's event loop can run only once in a process, and it parses what strangers wrote. So it gets a
process of its own, without the database's password, that can be ended at any moment: the request
comes in as JSON on standard input, messages go out as lines of JSON on standard output.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from evenbeat.crawl.normal_forms import canonical_url, page_key
from evenbeat.external import HeadAndTail
from evenbeat.external.addresses import AddressRefused, Policy
from evenbeat.external.processes import Launch, StartedCommand

MOST_TEXT = 100_000
"""How many characters of a page's text are kept and searched."""
MOST_TITLE = 500
MOST_BYTES = 5 * 2**20
"""How large a page may be, packed and unpacked."""
_INHERITED = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""What the child knows of our environment: no settings, least of all the database's."""

Send = Callable[[dict[str, Any]], None]
"""How the child sends a message to the worker."""


class CrawlRequest(NamedTuple):
    """A crawl to do."""

    url: str
    max_pages: int
    max_depth: int
    max_seconds: float
    max_per_pattern: int
    delay: float
    page_timeout: float
    allowed_paths: Sequence[str]
    user_agent: str
    allow_private: bool
    networks: Sequence[str]

    @property
    def policy(self) -> Policy:
        """Where the child may connect to."""
        return Policy.of(self.allow_private, self.networks)


class CrawledPage(NamedTuple):
    """A page to keep."""

    url: str
    key: str
    title: str
    text: str
    depth: int

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> "CrawledPage":
        """The page of a message, checked and cut to size once more: the child reads what strangers
        wrote. Raises ValueError if its URL is not valid."""
        url = canonical_url(str(message["url"])[:2048])
        title, text = str(message["title"])[:MOST_TITLE], str(message["text"])[:MOST_TEXT]
        return cls(url, page_key(url), title, text, int(message["depth"]))


# -- the worker's side ---------------------------------------------------------------------------


def crawler(request: CrawlRequest) -> Launch:
    """The child that does this crawl."""
    environment = {name: os.environ[name] for name in _INHERITED if os.environ.get(name)}
    environment |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONUTF8": "1"}
    argv = [sys.executable, "-c", f"from {__name__} import main; main()"]
    return Launch(argv, environment, "/", stdin=json.dumps(request))


async def messages(child: StartedCommand) -> AsyncIterator[dict[str, Any]]:
    """What the child sends, until it ends."""
    while line := await child.stdout.readline():
        yield json.loads(line)


async def last_words(child: StartedCommand) -> str:
    """The end of what it printed to standard error, once it has ended."""
    output = HeadAndTail(4096)
    while data := await child.stderr.read(65536):
        output.add(data)
    return output.text().strip().rpartition("\n")[2][:500]


# -- the child's side ----------------------------------------------------------------------------


def main() -> None:
    """Do the crawl that standard input describes."""
    from evenbeat.crawl.robots import Robots, RobotsUnreadable  # noqa: PLC0415 - needs Scrapy's
    from evenbeat.external.fetching import FetchTrouble  # noqa: PLC0415

    request = CrawlRequest(*json.load(sys.stdin))
    # Standard output is for messages alone; whatever else is printed goes to standard error.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def send(message: dict[str, Any]) -> None:
        out.write(json.dumps(message).encode() + b"\n")
        out.flush()

    robots = Robots(request.policy, request.user_agent)
    try:
        rules = asyncio.run(robots.rules(request.url))
    except (AddressRefused, FetchTrouble, RobotsUnreadable) as error:
        send({"kind": "start_failed", "code": error.code, "message": str(error)[:1000]})
        return
    # Loaded late: most sites that cannot be crawled have said so by now.
    from evenbeat.crawl.spider import crawl_site  # noqa: PLC0415

    crawl_site(request, robots, float(rules.crawl_delay(request.user_agent) or 0), send)
