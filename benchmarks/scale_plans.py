"""What a journey statement touches in the database: shared buffers by EXPLAIN."""

from typing import Any
from uuid import uuid4

import psycopg

from evenbeat.store.database import _HOT_SESSION
from evenbeat.store.statements import load_statements


def plan(url: str, name: str, tasks: list[str], limit: int = 100) -> dict[str, Any]:
    """The plan of `claim` or `next_due` as a worker's connection makes it, with what it touched.
    What the statement wrote is taken back."""
    statement = load_statements("evenbeat")[name]
    params = {"now": None, "queues": None, "tasks": tasks, "since": None}
    if name == "claim":
        params |= {"limit": limit, "worker_id": uuid4(), "lease_seconds": 30.0}
    values = [params[name] for name in statement.names]
    explain = "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) EXECUTE measured"
    with psycopg.connect(url) as connection:
        connection.execute(_HOT_SESSION, prepare=False)
        connection.execute(f"PREPARE measured AS {statement.numbered.decode()}", prepare=False)
        cursor = psycopg.ClientCursor(connection)
        cursor.execute(f"{explain} ({', '.join(['%s'] * len(values))})", values)
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
