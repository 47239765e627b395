"""The child process of a crawl: what it is asked, how the worker runs it, and what it does.

Scrapy's event loop can run only once in a process, and it parses what strangers wrote. So it gets a
process of its own, without the database's password, that can be ended at any moment: the request
comes in as JSON on standard input, messages go out as lines of JSON on standard output.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import IO, Any, NamedTuple

from evenbeat.crawl.urls import canonical_url, page_key
from evenbeat.external.addresses import AddressRefused, Policy
from evenbeat.external.output import HeadAndTail
from evenbeat.external.processes import Launch, started

MOST_TEXT = 100_000
"""How many characters of a page's text are kept and searched."""
MOST_TITLE = 500
MOST_BYTES = 5 * 2**20
"""How large a page may be, packed and unpacked."""
_LONGEST_LINE = 2 * 2**20
_LAST_WORDS = 4096
_INHERITED = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""What the child knows of our environment: no settings, least of all the database's."""

Send = Callable[[dict[str, Any]], None]
"""How the child sends a message to the worker."""


@dataclass(frozen=True, slots=True)
class CrawlRequest:
    """A crawl to do."""

    url: str
    max_pages: int
    max_depth: int
    max_seconds: float
    max_per_pattern: int
    delay: float
    page_timeout: float
    allowed_paths: tuple[str, ...]
    user_agent: str
    allow_private: bool
    networks: tuple[str, ...]

    @property
    def policy(self) -> Policy:
        """Where the child may connect to."""
        return Policy.of(self.allow_private, self.networks)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "CrawlRequest":
        fields = json.loads(text)
        return cls(**fields | {name: tuple(fields[name]) for name in ("allowed_paths", "networks")})


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
        return cls(
            url=url,
            key=page_key(url),
            title=str(message["title"])[:MOST_TITLE],
            text=str(message["text"])[:MOST_TEXT],
            depth=int(message["depth"]),
        )


# -- the worker's side ---------------------------------------------------------------------------


class CrawlProcess:
    """A crawl under way."""

    def __init__(self, out: asyncio.StreamReader, errors: asyncio.StreamReader) -> None:
        self._out = out
        self._errors = errors

    async def messages(self) -> AsyncIterator[dict[str, Any]]:
        """What the child sends, until it ends."""
        while line := await self._out.readline():
            message = json.loads(line)
            if isinstance(message, dict):
                yield message

    async def last_words(self) -> str:
        """The end of what it printed to standard error, once it has ended."""
        output = HeadAndTail(_LAST_WORDS)
        while data := await self._errors.read(65536):
            output.add(data)
        return output.text().strip().rpartition("\n")[2][:500]


@asynccontextmanager
async def crawl_process(request: CrawlRequest) -> AsyncIterator[CrawlProcess]:
    """The child that does this crawl, for as long as the block lasts."""
    environment = {name: os.environ[name] for name in _INHERITED if os.environ.get(name)}
    launch = Launch(
        argv=[sys.executable, "-c", f"from {__name__} import main; main()"],
        env=environment
        | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONUTF8": "1"},
        cwd="/",
        stdin=request.to_json(),
        keep=0,
    )
    async with started(launch) as process:
        out, reading_out = await _reader(process.stdout)
        errors, reading_errors = await _reader(process.stderr)
        try:
            yield CrawlProcess(out, errors)
        finally:
            reading_out.close()
            reading_errors.close()


async def _reader(pipe: IO[bytes] | None) -> tuple[asyncio.StreamReader, asyncio.BaseTransport]:
    """Reads no more than has room: a child that writes faster than we store has to wait."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_LONGEST_LINE)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader, transport


# -- the child's side ----------------------------------------------------------------------------


def main() -> None:
    """Do the crawl that standard input describes."""
    from evenbeat.crawl.robots import Robots, RobotsUnreadable  # noqa: PLC0415 - needs Scrapy's
    from evenbeat.external.fetching import FetchTrouble  # noqa: PLC0415

    request = CrawlRequest.from_json(sys.stdin.read())
    # Standard output is for messages alone; whatever else is printed goes to standard error.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def send(message: dict[str, Any]) -> None:
        out.write(json.dumps(message).encode() + b"\n")
        out.flush()

    robots = Robots(request.policy, request.user_agent)
    try:
        crawl_delay = robots.read_now(request.url).delay
    except (AddressRefused, FetchTrouble, RobotsUnreadable) as error:
        code = getattr(error, "code", "address_refused")
        send({"kind": "start_failed", "code": code, "message": str(error)[:1000]})
        return
    # Loaded late: most sites that cannot be crawled have said so by now.
    from evenbeat.crawl.spider import crawl_site  # noqa: PLC0415

    crawl_site(request, robots, crawl_delay, send)
