"""What runs inside a contender's virtual environment: the protocol of an adapter, and its stage.

    <venv>/bin/python benchmarks/peers/stage.py <adapter> <command> '<json arguments>'

Standard library only. The last line on stdout is the answer as JSON. `compare.py` is the caller.

An adapter is one module `peers/<name>.py` (imported as `peers.<name>`, so that a handler has a
dotted path that every child process can import, and no file hides the package it adapts). It has

    NAME            short and unique: the file's name without a trailing underscore
    TITLE           as the table shows it
    PACKAGES        distributions whose versions the report shows
    REQUIREMENTS    what pip installs, pinned
    NEEDS           "postgres", "redis" or "none": what `url` points to. "none" gets a directory
    DURABLE         bool: is a job safe on disk when the call that enqueues it returns?
    NOTE            one line about that, and about the settings chosen for `worker`
    RHYTHM          "planned" (the handler is told for when it was planned), "seconds" (it fires on
                    whole seconds) or "phase" (a rhythm of its own, first run plus k seconds)
    UNSUPPORTED     {measure: why it cannot be measured}; measures: bulk single drain pickup load
                    recurring crash memory

and, each of them a plain or an `async def` function:

    setup(url)                      create the schema, or empty it: as on the first day
    left(url)                       how many jobs are not finished yet; called again and again.
                                    Leave it out where nothing can tell: the last run counts then
    worker(url, concurrency)        one worker process in the foreground until it is killed. None:
                                    what the documents recommend for throughput; a number: allow so
                                    many runs at once. Calls `stage.ready()` when it takes jobs
    schedule_many(url, idle, firing)  keep `idle` schedules that are not due for months, and
                                    `firing` numbered from 0 that are due every second
    scheduler(url, idle, firing)    everything that must run for these to run, in the foreground.
                                    Registers them itself where a schedule lives in code only

    class Client(url)               open() once, then
        send(i, sent_at)            enqueue one job `ran`, safely, before it returns
        send_many(numbers, sent_at) enqueue many by the best documented way; may be left out
        send_at_once(numbers)       async: a call of its own for each job, all of them at once; only
                                    needed for `at_once.py`
        send_sleeps(i, seconds)     enqueue one job `sleeps`
        close()

The handlers are the peer's own, as small as can be, and tell what happened:

    ran(i, sent_at):      stage.ran(i, sent_at)
    sleeps(i, seconds):   time.sleep(stage.began(i, seconds))     # or await asyncio.sleep(...)
    fires(i):             stage.fired(i, planned)    # planned: seconds since 1970, or None

Each call appends one record of fixed size to the file that STAGE_LOG names, with one write. The
steady clock is the same in all processes of a machine; all figures come from these records.
"""

import asyncio
import importlib
import inspect
import json
import math
import os
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

RECORD = struct.Struct("<qqdddq")  # kind, number, value, steady clock, wall clock, pid
READY, RAN, BEGAN, FIRED = range(4)

_log = -1


# ---------------------------------------------------------------- what handlers tell


def ready() -> None:
    """The worker takes jobs from now on."""
    _tell(READY, 0, math.nan)


def ran(i: int, sent_at: float) -> None:
    """Job `i`, sent at `sent_at` by the steady clock, runs now."""
    _tell(RAN, i, sent_at)


def began(i: int, seconds: float) -> float:
    """Job `i` begins; how long it shall sleep. Not for long where the worker was restarted."""
    _tell(BEGAN, i, seconds)
    return float(os.environ.get("STAGE_NAP", seconds))


def fired(i: int, planned: float | None = None) -> None:
    """Schedule `i` runs now; `planned` is the second since 1970 that it was due."""
    _tell(FIRED, i, math.nan if planned is None else planned)


def _tell(kind: int, i: int, value: float) -> None:
    global _log  # noqa: PLW0603  one descriptor a process; a forked child shares it
    if _log < 0:
        _log = os.open(os.environ["STAGE_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(_log, RECORD.pack(kind, i, value, time.monotonic(), time.time(), os.getpid()))


# ---------------------------------------------------------------- what adapters may use


def spawn(adapter: str, command: str, **arguments: object) -> subprocess.Popen[bytes]:
    """One more process of this contender, for one that is made of several."""
    line = [sys.executable, __file__, adapter, command, json.dumps(arguments)]
    return subprocess.Popen(line, stdout=subprocess.DEVNULL)


def months_away() -> time.struct_time:
    """A day about five months from now, for schedules that are not due."""
    return time.gmtime(time.time() + 150 * 86_400)


# ---------------------------------------------------------------- commands


def about(peer: Any) -> dict[str, Any]:
    """What the report says of it, with the versions that are really installed."""
    from importlib.metadata import version  # noqa: PLC0415  not worth a worker's start

    return {
        "title": peer.TITLE,
        "durable": peer.DURABLE,
        "note": peer.NOTE,
        "rhythm": getattr(peer, "RHYTHM", "phase"),
        "unsupported": getattr(peer, "UNSUPPORTED", {}),
        "versions": {name: version(name) for name in peer.PACKAGES},
        "python": sys.version.split()[0],
    }


def setup(peer: Any, url: str) -> dict[str, Any]:
    """Empty it."""
    _call(peer.setup, url)
    return {}


def bulk(peer: Any, url: str, n: int, limit: float) -> dict[str, Any]:
    """Enqueue many at once; the seconds that it took on an open connection.

    One by one, where there is no other way, for at most `limit` seconds.
    """
    client = peer.Client(url)

    async def enqueue() -> dict[str, Any]:
        await _done(client.open())
        begun = time.perf_counter()
        jobs = await _many(client, list(range(n)), 0.0, limit)
        took = time.perf_counter() - begun
        await _done(client.close())
        return {"seconds": took, "jobs": jobs}

    return _run(enqueue(), client.send)


def single(peer: Any, url: str, n: int, limit: float) -> dict[str, Any]:
    """Enqueue one after another for at most `limit` seconds; how many, in which time."""
    client = peer.Client(url)

    async def enqueue() -> dict[str, Any]:
        await _done(client.open())
        await _done(client.send(-1, 0.0))
        begun, i = time.perf_counter(), 0
        for i in range(n):
            await _done(client.send(i, 0.0))
            if time.perf_counter() - begun > limit:
                break
        took = time.perf_counter() - begun
        await _done(client.close())
        return {"seconds": took, "jobs": i + 1}

    return _run(enqueue(), client.send)


def at_once(peer: Any, url: str, n: int) -> dict[str, Any]:
    """Enqueue jobs from as many coroutines; how long it took on open connections, and how much CPU
    time of this process, which says more on a busy machine."""

    async def enqueue() -> dict[str, Any]:
        client = peer.Client(url)
        await _done(client.open())
        await client.send_at_once(range(100))
        begun, used = time.perf_counter(), time.process_time()
        await client.send_at_once(range(n))
        took, used = time.perf_counter() - begun, time.process_time() - used
        await _done(client.close())
        return {"seconds": took, "cpu_seconds": used}

    return asyncio.run(enqueue())


def pace(peer: Any, url: str, rate: float, seconds: float, singly: bool) -> dict[str, Any]:
    """Enqueue at a rate; each job carries when it was sent. How many were sent, in which time.

    Singly, or whatever has come due every 10 ms in one call, where one by one could not keep up.
    """
    client = peer.Client(url)
    nap = asyncio.sleep if inspect.iscoroutinefunction(client.send) else _sleep

    async def enqueue() -> dict[str, Any]:
        await _done(client.open())
        begun, i = time.monotonic(), 0
        while (now := time.monotonic()) < begun + seconds:
            due = int((now - begun) * rate) + 1 - i
            if due > 0 and singly:
                await _done(client.send(i, time.monotonic()))
                i += 1
            elif due > 0:
                await _many(client, list(range(i, i + due)), time.monotonic())
                i += due
            wait = begun + i / rate - time.monotonic()
            await nap(max(0.0, wait if singly else max(wait, 0.01)))
        took = time.monotonic() - begun
        await _done(client.close())
        return {"seconds": took, "jobs": i}

    return _run(enqueue(), client.send)


def sleepers(peer: Any, url: str, n: int, seconds: float) -> dict[str, Any]:
    """Enqueue jobs that sleep."""
    client = peer.Client(url)

    async def enqueue() -> dict[str, Any]:
        await _done(client.open())
        for i in range(n):
            await _done(client.send_sleeps(i, seconds))
        await _done(client.close())
        return {"jobs": n}

    return _run(enqueue(), client.send)


def watch(peer: Any, url: str, n: int, limit: float) -> dict[str, Any]:
    """Wait until `n` jobs ran and none is left; the steady clock then, or None past the limit."""
    log, begun = Path(os.environ["STAGE_LOG"]), time.monotonic()
    left = getattr(peer, "left", None)
    nap = asyncio.sleep if inspect.iscoroutinefunction(left) else _sleep

    async def look() -> dict[str, Any]:
        while not log.exists() or log.stat().st_size < (n + 1) * RECORD.size:
            if time.monotonic() > begun + limit:
                return {"done": None}
            await nap(0.01)
        while left is not None and await _done(left(url)):
            if time.monotonic() > begun + limit:
                return {"done": None}
            await nap(0.01)
        return {"done": None if left is None else time.monotonic()}

    return _run(look(), left)


def worker(peer: Any, url: str, concurrency: int | None) -> dict[str, Any]:
    """A worker process, until it is killed."""
    _call(peer.worker, url, concurrency)
    return {}


def schedule_many(peer: Any, url: str, idle: int, firing: int) -> dict[str, Any]:
    """Register schedules."""
    begun = time.perf_counter()
    _call(peer.schedule_many, url, idle, firing)
    return {"seconds": time.perf_counter() - begun}


def scheduler(peer: Any, url: str, idle: int, firing: int) -> dict[str, Any]:
    """Run them, until it is killed."""
    _call(peer.scheduler, url, idle, firing)
    return {}


COMMANDS = (
    about,
    setup,
    bulk,
    single,
    at_once,
    pace,
    sleepers,
    watch,
    worker,
    schedule_many,
    scheduler,
)


# ---------------------------------------------------------------- plain or async, called alike


def _call(function: Any, *arguments: object) -> Any:
    if inspect.iscoroutinefunction(function):
        return asyncio.run(function(*arguments))
    return function(*arguments)


def _run(steps: Any, like: Any) -> Any:
    """Run our own steps on an event loop only where the peer's are async.

    A plain peer may start a loop of its own, which a running one would forbid. Steps of such a
    peer never wait for anything, so they can be driven by hand.
    """
    if inspect.iscoroutinefunction(like):
        return asyncio.run(steps)
    try:
        steps.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("A contender mixes plain and async functions in its Client.")


async def _done(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def _many(client: Any, numbers: list[int], sent_at: float, limit: float = math.inf) -> int:
    if hasattr(client, "send_many"):
        await _done(client.send_many(numbers, sent_at))
        return len(numbers)
    begun = time.perf_counter()
    for sent, i in enumerate(numbers):
        if time.perf_counter() - begun > limit:
            return sent
        await _done(client.send(i, sent_at))
    return len(numbers)


async def _sleep(seconds: float) -> None:
    time.sleep(seconds)  # there is no loop: see `_run`


def main(adapter: str, command: str, arguments: str = "{}") -> None:
    """Run one command of one adapter."""
    here = Path(__file__).resolve().parent
    sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != here]
    sys.path.append(str(here.parent))
    os.environ["PYTHONPATH"] = str(here.parent)
    stage = importlib.import_module("peers.stage")
    sys.modules["stage"] = stage
    peer = importlib.import_module(f"peers.{adapter}")
    run = {function.__name__: function for function in stage.COMMANDS}[command]
    print(json.dumps(run(peer, **json.loads(arguments))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
