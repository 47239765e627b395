"""What the workers of the scale benchmark serve: handlers that do nothing, and one that notes when
it was called. SIGUSR1 makes a worker write what its engine has counted to SCALE_TOLD: unlike a
scrape of its metrics that asks nothing of the database, and does not disturb what is measured.

    SCALE_LOG=calls.bin evenbeat worker --app benchmarks/scale_app.py:app
"""

import asyncio
import json
import os
import signal
import struct
import threading
import time
from pathlib import Path

from evenbeat import Context, Evenbeat

CALL = struct.Struct("<16sdd")
"""A call: the job, its plan, and when the handler began; both in seconds since the epoch."""

WAITS_SECONDS = 0.05

IDLE_TASKS = ("sync", "report", "clean", "poll", "export")

app = Evenbeat()
_log = Path(os.environ.get("SCALE_LOG") or os.devnull).open("ab", buffering=1 << 16)  # noqa: SIM115 - until the end


def _tell() -> None:
    _log.flush()
    histograms, told = app.counters.histograms(), Path(os.environ["SCALE_TOLD"])
    sizes = histograms.get("evenbeat_claim_batch_size", {}).get(())
    chores = histograms.get("evenbeat_chore_duration_seconds", {})
    figures = {
        "asked": sum(sizes.counts) if sizes else 0,
        "in_vain": sizes.counts[0] if sizes else 0,
        "jobs": sizes.total if sizes else 0,
        "chores": {name: seconds.total for (name,), seconds in chores.items()},
    }
    written = told.with_suffix(".new")
    written.write_text(json.dumps(figures))
    written.rename(told)


if os.environ.get("SCALE_TOLD"):
    signal.signal(signal.SIGUSR1, lambda *_: threading.Thread(target=_tell).start())


@app.task
async def noop() -> None:
    """Nothing."""


@app.task
async def wait() -> None:
    """As most jobs do: for a page, a report, another service."""
    await asyncio.sleep(WAITS_SECONDS)


@app.task
async def tick(ctx: Context) -> None:
    """Note the moment, by the machine's clock: the database on the same machine has no other."""
    now = time.time()
    _log.write(CALL.pack(ctx.job.id.bytes, ctx.plan_time.timestamp(), now))


async def _nothing() -> None:
    """A schedule that is not due while we measure."""


for _name in IDLE_TASKS:
    app.task(name=_name)(_nothing)
