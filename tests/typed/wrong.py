"""Wrong calls of the Python API: mypy --strict and pyright both object to each line that says so,
and to no other."""

import asyncio
from typing import Any

from evenbeat import Context, Evenbeat, Task

app = Evenbeat(name="typed")


@app.task
async def fetch(url: str, depth: int = 1) -> dict[str, int]:
    return {url: depth}


@app.task(max_retries=5)
def store(ctx: Context, rows: list[int]) -> int:
    return len(rows)


@app.every("1h")
def tidy() -> None: ...


def wrong(ctx: Context) -> None:
    fetch.enqueue()  # error: no url
    fetch.enqueue(3)  # error: a number for a text
    fetch.enqueue("a", "b")  # error: a text for a number
    fetch.enqueue("a", nonsense=True)  # error: no such argument
    fetch.enqueue("a", 1, 2)  # error: too many
    fetch.job(depth=2)  # error: no url
    fetch.job("a", depth="deep")  # error: a text for a number
    app.batch([fetch])  # error: a task for a job
    app.batch([fetch.job("a")], then="report")  # error: a name for a task
    ctx.inputs[store].upper()  # error: a number for a text
    fetch.options(priority=3).enqueue(url=3)  # error: a number for a text
    fetch.options(priority="high")  # error: a text for a number
    fetch.options(prio=3)  # error: no such option
    fetch.options(delay=[1])  # error: a list for a duration
    fetch.options(run_at="2030-01-01")  # error: a text for a moment
    store.enqueue(ctx, [1])  # error: the worker gives the context
    store.enqueue("rows")  # error: a text for a list
    store.enqueue(["one"])  # error: texts for numbers
    store([1])  # error: a direct call needs the context
    store(ctx)  # error: no rows
    tidy.enqueue(1)  # error: it takes nothing
    app.task(tidy, priority="high")  # error: a text for a number
    app.task(max_retries="5")  # error: a text for a number
    app.task(retry_on=[3])  # error: a number for an exception
    app.task(never_retry=KeyError)  # error: an exception for a list
    app.task(aliases=[3])  # error: a number for a name
    fetch.options(expires=[1])  # error: a list for a duration
    app.every("30m", prioritty=3)  # error: no such option
    app.every(30, max_retries="5")  # error: a text for a number
    app.cron("@daily", timeout=b"30s")  # error: bytes for a duration
    app.cron("@daily", zone="Europe/Berlin")  # error: no such option
    app.after(3)  # error: a number for a job
    app.after(tidy, zone="Europe/Berlin")  # error: no such option
    app.periodic("p", cadence="1h", prio=3)  # error: no such option, and no run_timeout
    app.on("job:faild")  # error: no such event
    app.asgi(auth="admin")  # error: a text for a function
    app.asgi(auth=str)  # error: it returns a text, and no caller
    app.enqueue_many(["a"])  # error: a text for a job
    takes_a_number: Task[[int], Any] = fetch  # error: it takes a text
    store(ctx, [1]).upper()  # error: it returns a number


async def wrong_steps(ctx: Context) -> None:
    ctx.step("str", str.upper, 3)  # error: a number for a text
    ctx.step("int", int, "3").upper()  # error: it returns a number
    await ctx.step("sleep", asyncio.sleep, "3")  # error: a text for a number
    ctx.step(str.upper, "name")  # error: the name comes first
    ctx.sleep(b"2d")  # error: bytes for a duration


async def wrong_too() -> None:
    await fetch.enqueue_async(3)  # error: a number for a text
    (await fetch("a")).append(1)  # error: it returns a mapping
    (await fetch.enqueue("a")).append(1)  # error: its result is a mapping
    store.enqueue([1]).result(timeout=b"5s")  # error: bytes for a duration
    store.enqueue([1]).result().upper()  # error: its result is a number
    await store.enqueue([1]).result_async(when="5s")  # error: no such argument
    await app.enqueue_many_async(["a"])  # error: a text for a job
    app.schedule(fetch, every=b"30m", url="a")  # error: bytes for a duration
    app.schedule(3, every="30m")  # error: a number for a task
    app.jobs.list(colour="red")  # error: no such filter
    app.jobs.pause(3)  # error: a number for a job
    await app.schedules.update_async("s", prio=3)  # error: no such setting
