"""Schedules of one second beside many that wait: how late they fire, whether all do, each once."""

import statistics
import time
from collections import Counter, defaultdict
from datetime import timedelta
from typing import Any

import psycopg
from scale_fleet import Call, Fleet, commits_timed, percentile, server_cpu_seconds

from evenbeat import Evenbeat
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.schedule import Interval
from evenbeat.store.store import Store

WARM_UP_SECONDS = 4.0
"""For the first connections and what has come due meanwhile."""

CHORES_SECONDS = 180
AT_START = "balance"
"""The chore that takes longest; workers do their chores when they start, and every few minutes."""

SECOND = timedelta(seconds=1)


def firing(store: Store, firings: int, seconds: int) -> dict[str, Any]:
    """Let one worker process fire so many schedules a second, placed as any others are."""
    url = store.database.url
    jobs = [NewJob(JobSpec("tick", schedule=Interval(SECOND))) for _ in range(firings)]
    with Evenbeat(url) as app:
        app.enqueue_many(jobs)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DELETE FROM evenbeat.chores")  # due at once, as after a long pause
    with Fleet(url, 1) as fleet:
        time.sleep(WARM_UP_SECONDS)
        early = time.time()
        await_chores(fleet)
        time.sleep(1)
        worker, server, before = fleet.cpu_seconds(), server_cpu_seconds(url), fleet.told()
        with commits_timed(url) as commits:
            begun = time.time()
            time.sleep(seconds)
        worker = fleet.cpu_seconds() - worker
        server = server_cpu_seconds(url) - server
        after, resident = fleet.told(), fleet.resident_mib()
        time.sleep(1.5)
        fleet.told()  # writes down the last calls too
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DELETE FROM evenbeat.jobs WHERE task = 'tick'")
        connection.execute("TRUNCATE evenbeat.executions")
        connection.execute("VACUUM ANALYZE evenbeat.jobs")
    calls = fleet.calls()
    counted = [call for call in calls if begun <= call.plan < begun + seconds]
    late = [(call.began - call.plan) * 1000 for call in calls if early <= call.plan < begun]
    return {
        "firings": firings,
        "seconds": seconds,
        **lateness(counted, firings * seconds),
        "worker_cpu": worker,
        "server_cpu": server,
        "resident_mib": resident,
        "claims": after.asked - before.asked,
        "in_vain": after.in_vain - before.in_vain,
        "slowest_commit_ms": max(commits, default=float("nan")),
        "chores": {name: round(took, 3) for name, took in after.chores.items()},
        "p99_beside_chores_ms": percentile(late, 0.99),
        "complaints": fleet.complaints()[:20],
    }


def await_chores(fleet: Fleet) -> None:
    """Until the worker has done what it does every few minutes, the first time at its start."""
    deadline = time.monotonic() + CHORES_SECONDS
    while AT_START not in fleet.told().chores and time.monotonic() < deadline:
        time.sleep(0.5)


def lateness(calls: list[Call], expected: int) -> dict[str, Any]:
    """How late the calls were, and how many plans were called never or more than once."""
    late = [(call.began - call.plan) * 1000 for call in calls]
    plans = Counter((call.job, call.plan) for call in calls)
    seconds: defaultdict[int, list[float]] = defaultdict(list)
    for call, ms in zip(calls, late, strict=True):
        seconds[int(call.plan)].append(ms)
    return {
        "p50_ms": statistics.median(late) if late else float("nan"),
        "p99_ms": percentile(late, 0.99),
        "slowest_ms": max(late, default=float("nan")),
        "p50_of_each_second_ms": [statistics.median(seconds[second]) for second in sorted(seconds)],
        "expected": expected,
        "missed": expected - len(plans),
        "doubled": len(calls) - len(plans),
    }
