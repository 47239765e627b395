"""Ten thousand, a hundred thousand, a million schedules: what registering them takes, what a claim
costs beside them, and how late others fire. Each number has a database of its own on one server, so
that measurements can alternate between them."""

import random
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
from scale_app import IDLE_TASKS
from scale_firing import firing
from scale_fleet import beside, percentile
from scale_plans import buffers

from evenbeat import Evenbeat
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.schedule import Cron, Interval
from evenbeat.store.store import Store

CHUNK = 10_000
SERVED = ["noop", "tick", *IDLE_TASKS]
QUEUES, PRIORITIES = ("default", "mail"), (0, 10, 50)
PERIODS = [timedelta(hours=1), timedelta(hours=6), timedelta(days=1), timedelta(days=7)]

# Schedules whose first run would come while we measure begin whole periods later. So a worker finds
# them waiting, as it would on any other day, and none of them due.
_LATER = """
UPDATE evenbeat.jobs
SET plan_time = plan_time + wait, next_run_at = next_run_at + wait
FROM (SELECT id, CASE schedule_kind WHEN 'cron' THEN interval '7 days' ELSE
             make_interval(secs => ceil(43200.0 / interval_seconds) * interval_seconds) END AS wait
      FROM evenbeat.jobs WHERE next_run_at < now() + interval '12 hours') soon
WHERE jobs.id = soon.id
"""
_SIZES = """
SELECT pg_table_size('evenbeat.jobs'), pg_indexes_size('evenbeat.jobs'),
       pg_relation_size('evenbeat.jobs_lanes')
"""


def measure(
    server: Store, sizes: Sequence[int], *, calls: int, due: int, seconds: int, firings: int
) -> dict[str, Any]:
    """All figures for each size."""
    rows, stores = [], []
    try:
        for size in sizes:
            print(f"  registering {size:,} schedules", flush=True)
            store = beside(server, f"scale_{size}")
            stores.append(store)
            rows.append({"schedules": size, **register(store, size)})
        print("  claims of nothing", flush=True)
        for row, idle in zip(rows, idle_costs(stores, calls), strict=True):
            row["idle"] = idle
        print(f"  claims of 100 from {due:,} due", flush=True)
        for row, loaded in zip(rows, loaded_costs(stores, due), strict=True):
            row["loaded"] = loaded
        for row, store in zip(rows, stores, strict=True):
            print(f"  {firings:,} firings a second beside {row['schedules']:,}", flush=True)
            row["firing"] = firing(store, firings, seconds)
        few = max(1, firings // 5)
        print(f"  {few:,} firings a second beside {sizes[0]:,}", flush=True)
        beside_few = {"schedules": sizes[0], **firing(stores[0], few, seconds)}
    finally:
        for store in stores:
            store.close()
    return {"sizes": rows, "few": beside_few, "due": due, "calls": calls}


# -- registering ---------------------------------------------------------------------------------


def schedules(size: int) -> list[NewJob]:
    """A mix of periods, tasks, queues and priorities; one in ten by cron, every one named."""
    dice = random.Random(size)  # noqa: S311 - the same mix every time
    specs = [
        JobSpec(task, queue, priority, schedule=Interval(every))
        for task in IDLE_TASKS
        for queue in QUEUES
        for priority in PRIORITIES
        for every in PERIODS
    ]
    jobs = []
    for n in range(size):
        spec = dice.choice(specs)
        if n % 10 == 0:
            daily = Cron(f"{dice.randrange(60)} {dice.randrange(24)} * * {dice.randrange(7)}")
            spec = JobSpec(spec.task, spec.queue, spec.priority, schedule=daily)
        jobs.append(NewJob(spec, {"tenant": n}, name=f"tenant-{n}"))
    return jobs


def register(store: Store, size: int) -> dict[str, Any]:
    """Register by ten thousands as an application would, and beside it without placement."""
    url, jobs = store.database.url, schedules(size)
    without = _seconds_to_add(store, jobs)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("TRUNCATE evenbeat.jobs")
        connection.execute("CHECKPOINT")
    with Evenbeat(url) as app:
        placed = _seconds_to_add(app.store, jobs)
    sizes = _sizes(url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_LATER)
        connection.execute("VACUUM ANALYZE evenbeat.jobs")
        connection.execute("CHECKPOINT")
    return {"seconds": placed, "seconds_unplaced": without, **sizes}


def _seconds_to_add(store: Store, jobs: list[NewJob]) -> float:
    begun = time.perf_counter()
    for at in range(0, len(jobs), CHUNK):
        store.add_many(jobs[at : at + CHUNK])
    return time.perf_counter() - begun


def _sizes(url: str) -> dict[str, float]:
    with psycopg.connect(url) as connection:
        table, indexes, lanes = connection.execute(_SIZES).fetchall()[0]
    return {"table_mib": table / 2**20, "index_mib": indexes / 2**20, "lanes_mib": lanes / 2**20}


# -- claiming ------------------------------------------------------------------------------------


def idle_costs(stores: Sequence[Store], calls: int) -> list[dict[str, Any]]:
    """Claims and looks for the next due time where nothing is due, in turns between the sizes."""
    worker = uuid4()
    asked: dict[str, Callable[[Store], object]] = {
        "claim": lambda store: store.claim(worker, 100, tasks=SERVED),
        "next_due": lambda store: store.next_due(tasks=SERVED),
    }
    times: list[dict[str, list[float]]] = [{name: [] for name in asked} for _ in stores]
    for call in range(calls + 20):
        for store, measured in zip(stores, times, strict=True):
            for name, ask in asked.items():
                begun = time.perf_counter()
                found = ask(store)
                if call >= 20:  # the first ones plan and fill caches
                    measured[name].append((time.perf_counter() - begun) * 1000)
                assert name != "claim" or not found, "something was due"
    return [
        {
            name: {
                "p50_ms": statistics.median(measured[name]),
                "p99_ms": percentile(measured[name], 0.99),
                "buffers": buffers(store.database.url, name, SERVED),
            }
            for name in asked
        }
        for store, measured in zip(stores, times, strict=True)
    ]


def loaded_costs(stores: Sequence[Store], due: int) -> list[dict[str, Any]]:
    """Claims of a hundred while many one-off jobs of every priority are due."""
    worker, times = uuid4(), [list[float]() for _ in stores]
    jobs = [NewJob(JobSpec("noop", priority=n % 101)) for n in range(due)]
    found = []
    for store in stores:
        for at in range(0, due, CHUNK):
            store.add_many(jobs[at : at + CHUNK])
        with psycopg.connect(store.database.url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE evenbeat.jobs")
        found.append(buffers(store.database.url, "claim", SERVED))
    for call in range(min(220, due // 200)):
        for store, measured in zip(stores, times, strict=True):
            begun = time.perf_counter()
            claimed = store.claim(worker, 100, tasks=SERVED)
            if call >= 20 or due < 5000:
                measured.append((time.perf_counter() - begun) * 1000)
            assert len(claimed) == 100
    for store in stores:
        with psycopg.connect(store.database.url, autocommit=True) as connection:
            connection.execute("DELETE FROM evenbeat.jobs WHERE schedule_kind = 'once'")
            connection.execute("TRUNCATE evenbeat.executions")
            connection.execute("VACUUM ANALYZE evenbeat.jobs")
    return [
        {
            "p50_ms": statistics.median(measured),
            "p99_ms": percentile(measured, 0.99),
            "buffers": touched,
        }
        for measured, touched in zip(times, found, strict=True)
    ]


# -- telling -------------------------------------------------------------------------------------


def markdown(result: dict[str, Any]) -> str:
    """The tables of this part."""
    rows = [
        "### Schedules",
        "",
        (
            "| schedules | registered in s | a second | without placement s | table MiB "
            "| indexes MiB | of it lanes |"
        ),
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    rows += [
        f"| {r['schedules']:,} | {r['seconds']:.1f} | {r['schedules'] / r['seconds']:,.0f} "
        f"| {r['seconds_unplaced']:.1f} | {r['table_mib']:.1f} | {r['index_mib']:.1f} "
        f"| {r['lanes_mib']:.1f} |"
        for r in result["sizes"]
    ]
    rows += [
        "",
        (
            f"A claim of nothing and a look for the next due time ({result['calls']:,} each, in "
            f"turns between the sizes); claims of 100 with {result['due']:,} due in 101 priorities:"
        ),
        "",
        (
            "| schedules | claim p50 ms | p99 | buffers | next due p50 ms | p99 | buffers "
            "| claim of 100 p50 ms | p99 | buffers |"
        ),
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    rows += [
        f"| {r['schedules']:,} | {_cost(r['idle']['claim'])} | {_cost(r['idle']['next_due'])} "
        f"| {_cost(r['loaded'])} |"
        for r in result["sizes"]
    ]
    first, last = result["sizes"][0], result["sizes"][-1]
    of = {name: _ratio(last["idle"][name], first["idle"][name]) for name in ("claim", "next_due")}
    of["claim of 100"] = _ratio(last["loaded"], first["loaded"])
    rows += [
        "",
        f"From {first['schedules']:,} to {last['schedules']:,} schedules, p50 and buffers: "
        + "; ".join(f"{name} {ratio}" for name, ratio in of.items())
        + ".",
        "",
        (
            "Firing: so many schedules of one second on top, one worker process of default "
            "settings. Lateness is from the plan to the handler, by the handler's own clock. "
            "Beside it somebody commits ten times a second: where a disk stalls, the slowest of "
            "these shows it."
        ),
        "",
        (
            "| firings/s | beside | p50 ms | p99 ms | slowest | expected | missed | doubled "
            "| CPU s, worker | CPU s, server | in s | MiB | claims | in vain | balance chore s "
            "| p99 beside chores | slowest commit ms |"
        ),
        "|---:" * 17 + "|",
    ]
    rows += [_fired(r["schedules"], r["firing"]) for r in result["sizes"]]
    rows.append(_fired(result["few"]["schedules"], result["few"]))
    return "\n".join(rows)


def _cost(cost: dict[str, Any]) -> str:
    return f"{cost['p50_ms']:.2f} | {cost['p99_ms']:.2f} | {cost['buffers']:,}"


def _ratio(large: dict[str, Any], small: dict[str, Any]) -> str:
    times = large["p50_ms"] / small["p50_ms"]
    return f"{times:.2f}x and {large['buffers'] / small['buffers']:.2f}x"


def _fired(size: int, f: dict[str, Any]) -> str:
    return (
        f"| {f['firings']:,} | {size:,} | {f['p50_ms']:.1f} | {f['p99_ms']:.1f} "
        f"| {f['slowest_ms']:.0f} | {f['expected']:,} | {f['missed']} | {f['doubled']} "
        f"| {f['worker_cpu']:.1f} | {f['server_cpu']:.1f} | {f['seconds']} "
        f"| {f['resident_mib']:.0f} "
        f"| {f['claims']:,} | {f['in_vain']:,} | {f['chores'].get('balance', 0):.1f} "
        f"| {f['p99_beside_chores_ms']:.1f} | {f['slowest_commit_ms']:.0f} |"
    )
