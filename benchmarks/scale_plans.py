"""What a journey statement touches in the database: shared buffers by EXPLAIN."""

import re
from typing import Any
from uuid import uuid4

import psycopg

from evenbeat.store.database import _HOT_SESSION
from evenbeat.store.statements import load_statements


def plan(url: str, name: str, tasks: list[str], limit: int = 100) -> dict[str, Any]:
    """The plan of `claim` or `next_due` as a worker's connection makes it, with what it touched.
    What the statement wrote is taken back."""
    text = load_statements("evenbeat")[name].text
    params = {"now": None, "queues": None, "tasks": tasks}
    if name == "claim":
        params |= {"limit": limit, "unmarked": False}
        params |= {"worker_id": uuid4(), "lease_seconds": 30.0}
    order = list(params)
    numbered = re.sub(r"%\((\w+)\)s", lambda m: f"${order.index(m[1]) + 1}", text)
    explain = "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) EXECUTE measured"
    with psycopg.connect(url) as connection:
        connection.execute(_HOT_SESSION, prepare=False)
        connection.execute(f"PREPARE measured AS {numbered}", prepare=False)
        cursor = psycopg.ClientCursor(connection)
        cursor.execute(f"{explain} ({', '.join(['%s'] * len(order))})", list(params.values()))
        rows = cursor.fetchall()
        connection.rollback()
    made: dict[str, Any] = rows[0][0][0]["Plan"]
    return made


def buffers(url: str, name: str, tasks: list[str]) -> int:
    """Shared buffers that the statement touched, in the cache or not. The second time counts: the
    first may have to tidy up after others."""
    plan(url, name, tasks)
    made = plan(url, name, tasks)
    return int(made["Shared Hit Blocks"]) + int(made["Shared Read Blocks"])
