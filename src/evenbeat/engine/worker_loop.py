"""The worker's event loop, and the lifespans that are open on it while the worker runs."""

import asyncio
import concurrent.futures
import logging
import threading
import time
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from evenbeat.errors import LifespanFailed
from evenbeat.tasks.context import State
from evenbeat.tasks.hooks import Lifespan, await_inside

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.5
"""How often the loop shows that it is not blocked."""

LEAVE_SECONDS = 10.0
"""How long the lifespans of a stopping worker may take to end."""


class WorkerLoop:
    """One thread with one event loop, for user code only: async handlers, lifespans, and async
    middleware of plain handlers. The thread starts when somebody needs it."""

    def __init__(self, lifespans: Sequence[Lifespan] = ()) -> None:
        self.state = State()
        self._lifespans = lifespans
        self._opened: concurrent.futures.Future[asyncio.Event] | None = None
        self._over: concurrent.futures.Future[None] | None = None
        self._thread = threading.Thread(target=self._serve, name="evenbeat-loop", daemon=True)
        self._starting = threading.Lock()
        self._closing = False
        self._late = 0.0
        self._tick_due = float("inf")

    @cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Made for those who use it."""
        return asyncio.new_event_loop()

    @property
    def lag(self) -> float:
        """How late the last tick was, or how late the next one is by now."""
        return max(self._late, time.monotonic() - self._tick_due)

    def started(self) -> asyncio.AbstractEventLoop:
        """The loop, which runs from now on at the latest."""
        with self._starting:
            loop = self.loop  # before its thread asks: since Python 3.12, both would make one
            if self._thread.ident is None:
                self._thread.start()
        return loop

    def open(self) -> None:
        """Enter the lifespans; if one of them raises, leave the others and raise."""
        if not self._lifespans:
            return
        self._opened = concurrent.futures.Future()
        self._over = asyncio.run_coroutine_threadsafe(self._live(self._opened), self.started())
        either: list[concurrent.futures.Future[Any]] = [self._opened, self._over]
        concurrent.futures.wait(either, return_when=concurrent.futures.FIRST_COMPLETED)
        if self._opened.done():
            return
        error = self._over.exception()
        reason = "one of them ended before it yielded"
        if error is not None:
            notes = " ".join(f"({note})" for note in getattr(error, "__notes__", ()))
            reason = f"{type(error).__name__}: {error} {notes}"
        self._over = None
        raise LifespanFailed(
            f"The worker has not started, because its lifespans could not be entered: {reason}"
        ) from error

    def leave(self) -> None:
        """Leave the lifespans, the last one first. Errors are logged: the worker stops anyway."""
        if self._opened is None or (over := self._over) is None:
            return
        self.loop.call_soon_threadsafe(self._opened.result().set)
        self._over = None
        try:
            over.result(LEAVE_SECONDS)
        except BaseException:
            problem = "failed when it ended"
            if over.cancel():
                problem = f"has not ended within {LEAVE_SECONDS:g} s"
            logger.exception("a lifespan of the worker %s", problem)

    def close(self) -> None:
        """End the thread; runs must be over."""
        self._closing = True
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(timeout=5)
        if not self._thread.is_alive() and "loop" in self.__dict__:
            self.loop.close()

    async def _live(self, opened: "concurrent.futures.Future[asyncio.Event]") -> None:
        """One task enters and leaves them, since cancel scopes and the like belong to a task."""
        over = asyncio.Event()

        async def stay() -> None:
            opened.set_result(over)
            await over.wait()

        await await_inside(self._lifespans, self.state, stay, "lifespan")

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.call_soon(self._tick)
        while not self._closing:
            try:
                self.loop.run_forever()
            except BaseException as error:
                # `sys.exit()` in a task that a handler made falls through the loop. The handler
                # that awaits it gets the error; the others go on.
                logger.warning("a handler's own task raised %s", type(error).__name__)
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())

    def _tick(self) -> None:
        now = time.monotonic()
        self._late = max(0.0, now - self._tick_due)
        self._tick_due = now + TICK_SECONDS
        self.loop.call_later(TICK_SECONDS, self._tick)
