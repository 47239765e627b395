"""Background jobs inside a FastAPI application, with no second process to deploy.

    uvicorn --app-dir examples fastapi_app:api
    uvicorn --app-dir examples fastapi_app:api --workers 4      # just as well

    curl -X POST localhost:8000/orders -H 'content-type: application/json' -d '{"item": "tea"}'
    curl localhost:8000/orders

    evenbeat token login --url http://localhost:8000/evenbeat    # a link to the dashboard

Every uvicorn worker brings an Evenbeat worker with it. They share the jobs through the database:
each job runs once, each schedule exists once, and a process that dies is stood in for.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from fastapi import FastAPI
from psycopg.rows import DictRow, dict_row
from pydantic import BaseModel

from evenbeat import Context, Evenbeat
from evenbeat.contrib.fastapi import lifespan

jobs = Evenbeat(name="orders")


class Order(BaseModel):
    item: str


@jobs.task(max_retries=5, retry_backoff="2s")
def send_receipt(ctx: Context, order_id: int) -> None:
    with database() as connection:
        connection.execute("UPDATE orders SET receipts = receipts + 1 WHERE id = %s", (order_id,))
    ctx.logger.info("Receipt sent", extra={"order": order_id})


@jobs.every("1h")
def forget_old_orders() -> None:
    with database() as connection:
        connection.execute("DELETE FROM orders WHERE made_at < now() - interval '30 days'")


@asynccontextmanager
async def with_a_worker(api: FastAPI) -> AsyncIterator[None]:
    await asyncio.to_thread(make_table)
    async with lifespan(jobs, concurrency=20)(api):
        yield


api = FastAPI(title="Orders", lifespan=with_a_worker)
api.mount("/evenbeat", jobs.asgi())  # its API and dashboard, behind its own tokens


@api.post("/orders", status_code=201)
def make_order(order: Order) -> dict[str, Any]:
    with database() as connection:  # one transaction: the order and its job, or neither
        (row,) = connection.execute(
            "INSERT INTO orders (item) VALUES (%s) RETURNING id", (order.item,)
        ).fetchall()
        job = send_receipt.options(connection=connection).enqueue(order_id=row["id"])
    return {"id": row["id"], "job_id": job.id}


@api.get("/orders")
def list_orders() -> list[dict[str, Any]]:
    with database() as connection:
        return connection.execute("SELECT id, item, receipts FROM orders ORDER BY id").fetchall()


# -- the application's own database; here it is the one that Evenbeat uses, in another schema -----


def database() -> "psycopg.Connection[DictRow]":
    """A connection with an open transaction, committed and closed when the block ends."""
    return psycopg.Connection[DictRow].connect(jobs.store.database.url, row_factory=dict_row)


def make_table() -> None:
    with database() as connection:
        connection.execute("SELECT pg_advisory_xact_lock(1)")  # several workers start at once
        connection.execute(
            "CREATE TABLE IF NOT EXISTS orders (id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,"
            " item text NOT NULL, receipts int NOT NULL DEFAULT 0,"
            " made_at timestamptz NOT NULL DEFAULT now())"
        )
