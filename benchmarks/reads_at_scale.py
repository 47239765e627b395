"""Reading from a large database: what a dashboard and an API ask for, p50 and p99.

    python benchmarks/reads_at_scale.py [jobs] [executions] [rounds]

Fills an embedded server of its own, lets the chore count what there is, then asks. With `--url URL`
in place of the numbers it asks a database that is filled already.
"""

import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import psycopg
from common import fresh_store
from fill import fill

from evenbeat.engine.clock import DatabaseClock
from evenbeat.engine.maintenance import CountRuns
from evenbeat.observe.explain import explain
from evenbeat.store.lists import JobFilter
from evenbeat.store.runs import RunFilter
from evenbeat.store.store import Store


def questions(store: Store) -> dict[str, Callable[[], object]]:
    """What is asked, by the name it is reported under."""
    read, now = store.read, store.clock()
    busiest = read.ids(JobFilter(), limit=1)[0]
    page = [job.id for job in read.jobs(JobFilter(kinds=["interval"])).jobs]
    few = {"statuses": ["scheduled"], "queues": ["queue-3"]}
    return {
        "list, first page": read.jobs,
        "list, status and queue": lambda: read.jobs(JobFilter(**few)),
        "list, status and rare queue": lambda: read.jobs(
            JobFilter(statuses=["completed"], queues=["rare"])
        ),
        "list, failed": lambda: read.jobs(JobFilter(statuses=["failed"])),
        "list, task": lambda: read.jobs(JobFilter(tasks=["task_7"])),
        "list, rare task": lambda: read.jobs(JobFilter(tasks=["seldom"])),
        "list, recurring": lambda: read.jobs(JobFilter(kinds=["interval"])),
        "list, tag": lambda: read.jobs(JobFilter(tag="team-60")),
        "list, recurring by next run": lambda: read.jobs(
            JobFilter(kinds=["interval"]), sort="next_run_at"
        ),
        "list, all by next run": lambda: read.jobs(sort="next_run_at"),
        "list, by name": lambda: read.jobs(sort="name"),
        "list, offset 100,000": lambda: read.jobs(offset=100_000),
        "search, few": lambda: read.jobs(JobFilter(search="-99990")),
        "search, none": lambda: read.jobs(JobFilter(search="nothing like it")),
        "search, many": lambda: read.jobs(JobFilter(search="NIGHTLY")),
        "next ten runs": lambda: read.upcoming(10),
        "strips of 20 for a page of 50": lambda: read.last_outcomes(page),
        "job, 50 runs, stats": lambda: detail(store, busiest),
        "why did it not run": lambda: explain(read.circumstances(page[0])),
        "hourly bars": read.hourly,
        "jobs by state": read.counts_by_status,
        "queues": read.queues,
        "needs attention": read.failing_jobs,
        "timeline, 3 h": lambda: read.timeline(now - timedelta(hours=3), now),
        "recent failures": lambda: store.runs.page(RunFilter(statuses=["failed"]), 50),
    }


def detail(store: Store, job_id: UUID) -> None:
    store.read.job(job_id)
    store.read.executions_of(job_id, limit=50)
    store.read.job_stats(job_id)


def count(store: Store) -> None:
    """Let the chores do what they would have done all along."""
    begun = time.perf_counter()
    chore = CountRuns(store, DatabaseClock(store.clock()))
    while seen := chore.run_once():
        print(f"  counted {seen:,} runs and all jobs, {time.perf_counter() - begun:.1f} s so far")
    store.upkeep.fold_outcomes(older_than=store.clock() - timedelta(days=8))
    begun = time.perf_counter()
    store.upkeep.count_outcomes()
    print(f"  counting when nothing is new: {(time.perf_counter() - begun) * 1000:.1f} ms")
    begun = time.perf_counter()
    store.upkeep.count_jobs()
    print(f"  counting all jobs: {(time.perf_counter() - begun) * 1000:.0f} ms")


def measure(store: Store, rounds: int) -> None:
    asked = questions(store)
    times: dict[str, list[float]] = {name: [] for name in asked}
    for _ in range(rounds):
        for name, ask in asked.items():
            begun = time.perf_counter()
            ask()
            times[name].append((time.perf_counter() - begun) * 1000)
    print(
        f"\n| question | p50 ms | p99 ms |\n|---|---:|---:|  <!-- {rounds} interleaved rounds -->"
    )
    for name, measured in times.items():
        measured.sort()
        p99 = measured[min(len(measured) - 1, int(len(measured) * 0.99))]
        print(f"| {name} | {statistics.median(measured):.1f} | {p99:.1f} |")


def main(jobs: int = 1_000_000, executions: int = 5_000_000, rounds: int = 30) -> None:
    with fresh_store() as store:
        with psycopg.connect(store.database.url, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET max_wal_size = '8GB'")
            connection.execute("SELECT pg_reload_conf()")
        begun = time.perf_counter()
        fill(store.database.url, jobs, executions)
        took = time.perf_counter() - begun
        print(f"{jobs:,} jobs, {executions:,} executions, made in {took:.0f} s")
        count(store)
        measure(store, rounds)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--url"]:
        there = Store(sys.argv[2])
        count(there)
        measure(there, int(sys.argv[3]) if len(sys.argv) > 3 else 30)
        there.close()
    else:
        main(*map(int, sys.argv[1:]))
