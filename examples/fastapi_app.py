"""A FastAPI application on async SQLAlchemy, with its background jobs and no second process.

    uvicorn --app-dir examples fastapi_app:api
    uvicorn --app-dir examples fastapi_app:api --workers 4      # just as well

    curl -X POST localhost:8000/orders -H 'content-type: application/json' -d '{"item": "tea"}'
    curl localhost:8000/orders

    evenbeat token login --url http://localhost:8000/evenbeat    # a link to the dashboard

Every uvicorn worker brings an Evenbeat worker with it. They share the jobs through the database:
each job runs once, each schedule exists once, and when a process dies, the others do its work.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated
from uuid import UUID

from fastapi import Depends, FastAPI, Request
from pydantic import BaseModel
from sqlalchemy import DateTime, delete, func, make_url, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from evenbeat import Context, Evenbeat, State
from evenbeat.contrib.fastapi import lifespan

jobs = Evenbeat(name="orders")


# -- the application's own tables; here they are in the database that Evenbeat uses --------------


class Base(DeclarativeBase): ...


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]
    receipts: Mapped[int] = mapped_column(default=0)
    made_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())


@asynccontextmanager
async def database() -> AsyncIterator[async_sessionmaker[AsyncSession]]:
    """Sessions for one event loop: that of the application, or that of the worker inside it."""
    url = make_url(await asyncio.to_thread(lambda: jobs.database_url))
    engine = create_async_engine(url.set(drivername="postgresql+psycopg"))
    try:
        yield async_sessionmaker(engine, expire_on_commit=False)
    finally:
        await engine.dispose()


# -- what the worker does ------------------------------------------------------------------------


@jobs.lifespan
@asynccontextmanager
async def sessions_of_the_worker(state: State) -> AsyncIterator[None]:
    async with database() as state.sessions:
        yield


@jobs.task(max_retries=5, retry_backoff="2s")
async def send_receipt(ctx: Context, order_id: int) -> None:
    async with ctx.state.sessions.begin() as session:
        await session.execute(
            update(Order).where(Order.id == order_id).values(receipts=Order.receipts + 1)
        )
    ctx.logger.info("Receipt sent", extra={"order": order_id})


@jobs.every("1h")
async def forget_old_orders(ctx: Context) -> None:
    async with ctx.state.sessions.begin() as session:
        month_ago = datetime.now(UTC) - timedelta(days=30)
        await session.execute(delete(Order).where(Order.made_at < month_ago))


# -- what a request does -------------------------------------------------------------------------


@asynccontextmanager
async def with_a_worker(api: FastAPI) -> AsyncIterator[None]:
    async with database() as api.state.sessions:
        async with api.state.sessions.begin() as session:
            await session.execute(text("SELECT pg_advisory_xact_lock(1)"))  # several start at once
            await (await session.connection()).run_sync(Base.metadata.create_all)
        async with lifespan(jobs, concurrency=20)(api):
            yield


api = FastAPI(title="Orders", lifespan=with_a_worker)
api.mount("/evenbeat", jobs.asgi())  # its API and dashboard, behind its own tokens


async def open_session(request: Request) -> AsyncIterator[AsyncSession]:
    """A transaction, which is committed when the endpoint has returned, before the response."""
    async with request.app.state.sessions.begin() as session:
        yield session


Session = Annotated[AsyncSession, Depends(open_session, scope="function")]


class NewOrder(BaseModel):
    item: str


class OrderAnswer(BaseModel):
    id: int
    job_id: UUID


class OrderLine(BaseModel):
    id: int
    item: str
    receipts: int


@api.post("/orders", status_code=201)
async def make_order(new: NewOrder, session: Session) -> OrderAnswer:
    order = Order(item=new.item)
    session.add(order)
    await session.flush()
    # One transaction: the order and its job, or neither.
    job = await send_receipt.options(connection=session).enqueue_async(order_id=order.id)
    return OrderAnswer(id=order.id, job_id=job.id)


@api.get("/orders")
async def list_orders(session: Session) -> list[OrderLine]:
    orders = await session.scalars(select(Order).order_by(Order.id))
    return [OrderLine(id=one.id, item=one.item, receipts=one.receipts) for one in orders]
