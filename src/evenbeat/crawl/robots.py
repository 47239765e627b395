"""What a site asks of robots: its robots.txt, read as RFC 9309 says."""

import asyncio
from urllib.parse import urlsplit

from protego import Protego

from evenbeat.external.addresses import Policy
from evenbeat.external.fetching import Call, TooManyRedirects, fetch


class RobotsUnreadable(Exception):
    """Nobody can say what is allowed now; until it can be read, nothing is."""

    code = "robots_unreadable"


class Robots:
    """The rules of every host that is asked, each read once, even if they cannot be read."""

    def __init__(self, policy: Policy, agent: str) -> None:
        self._agent = agent
        self._policy = policy
        self._reading: dict[str, asyncio.Task[Protego]] = {}

    async def rules(self, url: str) -> Protego:
        """The rules for a URL. Raises what `fetch` raises, and `RobotsUnreadable`."""
        origin = "{0.scheme}://{0.netloc}".format(urlsplit(url))
        if origin not in self._reading:
            self._reading[origin] = asyncio.create_task(self._read(f"{origin}/robots.txt"))
        return await asyncio.shield(self._reading[origin])

    async def _read(self, url: str) -> Protego:
        headers = {"user-agent": self._agent, "accept-encoding": "identity"}
        call = Call(url, headers=headers, seconds=30.0, keep=512 * 1024, redirects=5)
        try:
            response = await fetch(call, self._policy)
        except TooManyRedirects:
            return Protego.parse("")
        if response.status == 429 or response.status >= 500:
            raise RobotsUnreadable(f"{url} answered {response.status}.")
        # Where there are no rules, says the standard, everything is allowed.
        body = response.body if 200 <= response.status < 300 else b""
        return Protego.parse(body.decode("utf-8", "replace"))
