"""The worker's side of a crawl's child process: starting it, hearing it, ending it."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import IO, Any

from evenbeat.crawl.order import LONGEST_LINE, Order
from evenbeat.external.output import HeadAndTail
from evenbeat.external.processes import Launch, started

_LAST_WORDS = 4096
_INHERITED = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""What the child knows of our environment: nothing of the settings, the database's least of all."""


class Crawler:
    """A crawl under way."""

    def __init__(self, out: asyncio.StreamReader, errors: asyncio.StreamReader) -> None:
        self._out = out
        self._errors = errors

    async def messages(self) -> AsyncIterator[dict[str, Any]]:
        """What the child says, until it ends."""
        while line := await self._out.readline():
            message = json.loads(line)
            if isinstance(message, dict):
                yield message

    async def last_words(self) -> str:
        """The end of what it printed to standard error, once it has ended."""
        kept = HeadAndTail(_LAST_WORDS)
        while data := await self._errors.read(65536):
            kept.add(data)
        return kept.text().strip().rpartition("\n")[2][:500]


@asynccontextmanager
async def crawling(order: Order) -> AsyncIterator[Crawler]:
    """The child that does this crawl, for as long as the block lasts."""
    launch = Launch(
        argv=[sys.executable, "-m", "evenbeat.crawl.child"],
        env=_environment(),
        cwd="/",
        stdin=order.encoded(),
        keep=0,
    )
    async with started(launch) as process:
        out, reading_out = await _reader(process.stdout)
        errors, reading_errors = await _reader(process.stderr)
        try:
            yield Crawler(out, errors)
        finally:
            reading_out.close()
            reading_errors.close()


def _environment() -> dict[str, str]:
    own = {name: os.environ[name] for name in _INHERITED if os.environ.get(name)}
    return own | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONUTF8": "1"}


async def _reader(
    pipe: IO[bytes] | None,
) -> tuple[asyncio.StreamReader, asyncio.BaseTransport]:
    """Reads no more than has room: a child that writes faster than we store has to wait."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LONGEST_LINE)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader, transport
