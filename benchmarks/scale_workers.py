"""One, two, four, eight worker processes on one database: how fast they drain it together, how busy
the cores are meanwhile, and whether the processes stand in each other's way. Once with jobs that do
nothing, where the cores are the limit, and once with jobs that wait for something, as most jobs do:
there the slots are."""

import statistics
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import psycopg
from common import empty
from scale_app import WAITS_SECONDS
from scale_fleet import Fleet, conflicts, server_cpu_seconds, waits_sampled
from scale_report import held_against, in_turn

from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.store.store import Store

DRAIN_SECONDS = 600
SETTLE_SECONDS = 3.0
"""For what a worker does once when it starts: chores, first connections."""
WARM_JOBS = 1000
"""No-op jobs that each process runs before: statements are prepared, memory is at hand."""
LOOK_SECONDS = 0.25
"""Between two looks whether jobs are left; when the last one ended is told by its own row."""

_LEFT = """
SELECT EXISTS (SELECT FROM evenbeat.jobs
               WHERE queue = 'default' AND task = %(task)s
                 AND status IN ('pending', 'scheduled') AND next_run_at IS NOT NULL)
    OR EXISTS (SELECT FROM evenbeat.jobs WHERE task = %(task)s AND status = 'running')
"""
# A run that its worker handed back before it began is no run: it is counted apart.
_RUNS = """
SELECT count(*) FILTER (WHERE status = 'completed'),
       count(DISTINCT job_id) FILTER (WHERE status = 'completed'),
       count(*) FILTER (WHERE status <> 'completed'),
       max(completed_at)
FROM evenbeat.executions
WHERE started_at >= %(begun)s
"""


def measure(
    store: Store, jobs: int, rounds: int, workers: Sequence[int], waiting_jobs: int
) -> dict[str, Any]:
    """Drain `jobs` no-op jobs and `waiting_jobs` that wait by each number of processes, round by
    round."""
    return {
        "jobs": jobs,
        "rounds": rounds,
        "processes": _drains(store, "noop", jobs, rounds, workers),
        "waiting": {
            "jobs": waiting_jobs,
            "processes": _drains(store, "wait", waiting_jobs, rounds, workers),
        },
    }


def _drains(
    store: Store, task: str, jobs: int, rounds: int, workers: Sequence[int]
) -> list[dict[str, Any]]:
    drains: dict[int, list[dict[str, Any]]] = {number: [] for number in workers}
    order = in_turn(workers)
    for n in range(rounds):
        # To and fro, so that a machine that grows slower or faster favours none.
        for number in order if n % 2 == 0 else reversed(order):
            drained = drain(store, number, jobs, task)
            drains[number].append(drained)
            print(
                f"  {task}, round {n + 1}, {number} processes: {drained['rate']:,.0f} jobs/s",
                flush=True,
            )
    ones = [drained["rate"] for drained in drains[workers[0]]]
    return [_summary(number, drained, ones) for number, drained in drains.items()]


def drain(store: Store, number: int, jobs: int, task: str) -> dict[str, Any]:
    """One drain: the workers are up, warm and idle when the queue opens."""
    url = store.database.url
    empty(store)
    with Fleet(url, number) as fleet:
        store.add_many([NewJob(JobSpec("noop")) for _ in range(WARM_JOBS * number)])
        await_drained(url, "noop")
        empty(store)  # what more processes did to warm up must not burden their drain
        store.control.pause_queue("default")
        store.add_many([NewJob(JobSpec(task)) for _ in range(jobs)])
        time.sleep(SETTLE_SECONDS)
        quarrels, asked = conflicts(url), fleet.told()
        worker_cpu, server_cpu = fleet.cpu_seconds(), server_cpu_seconds(url)
        with waits_sampled(url) as waits:
            begun = store.clock()
            store.control.resume_queue("default")
            await_drained(url, task)
        worker_cpu = fleet.cpu_seconds() - worker_cpu
        server_cpu = server_cpu_seconds(url) - server_cpu
        claims = fleet.told()
        resident = fleet.resident_mib()
    with psycopg.connect(url) as connection:
        counted = connection.execute(_RUNS, {"begun": begun}).fetchall()
    runs, ran, handed_back, ended = counted[0]
    assert ran == jobs, f"{jobs - ran} of {jobs} jobs have not run"
    seconds = (ended - begun).total_seconds()
    return {
        "rate": jobs / seconds,
        "seconds": seconds,
        "doubled": runs - ran,
        "handed_back": handed_back,
        "worker_cpu": worker_cpu,
        "server_cpu": server_cpu,
        "claims": claims.asked - asked.asked,
        "in_vain": claims.in_vain - asked.in_vain,
        "waits": dict(waits),
        "deadlocks": conflicts(url).deadlocks - quarrels.deadlocks,
        "resident_mib": resident,
        "complaints": fleet.complaints(),
    }


def await_drained(url: str, task: str) -> None:
    """Until no job of the task waits or runs."""
    deadline = time.monotonic() + DRAIN_SECONDS
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET enable_seqscan = off")
        while connection.execute(_LEFT, {"task": task}).fetchall()[0][0]:
            assert time.monotonic() < deadline, f"Jobs are left after {DRAIN_SECONDS} s."
            time.sleep(LOOK_SECONDS)


def markdown(result: dict[str, Any]) -> str:
    """The tables of this part."""
    rounds, waiting = result["rounds"], result["waiting"]
    return "\n".join(
        [
            (
                f"### Worker processes: {result['jobs']:,} no-op jobs, history kept, medians of "
                f"{rounds} interleaved rounds"
            ),
            "",
            *_table(result["processes"]),
            "",
            "What active connections waited for, connections at a time on average:",
            "",
            *[f"- {r['number']}: {_waited(r['waits'])}" for r in result["processes"]],
            "",
            (
                f"### The same with {waiting['jobs']:,} jobs that wait {WAITS_SECONDS * 1000:g} ms "
                "each, 100 at a time in a process"
            ),
            "",
            *_table(waiting["processes"]),
        ]
    )


def _table(rows: list[dict[str, Any]]) -> list[str]:
    return [
        (
            "| processes | jobs/s | to one | CPU s, workers | CPU s, server | cores busy | claims "
            "| in vain | jobs a claim | deadlocks | doubled | handed back | MiB each |"
        ),
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
        *[
            f"| {r['number']} | {r['rate']:,.0f} | {r['ratio']:.2f} | {r['worker_cpu']:.1f} "
            f"| {r['server_cpu']:.1f} | {r['cores']:.2f} | {r['claims']:,.0f} "
            f"| {r['in_vain']:,.0f} | {r['batch']:,.0f} | {r['deadlocks']} | {r['doubled']} "
            f"| {r['handed_back']} | {r['resident_mib']:.0f} |"
            for r in rows
        ],
    ]


def _summary(number: int, drains: list[dict[str, Any]], ones: list[float]) -> dict[str, Any]:
    def middle(name: str) -> float:
        return statistics.median(drained[name] for drained in drains)

    waits: Counter[str] = Counter()
    for drained in drains:
        waits.update(drained["waits"])
    looks = waits.pop("(looks)", 1)
    jobs = middle("rate") * middle("seconds")
    rates = [drained["rate"] for drained in drains]
    return {
        "number": number,
        "rate": middle("rate"),
        "rates": rates,
        "ratio": statistics.median(held_against(rates, ones)),
        "worker_cpu": middle("worker_cpu"),
        "server_cpu": middle("server_cpu"),
        "cores": (middle("worker_cpu") + middle("server_cpu")) / middle("seconds"),
        "claims": middle("claims"),
        "in_vain": middle("in_vain"),
        "batch": jobs / max(1, middle("claims") - middle("in_vain")),
        "waits": {name: count / looks for name, count in waits.most_common()},
        "deadlocks": sum(drained["deadlocks"] for drained in drains),
        "doubled": sum(drained["doubled"] for drained in drains),
        "handed_back": sum(drained["handed_back"] for drained in drains),
        "resident_mib": max(drained["resident_mib"] for drained in drains),
        "complaints": [line for drained in drains for line in drained["complaints"]][:20],
    }


def _waited(waits: dict[str, float]) -> str:
    return ", ".join(f"{name} {count:.2f}" for name, count in waits.items() if count >= 0.005)
