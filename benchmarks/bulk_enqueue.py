"""Bulk enqueue: `add_many` beside a raw COPY of the very same rows, in one run.

    python benchmarks/bulk_enqueue.py [jobs] [rounds]

The raw contender streams lines that were made before the clock started, so the ratio is what the
product adds: making ids, encoding payloads, planning, one transaction and one hint.
"""

import sys
from functools import partial

import psycopg
from common import empty, fresh_store, rates, seconds

from evenbeat.domain.first_run import first_run
from evenbeat.domain.ids import uuid7_many
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.store.bulk import copy_lines
from evenbeat.store.rows import MAX_JSON_BYTES
from evenbeat.store.store import Store

SPEC = JobSpec("send_email", queue="mail", priority=10)


def make_jobs(count: int) -> list[NewJob]:
    return [
        NewJob(SPEC, {"to": f"user{n}@example.org", "template": "welcome", "n": n})
        for n in range(count)
    ]


def raw_copy(url: str, columns: str, lines: bytes) -> None:
    statement = f"COPY evenbeat.jobs ({columns}) FROM STDIN"
    with (
        psycopg.connect(url) as connection,
        connection.cursor() as cursor,
        cursor.copy(statement) as copy,
    ):
        copy.write(lines)


def prepared(store: Store, count: int) -> tuple[str, bytes]:
    """The columns and lines that `add_many` would copy."""
    now = store.clock()
    run = first_run(SPEC, None, now)
    jobs = make_jobs(count)
    ids, limit = uuid7_many(count), MAX_JSON_BYTES
    columns, lines = copy_lines(ids, jobs, [run] * count, now=now, limit=limit)
    return ", ".join(columns), "".join(lines).encode()


def main(count: int = 100_000, rounds: int = 5) -> None:
    times: dict[str, list[float]] = {"raw COPY": [], "add_many": [], "make + add_many": []}
    with fresh_store() as store:
        for _ in range(rounds):
            columns, lines = prepared(store, count)
            empty(store)
            times["raw COPY"].append(seconds(partial(raw_copy, store.database.url, columns, lines)))
            jobs = make_jobs(count)
            empty(store)
            times["add_many"].append(seconds(partial(store.add_many, jobs)))
            empty(store)
            times["make + add_many"].append(seconds(lambda: store.add_many(make_jobs(count))))
    measured = rates(times, count)
    floor = measured["raw COPY"]
    print(f"{count:,} jobs, median of {rounds} interleaved rounds")
    for name, rate in measured.items():
        print(f"  {name:<18}{rate:>10,.0f} jobs/s   {rate / floor:5.2f} of raw COPY")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
