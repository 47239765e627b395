"""What a site asks of robots: its robots.txt, read as RFC 9309 says."""

import asyncio
from collections import defaultdict
from typing import NamedTuple
from urllib.parse import urlsplit

from protego import Protego

from evenbeat.external.addresses import AddressRefused, Policy
from evenbeat.external.fetching import Call, FetchTrouble, TooManyRedirects, fetch

_MOST_RULES = 512 * 1024
_SECONDS = 30.0


class RobotsUnreadable(Exception):
    """Nobody can say what is allowed now; until it can be read, nothing is."""


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
        asked = None if self.parsed is None else self.parsed.crawl_delay(self.agent)
        return max(0.0, float(asked or 0))


class Robots:
    """The rules of every host that is asked, each read once, also when they cannot be read."""

    def __init__(self, policy: Policy, agent: str) -> None:
        self._policy = policy
        self._agent = agent
        self._known: dict[str, Rules | Exception] = {}
        self._reading: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def rules(self, url: str) -> Rules:
        """The rules for a URL. Raises what `fetch` raises, and `RobotsUnreadable`."""
        parts = urlsplit(url)
        place = f"{parts.scheme}://{parts.netloc}"
        async with self._reading[place]:
            if place not in self._known:
                self._known[place] = await self._tried(f"{place}/robots.txt")
        known = self._known[place]
        if isinstance(known, Exception):
            raise known.with_traceback(None)
        return known

    def read_now(self, url: str) -> Rules:
        """`rules`, before there is an event loop."""
        return asyncio.run(self.rules(url))

    async def _tried(self, url: str) -> Rules | Exception:
        try:
            return await self._read(url)
        except (AddressRefused, RobotsUnreadable, FetchTrouble) as error:
            return error

    async def _read(self, url: str) -> Rules:
        headers = {"user-agent": self._agent, "accept-encoding": "identity"}
        call = Call(url, headers=headers, seconds=_SECONDS, keep=_MOST_RULES, redirects=5)
        try:
            answer = await fetch(call, self._policy)
        except TooManyRedirects:
            return Rules(None, self._agent)
        if answer.status == 429 or answer.status >= 500:
            raise RobotsUnreadable(f"{url} answered {answer.status}.")
        if not 200 <= answer.status < 300:  # there are none, says the standard
            return Rules(None, self._agent)
        return Rules(Protego.parse(answer.body.decode("utf-8", "replace")), self._agent)
