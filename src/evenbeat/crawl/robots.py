"""What a site asks of robots: its robots.txt, read as RFC 9309 says."""

import asyncio
from collections import defaultdict
from typing import NamedTuple
from urllib.parse import urlsplit

from protego import Protego

from evenbeat.external.addresses import AddressRefused, Policy
from evenbeat.external.fetching import Call, FetchTrouble, TooManyRedirects, fetch

_LARGEST = 512 * 1024
_SECONDS = 30.0


class RobotsUnreadable(Exception):
    """Nobody can say what is allowed now; until it can be read, nothing is."""

    code = "robots_unreadable"


class Rules(NamedTuple):
    """The rules of one host; None where it has none."""

    parsed: Protego | None
    agent: str

    def allow(self, url: str) -> bool:
        """Whether we may ask for this URL."""
        return self.parsed is None or bool(self.parsed.can_fetch(url, self.agent))

    @property
    def delay(self) -> float:
        """How many seconds the host wants between two requests."""
        seconds = None if self.parsed is None else self.parsed.crawl_delay(self.agent)
        return max(0.0, float(seconds or 0))


class Robots:
    """The rules of every host that is asked, each read once, even if they cannot be read."""

    def __init__(self, policy: Policy, agent: str) -> None:
        self._policy = policy
        self._agent = agent
        self._known: dict[str, Rules | Exception] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def rules(self, url: str) -> Rules:
        """The rules for a URL. Raises what `fetch` raises, and `RobotsUnreadable`."""
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        async with self._locks[origin]:
            if origin not in self._known:
                try:
                    self._known[origin] = await self._read(f"{origin}/robots.txt")
                except (AddressRefused, RobotsUnreadable, FetchTrouble) as error:
                    self._known[origin] = error
        known = self._known[origin]
        if isinstance(known, Exception):
            raise known.with_traceback(None)
        return known

    def read_now(self, url: str) -> Rules:
        """`rules`, before there is an event loop."""
        return asyncio.run(self.rules(url))

    async def _read(self, url: str) -> Rules:
        headers = {"user-agent": self._agent, "accept-encoding": "identity"}
        call = Call(url, headers=headers, seconds=_SECONDS, keep=_LARGEST, redirects=5)
        try:
            response = await fetch(call, self._policy)
        except TooManyRedirects:
            return Rules(None, self._agent)
        if response.status == 429 or response.status >= 500:
            raise RobotsUnreadable(f"{url} answered {response.status}.")
        if not 200 <= response.status < 300:  # there are none, says the standard
            return Rules(None, self._agent)
        return Rules(Protego.parse(response.body.decode("utf-8", "replace")), self._agent)
