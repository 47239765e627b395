"""Jobs and schedules that Python code makes, finds and changes at run time."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier
from typing import Any
from uuid import uuid4

import pytest

from evenbeat import Evenbeat, Job, Scope
from evenbeat.errors import (
    Conflict,
    IllegalTransition,
    InvalidInput,
    NameTaken,
    NotFound,
    TaskUnknown,
)

START = datetime(2030, 1, 1, tzinfo=UTC)


class Shop:
    """An application with a worker that is driven step by step, and what its task has done."""

    def __init__(self, app: Evenbeat, evenbeat_harness: Any) -> None:
        self.done: list[tuple[int, datetime]] = []
        self.app = app

        @app.task(queue="shops")
        def sync(shop: int) -> int:
            self.done.append((shop, app.now() or START))
            return shop

        @app.task
        def note(what: object) -> None: ...

        self.sync = sync
        self.harness = evenbeat_harness(app)


@pytest.fixture
def shop(evenbeat_harness: Any) -> Shop:
    return Shop(Evenbeat(name="run-time"), evenbeat_harness)


def test_one_task_has_any_number_of_schedules(shop: Shop) -> None:
    app, sync = shop.app, shop.sync
    first = app.schedule(sync, every="30m", name="sync-1", shop=1)
    app.schedule(sync, cron="0 9 * * *", timezone="Europe/Berlin", name="sync-2", shop=2)
    app.schedule(sync.options(priority=90), at=START + timedelta(hours=3), shop=3)
    app.schedule(sync.job(shop=4), after="sync-1", on="any", name="sync-4")
    app.schedule("sync", every=3600, name="sync-5", shop=5)
    assert first.created
    assert [job.name for job in app.schedules.list(sort="name")] == [
        "sync-1", "sync-2", "sync-4", "sync-5",
    ]  # fmt: skip
    assert app.jobs.count() == 5
    assert app.jobs.list(kind="once")[0].priority == 90
    shop.harness.advance("3h")
    counts = {n: sum(done == n for done, _ in shop.done) for n in range(1, 6)}
    assert counts[1] >= 5
    assert counts[2] == 0
    assert counts[3] == 1
    assert counts[4] == counts[1]
    assert counts[5] >= 2


def test_a_name_that_is_taken_is_an_error_or_replaced(shop: Shop) -> None:
    app, sync = shop.app, shop.sync
    first = app.schedule(sync, every="30m", name="nightly", shop=1)
    with pytest.raises(NameTaken, match="nightly"):
        app.schedule(sync, every="1h", name="nightly", shop=2)
    second = app.schedule(sync, cron="@daily", name="nightly", replace=True, shop=2)
    assert second == first
    assert not second.created
    row = app.schedules.get("nightly")
    assert (row.schedule_kind, row.cron_expression, row.payload) == ("cron", "@daily", {"shop": 2})
    third = app.schedule(sync, every="1h", name="weekly", replace=True, shop=3)
    assert third.created


def test_many_processes_may_replace_a_schedule_at_once(shop: Shop) -> None:
    start = Barrier(4)

    def replace(number: int) -> set[Job[Any]]:
        made = set()
        for round_ in range(10):
            start.wait(20)
            every = f"{number + 1}h"
            made.add(
                shop.app.schedule(shop.sync, every=every, name=f"s{round_}", replace=True, shop=1)
            )
        return made

    with ThreadPoolExecutor(4) as threads:
        jobs = list(threads.map(replace, range(4)))
    assert all(made == jobs[0] for made in jobs)
    assert shop.app.schedules.count() == 10


def test_a_schedule_is_not_replaced_in_a_transaction_of_the_callers(shop: Shop) -> None:
    options: Any = {"every": "1h", "name": "s", "replace": True, "shop": 1}
    with pytest.raises(InvalidInput, match="in a transaction of its own"):
        shop.app.schedule(shop.sync, connection=object(), **options)


def test_jobs_are_found_by_their_task(shop: Shop) -> None:
    shop.sync.enqueue(shop=1)
    assert shop.app.jobs.count(task=shop.sync) == 1
    assert shop.app.jobs.count(task=[shop.sync, "other"]) == 1
    shop.harness.drain()
    assert shop.harness.jobs(task=shop.sync, status="failed") == []


def test_an_update_takes_documents(shop: Shop) -> None:
    job = shop.app.schedule(shop.sync, every="1h", name="s", shop=1)
    wrong: Any = [1]
    for field in ("payload", "metadata"):
        with pytest.raises(InvalidInput, match=f"{field} is of the type list"):
            shop.app.schedules.update(job, **{field: wrong})


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "Say when to run"),
        ({"every": "30m", "cron": "@daily"}, "every and cron each say when"),
        ({"at": "2030-01-01"}, "at must be a datetime with a time zone"),
        ({"at": datetime(2030, 1, 1)}, "at must be a datetime with a time zone"),  # noqa: DTZ001
        ({"every": "1h", "timezone": "UTC"}, "timezone is that of a cron"),
        ({"every": "1h", "on": "any"}, "on says how jobs must end"),
        ({"every": "soon"}, "soon"),
        ({"cron": "61 * * * *"}, "61"),
        ({"after": "nobody"}, "nobody"),
        ({"every": "1h", "replace": True}, "with a name"),
        ({"every": "1h", "shop": "seven"}, "argument 'shop'"),
        ({"every": "1h", "shopp": 7}, "no argument 'shopp'"),
    ],
)
def test_mistakes_are_named(shop: Shop, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        shop.app.schedule(shop.sync, **{"shop": 1, **arguments})
    assert shop.app.jobs.count() == 0


def test_a_job_with_arguments_takes_no_others(shop: Shop) -> None:
    for task in (shop.sync.job(shop=1), 7):
        with pytest.raises(InvalidInput, match=r"task\.job"):
            shop.app.schedule(task, every="1h", shop=2)  # type: ignore[arg-type]


def test_jobs_are_found_by_what_they_are(shop: Shop) -> None:
    app, sync = shop.app, shop.sync
    mine = sync.options(metadata={"tags": ["mine"]}, created_by="ada").enqueue(1)
    sync.options(queue="other", delay="1h").enqueue(2)
    app.schedule(sync.options(scope=Scope("shop", "7")), every="1h", name="hourly", shop=7)
    assert [job.id for job in app.jobs.list(tag="mine")] == [mine.id]
    assert app.jobs.count(created_by="ada") == 1
    assert app.jobs.count(queue=["shops", "other"]) == 3
    assert app.jobs.count(status="scheduled", queue="other") == 1
    assert app.jobs.count(scope=Scope("shop", "7")) == 1
    assert app.schedules.count(kind=["once", "interval"]) == 1
    assert app.schedules.count(kind="once") == 0
    assert app.jobs.get(mine) == app.jobs.get(mine.id) == app.jobs.get(str(mine.id))
    assert app.jobs.get("hourly", scope=Scope("shop", "7")).payload == {"shop": 7}
    for unknown in ("hourly", str(uuid4())):
        with pytest.raises(NotFound):
            app.jobs.get(unknown)
    with pytest.raises(InvalidInput, match="runs once"):
        app.schedules.get(mine)
    with pytest.raises(InvalidInput, match="empty"):
        app.jobs.list(status=[])
    for unknown in ({"status": "done"}, {"kind": ["cron", "hourly"]}):
        with pytest.raises(
            InvalidInput, match=r"must be one of (pending|once).* got '(done|hourly)'"
        ):
            app.jobs.list(**unknown)
    with pytest.raises(TypeError, match="no filter 'colour'"):
        app.jobs.list(colour="red")  # type: ignore[call-arg]


def test_an_update_changes_what_is_given_and_leaves_the_rest(shop: Shop) -> None:
    app, sync = shop.app, shop.sync
    app.schedule(sync.options(priority=70, metadata={"a": 1}), every="1h", name="s", shop=1)
    edited = app.schedules.update("s", every="2h", payload={"shop": 9}, timeout="5m")
    assert (edited.interval_seconds, edited.payload, edited.timeout_seconds) == (
        7200,
        {"shop": 9},
        300,
    )
    assert (edited.priority, edited.metadata, edited.queue) == (70, {"a": 1}, "shops")
    edited = app.schedules.update("s", cron="0 3 * * *", timezone="Asia/Tokyo", name="renamed")
    assert (edited.name, edited.timezone) == ("renamed", "Asia/Tokyo")
    with pytest.raises(InvalidInput, match="shop"):
        app.schedules.update("renamed", payload={"shop": "x"})
    with pytest.raises(TypeError, match="prio"):
        app.schedules.update("renamed", prio=1)  # type: ignore[call-arg]
    with pytest.raises(InvalidInput, match="at moves a job that runs once"):
        app.schedules.update("renamed", at=START)
    once = sync.options(delay="1h").enqueue(1)
    moved = app.jobs.update(once, at=START + timedelta(hours=5))
    assert moved.next_run_at == START + timedelta(hours=5)
    app.jobs.cancel(once)
    with pytest.raises(Conflict, match="run_now"):
        app.jobs.update(once, at=START + timedelta(hours=6))


def test_a_key_that_is_made_of_arguments_follows_them(shop: Shop) -> None:
    app = shop.app

    @app.task(concurrency_key="shop:{number}", concurrency_limit=1)
    def count(number: int, hint: str = "") -> None: ...

    app.schedule(count, every="1h", name="s", number=7)
    for payload, key in (
        ({"number": 8}, "shop:8"),
        ({"number": 9, "hint": "x"}, "shop:9"),
    ):
        assert app.schedules.update("s", payload=payload).concurrency_key == key
    app.schedules.update("s", concurrency_key="mine")
    assert app.schedules.update("s", payload={"number": 7}).concurrency_key == "mine"


def test_the_verbs_do_what_they_say(shop: Shop) -> None:
    app, sync = shop.app, shop.sync
    app.schedule(sync, every="1h", name="s", shop=1)
    assert app.schedules.pause("s").is_paused
    with pytest.raises(IllegalTransition):
        app.schedules.pause("s")
    shop.harness.advance("3h")
    assert shop.done == []
    assert not app.schedules.resume("s").is_paused
    app.schedules.run_now("s")
    shop.harness.drain()
    assert [n for n, _ in shop.done] == [1]
    one = sync.options(delay="1h").enqueue(2)
    assert app.jobs.cancel(one).status == "cancelled"
    assert app.jobs.retry(one).status == "pending"
    app.jobs.delete(one)
    with pytest.raises(NotFound):
        one.status()
    app.schedule(sync, after="s", name="later", shop=3)
    with pytest.raises(Conflict, match="later"):
        app.schedules.delete("s")
    app.schedules.delete("s", force=True)
    assert [job.name for job in app.schedules.list()] == ["later"]


def test_a_task_is_known_by_what_its_workers_registered(shop: Shop) -> None:
    other = Evenbeat(shop.app.store.database.url, db_schema=shop.app.settings.db_schema)
    with other:
        with pytest.raises(TaskUnknown, match=r"'sync' yet.*There are: none yet"):
            other.task_named("sync")
        shop.harness.worker.registration.register()
        with pytest.raises(TaskUnknown, match=r"'snyc' yet.*Did you mean 'sync'"):
            other.task_named("snyc")
        sync = other.task_named("sync")
        job: Job[Any] = sync.enqueue(shop=8)
        assert job.record().queue == "shops"
        for wrong, says in (
            ({}, "'shop' is missing"),
            ({"shop": "x"}, "argument 'shop' must be of type integer"),
            ({"shop": 1, "shopp": 2}, "no argument 'shopp'"),
        ):
            with pytest.raises(InvalidInput, match=says):
                sync.enqueue(**wrong)
        with pytest.raises(InvalidInput, match="by their names"):
            sync.enqueue(8)
        for value, says in (
            ({1: "a"}, "note: argument 'what' has the key 1"),
            ([START], r"what\.0 cannot be stored as JSON: .* datetime"),
        ):
            with pytest.raises(InvalidInput, match=says):
                other.task_named("note").enqueue(what=value)
        other.schedule("sync", every="1h", name="elsewhere", shop=9)
        shop.harness.drain()
        assert job.result(5) == 8
        assert sorted(n for n, _ in shop.done) == [8, 9]
        assert shop.app.task_named("sync").enqueue(3).status() == "pending"


def test_all_of_it_in_async_code(shop: Shop) -> None:
    app, sync = shop.app, shop.sync

    async def run() -> None:
        job = await app.schedule_async(sync, every="1h", name="s", shop=1)
        assert [row.id for row in await app.schedules.list_async()] == [job.id]
        assert await app.jobs.count_async() == 1
        assert (await app.schedules.get_async("s")).id == job.id
        assert (await app.schedules.update_async("s", every="2h")).interval_seconds == 7200
        assert (await app.schedules.pause_async("s")).is_paused
        await app.schedules.resume_async("s")
        await app.schedules.run_now_async("s")
        await app.jobs.cancel_async(job)
        await app.jobs.retry_async(job)
        named = await app.task_named_async("sync")
        await named.enqueue_async(4)
        await app.jobs.delete_async(job)
        assert await app.jobs.count_async() == 1

    asyncio.run(run())


def test_a_setting_that_is_none_is_taken_away(shop: Shop) -> None:
    app = shop.app
    job = app.schedule(shop.sync.options(timeout="30s"), every="1h", name="limited", shop=1)
    assert app.jobs.get(job.id).timeout_seconds == 30
    assert app.jobs.update(job.id, timeout=None).timeout_seconds is None
