"""How many requests that only read are at work at once: fewer than there are database connections
and worker threads, and of one caller fewer still, so that nobody keeps the others waiting."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from weakref import WeakValueDictionary

from starlette.exceptions import HTTPException

MOST_PRESENT = 200
"""Requests of one caller that are at work or wait for it."""
WAIT_SECONDS = 5.0
_EVERYONE = ""


class _Line(asyncio.Semaphore):
    """Places, and how many requests have one or wait for one."""

    present = 0

    def leave(self) -> None:
        self.present -= 1


class Places:
    """Places to read at. Each request takes one of its caller's and one of everybody's."""

    def __init__(self, connections: int) -> None:
        self.each = max(1, connections // 3)
        self.all = max(1, connections * 4 // 5)
        self._lines: WeakValueDictionary[str, _Line] = WeakValueDictionary()  # while in use

    @asynccontextmanager
    async def taken_by(self, caller: str) -> AsyncIterator[None]:
        """Hold a place, as soon as there is one; raises 429 or 503 where that takes too long."""
        own = self._lines.setdefault(caller, _Line(self.each))
        everyone = self._lines.setdefault(_EVERYONE, _Line(self.all))
        async with AsyncExitStack() as places:
            own.present += 1
            places.callback(own.leave)
            try:
                async with asyncio.timeout(WAIT_SECONDS if own.present <= MOST_PRESENT else 0):
                    await places.enter_async_context(own)
                    await places.enter_async_context(everyone)
            except TimeoutError:
                raise self._refused(own) from None
            yield

    def _refused(self, own: _Line) -> HTTPException:
        if own.locked():
            status, whose = 429, f"You have {own.present} requests under way"
        else:
            status, whose = 503, "Too many requests are under way"
        detail = (
            f"{whose}, of which {self.each} of one caller and {self.all} in all are read for at "
            "once. Nothing was read; try again shortly, with fewer at a time."
        )
        return HTTPException(status, detail, {"Retry-After": "2"})
