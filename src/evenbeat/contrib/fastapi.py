"""FastAPI: a worker that lives as long as the application, and jobs that requests leave behind."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from fastapi import Depends

from evenbeat.app import Evenbeat
from evenbeat.domain.job import NewJob

NewJobs = list[NewJob]
"""What a request leaves to be enqueued: `jobs.append(send_receipt.job(order_id=7))`."""


def lifespan(
    app: Evenbeat,
    *,
    worker: bool = True,
    queues: Sequence[str] | None = None,
    concurrency: int | None = None,
) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """A lifespan for `FastAPI(lifespan=lifespan(jobs))`, or to be entered in one of your own. With
    `worker` off the process only enqueues."""

    @asynccontextmanager
    async def living(_api: object) -> AsyncIterator[None]:
        # In a thread, since both wait for the database, and a stop for what still runs.
        def start() -> Callable[[], None]:
            if not worker:
                return lambda: None
            working = app.worker(queues=queues, concurrency=concurrency)
            working.start()
            return working.stop

        try:
            stop = await asyncio.to_thread(start)
            try:
                yield
            finally:
                await asyncio.to_thread(stop)
        finally:
            await asyncio.to_thread(app.close)

    return living


def enqueueing(app: Evenbeat) -> Any:
    """A dependency that gives an empty list, and enqueues the jobs that are in it when the endpoint
    has returned: all of them, or none where it raised. The response is sent after that."""

    async def jobs() -> AsyncIterator[NewJobs]:
        left: NewJobs = []
        yield left
        if left:
            await app.enqueue_many_async(left)

    return Depends(jobs, scope="function")
