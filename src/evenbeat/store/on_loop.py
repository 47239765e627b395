"""Code written for threads, run on an event loop without holding it up.

The store is written once. Called by `on_loop`, it runs in a greenlet of the loop's own thread:
where it has to wait, it hands the loop something to await and goes on with the result, while the
loop does other work. So every verb has an async form, and none is written twice.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial, update_wrapper
from threading import Thread
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from greenlet import getcurrent, greenlet

from evenbeat.errors import EvenbeatError

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


ON_LOOP = "__sqlalchemy_greenlet_provider__"
"""The mark of a greenlet in which `wait_here` works. It is SQLAlchemy's, whose greenlets wait as
ours do: its async engines work within our calls, and our calls within its `run_sync`."""


class LoopCall(greenlet):
    """A call that runs on a loop."""


setattr(LoopCall, ON_LOOP, True)


def is_on_loop() -> bool:
    """Whether the code that asks may wait by `wait_here`."""
    return hasattr(getcurrent(), ON_LOOP)


def wait_here(awaitable: Awaitable[R]) -> R:
    """Let the loop go on until it has the result."""
    loop = cast("greenlet", getcurrent().parent)
    result: R = loop.switch(awaitable)
    return result


def aside(work: Callable[[], R]) -> R:
    """Do what blocks, or holds a lock while it waits: on a loop in a thread of its own."""
    if not is_on_loop():
        return work()
    future: Future[R] = Future()
    context = copy_context()

    def run() -> None:
        try:
            future.set_result(context.run(work))
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, name="evenbeat-aside", daemon=True).start()
    return wait_here(asyncio.wrap_future(future))


async def on_loop(work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call code that waits for the database, without holding up the running loop; one that is not
    asyncio's, such as trio's, leaves the call to a thread."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        import anyio.to_thread  # noqa: PLC0415 -- few programs run on trio

        try:
            anyio.get_cancelled_exc_class()  # one of any library
        except RuntimeError:
            raise EvenbeatError(
                "The async forms need a running event loop, asyncio's or trio's, and none is here. "
                "In plain code, call the plain form."
            ) from None
        call_it = partial(work, *args, **kwargs)
        return await anyio.to_thread.run_sync(call_it, abandon_on_cancel=True)
    call = LoopCall(work)
    call.gr_context = copy_context()
    if sys.platform == "win32" and isinstance(loop, asyncio.ProactorEventLoop):
        call = LoopCall(lambda *args, **kwargs: aside(lambda: work(*args, **kwargs)))  # no sockets
    value = call.switch(*args, **kwargs)
    while not call.dead:
        try:
            result = await value
        except BaseException:
            value = call.throw(*sys.exc_info())
        else:
            value = call.switch(result)
    done: R = value
    return done


def async_form(
    method: Callable[Concatenate[S, P], R],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """The method for async code: `cancel_async = async_form(cancel)`."""

    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await on_loop(method, self, *args, **kwargs)

    update_wrapper(call, method)
    call.__name__ = f"{method.__name__}_async"
    call.__qualname__ = f"{method.__qualname__}_async"
    call.__doc__ = f"`{method.__name__}` in async code, on the running loop."
    return call
