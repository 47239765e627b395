"""A worker in a process of its own, with handlers that sleep, block, die and misbehave.

    EVENBEAT_DATABASE_URL=… CHAOS_LEDGER=… python tests/chaos/worker_process.py

Works until SIGTERM, then stops with grace. Whatever a handler really does it notes in the ledger,
a file that all workers append to: what reached the page cache survives `kill -9`.
"""

import asyncio
import ctypes
import itertools
import json
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from evenbeat import Context, Evenbeat
from evenbeat.domain.job import JobSpec
from evenbeat.engine import clock
from evenbeat.engine.claimer import HintListener
from evenbeat.errors import Fail, Retry

app = Evenbeat(name="chaos")


# -- the ledger ----------------------------------------------------------------------------------


def note(mark: str, ctx: Context, **details: Any) -> None:
    """One line, whole or not at all: a short O_APPEND write is atomic."""
    entry = {
        "mark": mark,
        "job": str(ctx.job.id),
        "token": str(ctx.job.lock_token),
        "pid": os.getpid(),
        "at": time.clock_gettime_ns(time.CLOCK_MONOTONIC) / 1e9,  # one clock for all processes
        **details,
    }
    ledger = os.open(os.environ["CHAOS_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(ledger, (json.dumps(entry) + "\n").encode())
    finally:
        os.close(ledger)


@contextmanager
def noted(ctx: Context) -> Iterator[None]:
    """Start and end of what really happened; one that was broken off has not `returned`."""
    note("start", ctx)
    returned = False
    try:
        yield
        returned = True
    finally:
        note("end", ctx, returned=returned)


# -- handlers that work --------------------------------------------------------------------------


@app.task
async def nap(ctx: Context, seconds: float = 0.0) -> None:
    with noted(ctx):
        await asyncio.sleep(seconds)


@app.task
def doze(ctx: Context, seconds: float = 0.0) -> None:
    with noted(ctx):
        time.sleep(seconds)


@app.task
async def block_the_loop(ctx: Context, seconds: float) -> str:
    with noted(ctx):
        time.sleep(seconds)
    return "held"


@app.task
async def tick(ctx: Context) -> None:
    note("tick", ctx, plan=ctx.plan_time.timestamp(), wall=time.time())


# -- durable steps -------------------------------------------------------------------------------


def effect(ctx: Context, number: int) -> int:
    note("effect", ctx, number=number)
    return number


def hold(ctx: Context, step: int, done_by: Any) -> None:
    """After a step that this very run has done, there is time to kill its worker."""
    if done_by == str(ctx.execution_id):
        note("done", ctx, step=step)
        time.sleep(3600)


def five_steps(ctx: Context) -> int:
    total = 0
    for number in range(1, 6):
        result = ctx.step(f"step {number}", lambda n=number: [effect(ctx, n), ctx.execution_id])
        total += result[0]
        hold(ctx, number, result[1])
    return total


app.task(five_steps, name="five_steps")


@app.task(isolate=True)
def five_steps_alone(ctx: Context) -> int:
    return five_steps(ctx)


@app.task
async def five_steps_on_loop(ctx: Context) -> int:
    async def act(number: int) -> list[Any]:
        return [effect(ctx, number), ctx.execution_id]

    total = 0
    for number in range(1, 6):
        result = await ctx.step(f"step {number}", act, number)
        total += result[0]
        await asyncio.to_thread(hold, ctx, number, result[1])
    return total


# -- batches -------------------------------------------------------------------------------------


@app.task
async def part(ctx: Context, number: int, seconds: float = 0.0) -> int:
    note("part", ctx)
    await asyncio.sleep(seconds)
    return number


@app.task
def whole(ctx: Context) -> int:
    results = list(ctx.batch.results())
    note("whole", ctx, results=len(results), total=sum(results), counts=ctx.batch.counts())
    return sum(results)


# -- handlers that are stopped -------------------------------------------------------------------


@app.task
async def nap_until_cancelled(ctx: Context) -> str:
    note("start", ctx)
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        note("cancelled", ctx)
        raise
    return "slept it all"


@app.task
def doze_until_cancelled(ctx: Context) -> str:
    note("start", ctx)
    deadline = time.monotonic() + 60
    while not ctx.cancelled and time.monotonic() < deadline:
        time.sleep(0.01)
    note("cancelled", ctx)
    return "thrown away"


DAEMON = """
import os, signal, time
for _ in range(2):
    if os.fork():
        os._exit(0)
    os.setsid()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), flush=True)
time.sleep(600)
"""


@app.task(isolate=True)
def family(ctx: Context, stubborn: bool = False, seconds: float = 60) -> None:
    """An isolated run with a child, a grandchild and a daemon; `stubborn` ones ignore SIGTERM."""
    if stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    shell = "trap '' TERM; sleep 600 & echo $!; wait" if stubborn else "sleep 600 & echo $!; wait"
    child = subprocess.Popen(["/bin/sh", "-c", shell], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    grandchild = int(child.stdout.readline())
    # It has left the session and the group, and lost its parents.
    daemon = subprocess.Popen([sys.executable, "-c", DAEMON], stdout=subprocess.PIPE, text=True)
    assert daemon.stdout is not None
    pids = [os.getpid(), child.pid, grandchild, int(daemon.stdout.readline())]
    note("start", ctx, pids=pids)
    time.sleep(seconds)


@app.task(isolate=True)
def solitude(ctx: Context, seconds: float = 0.0) -> str:
    with noted(ctx):
        time.sleep(seconds)
    return "alone"


@app.task(isolate=True)
def die_once(ctx: Context, how: str) -> str:
    """End this very process on the first try, come through on the second."""
    note("start", ctx)
    if ctx.attempt > 1:
        return "came through"
    if how == "sigkill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exit":
        os._exit(3)
    if how == "segfault":
        ctypes.string_at(0)
    if how == "fork":  # a fork keeps every pipe of its parent open
        fork = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
        fork.start()
        note("fork", ctx, pids=[fork.pid])
        os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError(how)


# -- handlers that misbehave ---------------------------------------------------------------------


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")

    __repr__ = __str__


class Rude(BaseException):
    pass


class Hostile:
    """A result that fights back when it is looked at."""

    def __getattribute__(self, name: str) -> Any:
        raise Rude(name)


def misbehave(how: str) -> Any:
    """Raise or return what no well-bred handler would."""
    raised: dict[str, BaseException] = {
        "system_exit": SystemExit(3),
        "keyboard_interrupt": KeyboardInterrupt(),
        "generator_exit": GeneratorExit(),
        "cancelled": asyncio.CancelledError(),
        "stop_iteration": StopIteration(1),
        "base_exception": Rude("rude"),
        "unspeakable": Unspeakable(),
        "nul": ValueError("a\x00b"),
        "surrogate": ValueError("a\ud800b"),
        "huge_message": ValueError("x" * 50_000_000),
        "group": BaseExceptionGroup("many", [SystemExit(1), Unspeakable()]),
        "bad_retry": Retry(after="a while"),
        "endless_retry": Retry(after=float("inf")),
        "fail": Fail("enough"),
    }
    if how in raised:
        raise raised[how]
    cycle: list[Any] = []
    cycle.append(cycle)
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    returned: dict[str, Any] = {
        "object": object(),
        "hostile": Hostile(),
        "nan": float("nan"),
        "cycle": cycle,
        "deep": deep,
        "huge": "x" * 10_000_000,
        "bytes": b"\xff\xfe",
        "nul_result": {"a\x00": ["\x00", "\\u0000", "\\\x00"]},
        "surrogate_result": {"\ud800": ["a\udfffb"]},
        "long_number": 10**4000,
        "longer_number": 10**6000,
    }
    return returned[how]


@app.task
async def misbehave_on_loop(how: str) -> Any:
    return misbehave(how)


@app.task
def misbehave_in_thread(how: str) -> Any:
    return misbehave(how)


@app.task(isolate=True)
def misbehave_alone(how: str) -> Any:
    return misbehave(how)


@app.task
async def exit_in_subtask() -> None:
    """`sys.exit()` in a task of a handler's own: asyncio lets that fall through the whole loop."""

    async def leave() -> None:
        await asyncio.sleep(0.01)
        sys.exit(3)

    await asyncio.gather(leave())


@app.task
async def ill_progress(ctx: Context, seconds: float) -> None:
    """Reports, again and again, what the database cannot hold."""
    with noted(ctx):
        deadline = time.monotonic() + seconds
        for message in itertools.cycle(["\x00", "\ud800"]):
            ctx.progress(1, 2, message)
            await asyncio.sleep(0.05)
            if time.monotonic() > deadline:
                return


@app.task(isolate=True)
def ill_progress_alone(ctx: Context) -> str:
    ctx.progress(float("nan"), None, "\x00")
    ctx.progress(1, 2, JobSpec)  # type: ignore[arg-type]
    return "went on"


@app.task
def too_many(ctx: Context) -> str:
    ctx.report(items_crawled=10**12)
    return "counted"


@app.task
async def strict(number: int) -> int:
    return number


@app.task
def poison(ctx: Context) -> None:
    note("start", ctx)
    os.kill(os.getpid(), signal.SIGKILL)


# -- machines that are not quite right -----------------------------------------------------------


def shift_clock(seconds: float) -> None:
    """A wrong clock for machines without libfaketime: wherever Evenbeat asks for the time."""
    real = time.time

    class Shifted(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return datetime.now(tz) + timedelta(seconds=seconds)

    time.time = lambda: real() + seconds
    clock.datetime = Shifted  # type: ignore[attr-defined]


def follow_clock_steps(path: str) -> None:
    """The boot time moves with each step of the machine's clock; `path` says how far it has."""
    linux = psutil._pslinux
    real = linux.boot_time
    linux.boot_time = lambda: real() + float(Path(path).read_text())


def be_deaf() -> None:
    """Hear no hint at all."""
    HintListener.run_once = lambda _self: 0.5  # type: ignore[method-assign]


# -- the process ---------------------------------------------------------------------------------


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    if shift := os.environ.get("CHAOS_CLOCK_SHIFT"):
        shift_clock(float(shift))
    if steps := os.environ.get("CHAOS_CLOCK_STEPS"):
        follow_clock_steps(steps)
    if os.environ.get("CHAOS_DEAF"):
        be_deaf()
    queues = os.environ.get("CHAOS_QUEUES")
    app.worker(queues=queues.split(",") if queues else None).run(stopping)
    app.close()


if __name__ == "__main__":
    main()
