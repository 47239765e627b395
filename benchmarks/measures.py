"""What is measured, one function each: a contender in, figures out. `compare.py` says how often."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import reckoning
from arena import Contender, Failed, Process, server_cpu_seconds, wait_until
from common import meanwhile
from peers.stage import BEGAN, FIRED

WARM_UP = 5
"""The first jobs of a pickup measurement are sent, but not counted: caches fill."""

GRACE = 5
"""Seconds after the measured ones in which a late firing still counts as late, not as missed."""

START_LIMIT = 60
"""Seconds a worker or scheduler may take before its first sign of life."""


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    jobs: int = 50_000
    drain_seconds: float = 8
    singles: int = 2_000
    single_seconds: float = 2
    pickups: int = 100
    load_seconds: float = 2
    idle: int = 10_000
    firing: int = 200
    firing_seconds: int = 20
    sleepers: int = 50
    crash_seconds: float = 90


QUICK = Sizes(
    jobs=2_000,
    drain_seconds=5,
    singles=200,
    single_seconds=1,
    pickups=25,
    load_seconds=1,
    idle=500,
    firing=20,
    firing_seconds=4,
    sleepers=10,
    crash_seconds=20,
)


def drain(contender: Contender, sizes: Sizes) -> dict[str, float]:
    """Bulk enqueue, then one worker process that works it off; its memory meanwhile."""
    log = _new_log(contender, "drain")
    contender.call("setup")
    filled = contender.call("bulk", n=sizes.jobs, limit=sizes.drain_seconds, within=120)
    contender.analyze()
    limit = sizes.drain_seconds + START_LIMIT
    with (
        contender.start("watch", log=log, n=filled["jobs"], limit=limit) as watch,
        _worker(contender, log) as worker,
        _peak_memory(worker) as peak,
    ):
        _await_sign(worker, lambda: len(reckoning.records(log)) > 1)
        wait_until(lambda: watch.ended or worker.ended, sizes.drain_seconds, every=0.1)
        done = watch.answer(1)["done"] if watch.ended else None
    return {
        "bulk": filled["jobs"] / filled["seconds"],
        "drain": reckoning.drain_rate(reckoning.records(log), done),
        "drain_mb": max(peak),
    }


def single(contender: Contender, sizes: Sizes) -> dict[str, float]:
    """One job after another, each safe before the next."""
    contender.call("setup")
    sent = contender.call("single", n=sizes.singles, limit=sizes.single_seconds)
    return {"single": sent["jobs"] / sent["seconds"]}


def pickup(contender: Contender, sizes: Sizes) -> dict[str, Any]:
    """20 jobs a second from another process to a worker that has nothing else to do."""
    log = _new_log(contender, "pickup")
    contender.call("setup")
    n = sizes.pickups + WARM_UP
    with _worker(contender, log) as worker:
        _await_ready(worker, log)
        idle = worker.resident_mb()
        contender.call("pace", rate=20, seconds=n / 20, singly=True)
        wait_until(lambda: len(reckoning.records(log)) > n, 5)
    delays = reckoning.pickups_ms(reckoning.records(log), skip=WARM_UP)
    if not delays:
        raise Failed("no job was picked up")
    return {"pickup_ms": delays, "idle_mb": idle}


def load(contender: Contender, sizes: Sizes, *, rate: float, single_rate: float) -> dict[str, Any]:
    """Jobs at half of the rate at which it drained in this round; when were they picked up?

    One by one where that can keep up, else what has come due every 10 ms in one call.
    """
    log = _new_log(contender, "load")
    contender.call("setup")
    with _worker(contender, log) as worker:
        _await_ready(worker, log)
        singly = rate <= single_rate / 2
        sent = contender.call("pace", rate=rate, seconds=sizes.load_seconds, singly=singly)
        wait_until(lambda: len(reckoning.records(log)) > sent["jobs"], 10)
    first = int(rate * sizes.load_seconds * 0.1)
    delays = reckoning.pickups_ms(reckoning.records(log), skip=first)
    if not delays:
        raise Failed("no job was picked up")
    return {
        "load_ms": {
            "p50": reckoning.percentile(delays, 0.5),
            "p99": reckoning.percentile(delays, 0.99),
        },
        "load_rate": sent["jobs"] / sent["seconds"],
        "load_left": sent["jobs"] - first - len(delays),
    }


def recurring(contender: Contender, sizes: Sizes) -> dict[str, Any]:
    """Many schedules that are not due, and some that are due every second."""
    log = _new_log(contender, "recurring")
    contender.call("setup")
    many = {"idle": sizes.idle, "firing": sizes.firing}
    contender.call("schedule_many", within=300, **many)
    with contender.start("scheduler", log=log, **many) as scheduler:
        _await_sign(scheduler, lambda: _first_firing(log) is not None)
        begin = math.ceil(_first_firing(log) or 0) + 2
        time.sleep(max(0.0, begin - time.time()))
        used, server = scheduler.cpu_seconds(), server_cpu_seconds(contender.server_pid)
        time.sleep(max(0.0, begin + sizes.firing_seconds - time.time()))
        used = scheduler.cpu_seconds() - used
        server = server_cpu_seconds(contender.server_pid) - server
        time.sleep(GRACE)
        memory = scheduler.resident_mb()
    found = reckoning.recurring(
        reckoning.records(log),
        contender.about["rhythm"],
        sizes.firing,
        begin,
        sizes.firing_seconds,
    )
    # Of one that missed most, those that ran say nothing about how late it is.
    told = found.lateness if found.missed <= found.expected / 2 else []
    return {
        "recurring": {
            "p50_ms": reckoning.percentile(told, 0.5) * 1000,
            "p99_ms": reckoning.percentile(told, 0.99) * 1000,
            "expected": found.expected,
            "missed": found.missed,
            "doubled": found.doubled,
            "cpu_s": used,
            "server_cpu_s": server,
            "resident_mb": memory,
        }
    }


def crashes(
    contenders: list[Contender], sizes: Sizes, tell: Callable[[str], None]
) -> Iterator[tuple[Contender, dict[str, Any] | Failed]]:
    """Kill a worker amid its jobs and start it again; all contenders at once, as it is waiting."""
    with ExitStack() as stack:
        waiting: list[tuple[Contender, Path, float]] = []
        for contender in contenders:
            tell(contender.name)
            log = _new_log(contender, "crash")
            try:
                killed = _kill_amid(contender, sizes, log)
                restarted = _worker(contender, log, {"STAGE_NAP": "0.01"})
                stack.enter_context(restarted)
            except Exception as failure:
                yield contender, Failed(str(failure))
                continue
            waiting.append((contender, log, killed))
        tell("waiting")
        wait_until(lambda: _all_back(waiting, sizes.crash_seconds), sizes.crash_seconds + 30)
        for contender, log, killed in waiting:
            found = reckoning.crash(reckoning.records(log), killed)
            after = [seconds for seconds in found.after if seconds <= sizes.crash_seconds]
            yield (
                contender,
                {
                    "crash": {
                        "running": found.running,
                        "rerun": len(after),
                        "lost": found.running - len(after),
                        "last_s": max(after, default=math.nan),
                        "median_s": reckoning.median(after),
                    }
                },
            )


def _kill_amid(contender: Contender, sizes: Sizes, log: Path) -> float:
    contender.call("setup")
    contender.call("sleepers", n=sizes.sleepers, seconds=600.0)
    with _worker(contender, log, concurrency=sizes.sleepers) as worker:
        _await_sign(worker, lambda: _began(log) > 0)
        wait_until(lambda: _began(log) >= sizes.sleepers, 20)
        time.sleep(1)
        worker.kill()
        return time.monotonic()


def _all_back(waiting: list[tuple[Contender, Path, float]], limit: float) -> bool:
    now = time.monotonic()
    return all(
        now - killed > limit or reckoning.crash(reckoning.records(log), killed).lost == 0
        for _, log, killed in waiting
    )


# ---------------------------------------------------------------- parts


def _new_log(contender: Contender, measure: str) -> Path:
    log = contender.home / f"{measure}.log"
    log.unlink(missing_ok=True)
    return log


def _worker(
    contender: Contender,
    log: Path,
    extra: dict[str, str] | None = None,
    concurrency: int | None = None,
) -> Process:
    return contender.start("worker", log=log, extra=extra, concurrency=concurrency)


def _await_ready(worker: Process, log: Path) -> None:
    """Ready, and quiet again after its start."""
    _await_sign(worker, lambda: reckoning.ready_at(reckoning.records(log)) is not None)
    time.sleep(1)


def _await_sign(process: Process, sign: Callable[[], bool]) -> None:
    if not wait_until(lambda: process.ended or sign(), START_LIMIT):
        raise Failed(f"no sign of life within {START_LIMIT} s")
    if process.ended:
        raise Failed(f"ended by itself: {process.complaint()}")


def _first_firing(log: Path) -> float | None:
    return next((r.wall for r in reckoning.records(log) if r.kind == FIRED), None)


def _began(log: Path) -> int:
    return sum(r.kind == BEGAN for r in reckoning.records(log))


@contextmanager
def _peak_memory(process: Process) -> Iterator[list[float]]:
    """The memory that it had, looked at five times a second."""
    seen = [0.0]
    with meanwhile(0.2, lambda: seen.append(process.resident_mb())):
        yield seen
