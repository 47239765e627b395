"""Durable steps, sleeps and events, on a virtual clock and a real database."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from evenbeat import Context, Evenbeat, EventTimeout, Fail, LeaseLost, Snooze
from evenbeat.domain.states import JobStatus
from evenbeat.errors import Conflict, InvalidInput
from evenbeat.testing import DEFAULT_START, Harness

HarnessFor = Callable[..., Harness]
DAY = timedelta(days=1)

isolated = Evenbeat(name="isolated-steps")


class Receipt(BaseModel):
    order: int
    paid: bool


def pay(order: int) -> Receipt:
    return Receipt(order=order, paid=True)


@isolated.task(isolate=True)
def in_a_process(ctx: Context, order: int) -> list[Any]:
    receipt = ctx.step("pay", pay, order)
    ctx.sleep("2h")
    approval = ctx.wait_event("approved", timeout="3d")
    return [receipt.paid, approval, ctx.step("again", pay, order).order]


@isolated.task(isolate=True)
async def async_in_a_process(ctx: Context, order: int) -> int:
    receipt = await ctx.step("pay", asyncio.to_thread, pay, order)
    await ctx.sleep("2h")
    return receipt.order


class Shop:
    """An application whose handlers count what they do."""

    def __init__(self) -> None:
        self.app = Evenbeat()
        self.calls: list[str] = []
        self.failing = 0

        @self.app.task(retry_backoff="1s", retry_jitter=0)
        def plain(ctx: Context, order: int) -> list[Any]:
            charged = ctx.step("charge", self.charge, order)
            ctx.step("ship", self.charge, order + 1)
            if self.failing:
                self.failing -= 1
                raise ValueError("the printer is out of paper")
            return [charged.order, ctx.step("mail", self.mail)]

        @self.app.task(retry_backoff="1s", retry_jitter=0)
        async def on_loop(ctx: Context, order: int) -> list[Any]:
            charged = await ctx.step("charge", self.charge_async, order)
            await ctx.step("ship", self.charge_async, order=order + 1)
            if self.failing:
                self.failing -= 1
                raise ValueError("the printer is out of paper")
            return [charged.order, await ctx.step("mail", asyncio.to_thread, self.mail)]

        @self.app.task(retry_backoff="1s", retry_jitter=0)
        def sleeper(ctx: Context) -> str:
            ctx.step("first", self.mail)
            ctx.sleep("2d")
            ctx.step("second", self.mail)
            ctx.sleep("1h")
            return str(ctx.now)

        @self.app.task
        async def approval(ctx: Context) -> list[Any]:
            return [
                await ctx.wait_event("approved", timeout="3d"),
                await ctx.wait_event("approved", timeout="3d"),
            ]

        self.plain, self.on_loop, self.sleeper, self.approval = plain, on_loop, sleeper, approval

    def charge(self, order: int) -> Receipt:
        self.calls.append(f"charge {order}")
        return pay(order)

    async def charge_async(self, order: int) -> Receipt:
        await asyncio.sleep(0)
        return self.charge(order)

    def mail(self) -> str:
        self.calls.append("mail")
        return "sent"


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.mark.parametrize("kind", ["plain", "on_loop"])
def test_a_retry_skips_what_is_done(shop: Shop, evenbeat_harness: HarnessFor, kind: str) -> None:
    harness, task = evenbeat_harness(shop.app), getattr(shop, kind)
    shop.failing = 2
    job = task.enqueue(order=7)
    harness.advance("10s")
    assert job.result() == [7, "sent"]
    assert shop.calls == ["charge 7", "charge 8", "mail"]
    steps = shop.app.store.steps.of(job.id)
    assert [(one.name, one.execution_number) for one in steps] == [
        ("charge", 1),
        ("ship", 1),
        ("mail", 3),
    ]
    assert steps[0].result == {"order": 7, "paid": True}


def test_a_step_gives_the_same_at_first_and_later(evenbeat_harness: HarnessFor) -> None:
    app, seen = Evenbeat(), []

    def annotated() -> tuple[int, str]:
        return 1, "a"

    def bare():  # type: ignore[no-untyped-def]
        return 1, "a"

    @app.task(retry_backoff="1s", retry_jitter=0)
    def look(ctx: Context) -> None:
        seen.append([ctx.step("annotated", annotated), ctx.step("bare", bare)])
        seen[-1].append(ctx.step("lambda", lambda: Receipt(order=1, paid=False)))
        if len(seen) == 1:
            raise ValueError

    harness = evenbeat_harness(app)
    look.enqueue()
    harness.advance("5s")
    assert seen == [[(1, "a"), [1, "a"], {"order": 1, "paid": False}]] * 2


def test_what_is_not_what_it_is_said_to_be_is_refused(evenbeat_harness: HarnessFor) -> None:
    app = Evenbeat()

    def wrong() -> int:
        return "three"  # type: ignore[return-value]

    @app.task(max_retries=0)
    def look(ctx: Context) -> None:
        ctx.step("wrong", wrong)

    harness = evenbeat_harness(app)
    job = look.enqueue()
    harness.drain()
    assert (
        "The result of the step 'wrong' does not fit int, the annotation" in last(job).error_message
    )


def last(job: Any) -> Any:
    return job.executions(limit=1)[0]


def test_a_name_stands_for_one_step(evenbeat_harness: HarnessFor) -> None:
    app = Evenbeat()

    @app.task(max_retries=0)
    def twice(ctx: Context) -> None:
        ctx.step("charge", str, 1)
        ctx.step("charge", str, 2)

    harness = evenbeat_harness(app)
    job = twice.enqueue()
    harness.drain()
    assert "has had a step 'charge' already" in last(job).error_message


@pytest.mark.parametrize("value", ["x" * 70_000, object(), float("nan"), "\x00"])
def test_a_result_that_cannot_be_kept_is_not_tried_again(
    evenbeat_harness: HarnessFor, value: object
) -> None:
    app, calls = Evenbeat(), []

    def make() -> object:
        calls.append(1)
        return value

    @app.task
    def big(ctx: Context) -> None:
        ctx.step("make", make)

    harness = evenbeat_harness(app)
    job = big.enqueue()
    harness.advance("1h")
    assert job.status() == JobStatus.FAILED
    assert calls == [1]
    assert last(job).error_code == "step_result"
    assert "The step 'make' was done, but its result cannot be kept" in last(job).error_message


def test_a_run_that_lost_its_lease_stops_at_the_next_step(
    shop: Shop, evenbeat_harness: HarnessFor
) -> None:
    app, told = Evenbeat(), []

    @app.task
    def slow(ctx: Context) -> None:
        ctx.step("one", str, 1)
        app.job(ctx.job.id).cancel()
        try:
            ctx.step("two", told.append, 2)
        except LeaseLost:
            told.append("stopped")
        ctx.step("three", told.append, 3)

    harness = evenbeat_harness(app)
    job = slow.enqueue()
    harness.drain()
    assert job.status() == JobStatus.CANCELLED
    # The second was called, since nobody asked the database before; it was not kept.
    assert told == [2, "stopped"]
    assert [one.name for one in app.store.steps.of(job.id)] == ["one"]


# -- sleeping --------------------------------------------------------------------------------------


def test_a_sleep_gives_the_slot_back_and_costs_no_attempt(
    shop: Shop, evenbeat_harness: HarnessFor
) -> None:
    harness = evenbeat_harness(shop.app)
    job = shop.sleeper.enqueue()
    harness.drain()
    row = job.record()
    assert (row.status, row.next_run_at) == ("scheduled", DEFAULT_START + 2 * DAY)
    assert (row.current_retry_count, row.locked_by) == (0, None)
    (run,) = job.executions()
    assert (run.status, run.error_code) == ("cancelled", "asleep")
    assert run.duration_ms is not None
    harness.advance("3d")
    assert job.result() == str(DEFAULT_START + 2 * DAY + timedelta(hours=1))
    assert shop.calls == ["mail", "mail"]
    assert [run.retry_attempt for run in job.executions()] == [0, 0, 0]


def restarted(shop: Shop, harness: Harness) -> tuple[Shop, Harness]:
    """The application and its worker anew, as after a deployment: only the database is left."""
    settings, now = shop.app.settings, harness.now
    assert settings.database_url is not None
    harness.close()
    other = Shop()
    url = settings.database_url.get_secret_value()
    other.app.configure(database_url=url, db_schema=settings.db_schema)
    return other, Harness(other.app, now)


def test_a_restarted_worker_goes_on_where_the_first_stopped(
    shop: Shop, evenbeat_harness: HarnessFor
) -> None:
    harness = evenbeat_harness(shop.app)
    job = shop.sleeper.enqueue()
    harness.advance("1d")
    other, second = restarted(shop, harness)
    with second:
        second.advance("2d")
        assert other.app.job(job.id).status() == JobStatus.COMPLETED
        assert (shop.calls, other.calls) == (["mail"], ["mail"])


def test_run_now_ends_a_sleep(shop: Shop, evenbeat_harness: HarnessFor) -> None:
    harness = evenbeat_harness(shop.app)
    job = shop.sleeper.enqueue()
    harness.advance("1h")
    shop.app.jobs.run_now(job)
    harness.drain()
    assert shop.calls == ["mail", "mail"]
    assert job.record().next_run_at == DEFAULT_START + timedelta(hours=2)
    harness.advance("1h")
    assert job.status() == JobStatus.COMPLETED


def test_a_sleeping_job_can_be_paused_and_resumed(shop: Shop, evenbeat_harness: HarnessFor) -> None:
    harness = evenbeat_harness(shop.app)
    shop.app.schedule(shop.sleeper, every="30d", name="monthly")
    job = shop.app.jobs.get("monthly")
    harness.advance((job.next_run_at or harness.now) - harness.now)
    begun = harness.now
    shop.app.jobs.pause("monthly")
    harness.advance("10d")
    assert shop.calls == ["mail"]
    shop.app.jobs.resume("monthly")
    harness.advance("2h")  # the occurrence that has begun goes on, late
    assert shop.calls == ["mail", "mail"]
    row = shop.app.jobs.get("monthly")
    assert row.plan_time == begun + 30 * DAY


def test_a_sleeping_job_can_be_cancelled_and_retried_with_its_steps(
    shop: Shop, evenbeat_harness: HarnessFor
) -> None:
    harness = evenbeat_harness(shop.app)
    job = shop.sleeper.enqueue()
    harness.advance("1h")
    job.cancel()
    harness.advance("5d")
    assert job.status() == JobStatus.CANCELLED
    shop.app.jobs.retry(job)
    harness.advance("2h")
    assert job.status() == JobStatus.COMPLETED
    assert shop.calls == ["mail", "mail"]


def test_a_failed_job_that_a_person_retries_keeps_its_steps(
    shop: Shop, evenbeat_harness: HarnessFor
) -> None:
    harness = evenbeat_harness(shop.app)
    shop.failing = 4
    job = shop.plain.enqueue(order=1)
    harness.advance("1h")
    assert job.status() == JobStatus.FAILED
    shop.app.jobs.retry(job)
    harness.drain()
    assert job.result() == [1, "sent"]
    assert shop.calls == ["charge 1", "charge 2", "mail"]
    harness.advance("1s")
    shop.app.jobs.run_now(job)  # one that has completed begins anew
    harness.drain()
    assert shop.calls == ["charge 1", "charge 2", "mail"] * 2


def test_each_occurrence_of_a_schedule_has_its_steps(
    shop: Shop, evenbeat_harness: HarnessFor
) -> None:
    harness = evenbeat_harness(shop.app)
    shop.app.schedule(shop.sleeper, every="3d", name="often")
    harness.advance("12d")
    steps = shop.app.store.steps.of(shop.app.jobs.get("often").id)
    assert len({one.plan_time for one in steps}) in (4, 5)
    assert shop.calls.count("mail") == sum(one.kind == "step" for one in steps)
    done = [run for run in harness.executions("often") if run.status == "completed"]
    assert len(done) >= 3


def test_an_edited_schedule_counts_from_the_next_occurrence(
    shop: Shop, evenbeat_harness: HarnessFor
) -> None:
    """An edit while it sleeps drops the occurrence, as it does one that waits for a retry; one
    during the run lets it go on."""
    harness = evenbeat_harness(shop.app)
    shop.app.schedule(shop.sleeper, every="30d", name="edited")
    harness.advance((shop.app.jobs.get("edited").next_run_at or harness.now) - harness.now)
    assert shop.calls == ["mail"]
    shop.app.jobs.update("edited", every="1d")
    planned = shop.app.jobs.get("edited").next_run_at
    assert planned is not None
    assert planned <= harness.now + DAY
    harness.advance((planned - harness.now) + timedelta(seconds=1))
    assert shop.calls == ["mail", "mail"]
    assert (
        len({one.plan_time for one in shop.app.store.steps.of(shop.app.jobs.get("edited").id)}) == 2
    )


def test_a_moved_one_off_takes_its_steps_along(shop: Shop, evenbeat_harness: HarnessFor) -> None:
    harness = evenbeat_harness(shop.app)
    job = shop.sleeper.enqueue()
    harness.drain()
    shop.app.jobs.update(job, at=harness.now + 4 * DAY)
    shop.app.jobs.update(job, priority=10)
    harness.advance("4d")
    assert shop.calls == ["mail", "mail"]
    harness.advance("1h")
    assert job.status() == JobStatus.COMPLETED


def test_a_job_that_sleeps_does_not_expire(shop: Shop, evenbeat_harness: HarnessFor) -> None:
    harness = evenbeat_harness(shop.app)
    job = shop.sleeper.options(expires="1h").enqueue()
    late = shop.sleeper.options(expires="1h").enqueue()
    harness.app.jobs.pause(late)
    harness.advance("1d")
    harness.app.jobs.resume(late)
    harness.advance("2d")
    assert (job.status(), late.status()) == (JobStatus.COMPLETED, JobStatus.CANCELLED)


def test_snooze_costs_no_attempt(evenbeat_harness: HarnessFor) -> None:
    app, attempts = Evenbeat(), []

    @app.task(max_retries=0)
    async def busy(ctx: Context) -> str:
        attempts.append((ctx.attempt, ctx.now - DEFAULT_START))
        if len(attempts) < 4:
            raise Snooze("10m", "the printer is busy")
        return "printed"

    @app.task(max_retries=0)
    def wrong() -> None:
        raise Snooze("soon")

    harness = evenbeat_harness(app)
    job, mistaken = busy.enqueue(), wrong.enqueue()
    harness.advance("30m")
    assert job.result() == "printed"
    assert attempts == [(1, timedelta(minutes=10 * n)) for n in range(4)]
    first = job.executions()[-1]
    assert (first.error_code, first.error_message) == ("snoozed", "the printer is busy")
    assert mistaken.status() == JobStatus.FAILED
    assert last(mistaken).error_code == "InvalidDuration"


# -- events ----------------------------------------------------------------------------------------


def test_two_waits_take_two_events_in_their_order(shop: Shop, evenbeat_harness: HarnessFor) -> None:
    harness = evenbeat_harness(shop.app)
    job = shop.approval.enqueue()
    assert job.send_event("approved", {"by": "ann"}) is False  # before the wait
    harness.drain()
    assert job.status() == JobStatus.SCHEDULED
    assert job.send_event("rejected") is False
    harness.advance("2d")
    assert asyncio.run(job.send_event_async("approved", {"by": "bob"})) is True
    harness.drain()
    assert job.result() == [{"by": "ann"}, {"by": "bob"}]
    with pytest.raises(Conflict, match="is completed, so it takes no event"):
        job.send_event("approved")


def test_an_event_that_does_not_come_is_an_error_that_needs_no_retry(
    shop: Shop, evenbeat_harness: HarnessFor
) -> None:
    harness = evenbeat_harness(shop.app)
    job = shop.approval.enqueue()
    harness.advance("3d")
    assert job.status() == JobStatus.FAILED
    assert last(job).error_code == "event_timeout"
    shop.app.jobs.retry(job)  # it waits anew
    harness.drain()
    assert job.record().next_run_at == harness.now + 3 * DAY
    for payload in (1, 2):
        job.send_event("approved", payload)
    harness.drain()
    assert job.result() == [1, 2]


def test_a_wait_of_three_days_outlasts_restarts(shop: Shop, evenbeat_harness: HarnessFor) -> None:
    harness = evenbeat_harness(shop.app)
    ids = [shop.approval.enqueue().id for _ in range(3)]
    harness.advance("1d")
    other, second = restarted(shop, harness)
    with second:
        heard, late, never = (other.app.job(id_) for id_ in ids)
        second.advance("23h")
        assert {job.status() for job in (heard, late, never)} == {JobStatus.SCHEDULED}
        for job in (heard, late):
            job.send_event("approved", {"by": "ann"})
        another, third = restarted(other, second)  # before it has run with the event
    with third:
        third.advance("1h")
        assert never.record().next_run_at == DEFAULT_START + 3 * DAY
        heard = another.app.job(heard.id)
        heard.send_event("approved", {"by": "bob"})
        third.advance("1d")
        assert heard.result() == [{"by": "ann"}, {"by": "bob"}]
        assert another.app.job(never.id).status() == JobStatus.FAILED
        assert last(another.app.job(never.id)).error_code == "event_timeout"
        # The second wait of this one has begun a day before, and has its own three days.
        waiting = another.app.job(late.id).record()
        assert (waiting.status, waiting.current_retry_count) == ("scheduled", 0)
        assert waiting.next_run_at == DEFAULT_START + timedelta(days=4, hours=23)


def test_a_handler_may_catch_the_timeout(evenbeat_harness: HarnessFor) -> None:
    app = Evenbeat()

    @app.task(retry_backoff="1s")
    async def patient(ctx: Context) -> list[Any]:
        heard = []
        for _ in range(3):
            try:
                heard.append(await ctx.wait_event("ping", timeout="1h"))
            except EventTimeout:
                heard.append(None)
        return heard

    harness = evenbeat_harness(app)
    job = patient.enqueue()
    harness.advance("90m")
    job.send_event("ping", "late")
    harness.advance("2h")
    assert job.result() == [None, "late", None]


def test_an_event_during_the_run_wakes_it(evenbeat_harness: HarnessFor) -> None:
    """It comes after the wait has been noted and before the run is over."""
    app = Evenbeat()

    @app.task
    def slow(ctx: Context) -> Any:
        try:
            return ctx.wait_event("go")
        finally:
            if not app.store.steps.of(ctx.job.id)[0].completed_at:
                app.job(ctx.job.id).send_event("go", 5)

    harness = evenbeat_harness(app)
    job = slow.enqueue()
    harness.drain()
    assert job.result() == 5


def test_an_event_for_a_paused_job_waits_until_it_is_resumed(
    shop: Shop, evenbeat_harness: HarnessFor
) -> None:
    harness = evenbeat_harness(shop.app)
    job = shop.approval.enqueue()
    harness.drain()
    shop.app.jobs.pause(job)
    for payload in (1, 2):
        job.send_event("approved", payload)
    harness.advance("5d")
    assert job.status() == JobStatus.PAUSED
    shop.app.jobs.resume(job)
    harness.drain()
    assert job.result() == [1, 2]


def test_waits_in_a_task_group(evenbeat_harness: HarnessFor) -> None:
    app = Evenbeat()

    @app.task
    async def both(ctx: Context) -> list[Any]:
        async with asyncio.TaskGroup() as group:
            waits = [group.create_task(ctx.wait_event(name, "1d")) for name in ("a", "b")]
        return [wait.result() for wait in waits]

    harness = evenbeat_harness(app)
    job = both.enqueue()
    harness.drain()
    assert job.status() == JobStatus.SCHEDULED
    for name in ("b", "a"):
        job.send_event(name, name)
        harness.drain()
    assert job.result() == ["a", "b"]


# -- elsewhere -------------------------------------------------------------------------------------


def test_steps_of_isolated_runs(evenbeat_harness: HarnessFor) -> None:
    harness = evenbeat_harness(isolated)
    job, other = in_a_process.enqueue(order=3), async_in_a_process.enqueue(order=4)
    harness.advance("1d")
    assert job.status() == JobStatus.SCHEDULED
    assert job.send_event("approved", "yes")
    harness.drain()
    assert job.result() == [True, "yes", 3]
    assert other.result() == 4
    numbers = [
        (one.kind, one.name, one.execution_number) for one in isolated.store.steps.of(job.id)
    ]
    assert numbers == [
        ("step", "pay", 1), ("sleep", "", 1), ("event", "approved", 2), ("step", "again", 3),
    ]  # fmt: skip


def test_steps_in_eager_mode_and_in_direct_calls(shop: Shop) -> None:
    with shop.app.eager():
        assert shop.plain.enqueue(order=1).result() == [1, "sent"]
        assert shop.on_loop.enqueue(order=1).result() == [1, "sent"]
        assert shop.sleeper.enqueue().status() == JobStatus.COMPLETED
        with pytest.raises(InvalidInput, match="In eager mode nobody can send"):
            shop.approval.enqueue()

        @shop.app.task
        def later() -> None:
            raise Snooze("1h")

        assert later.enqueue().status() == JobStatus.SCHEDULED


def test_history_takes_its_steps_along(shop: Shop, evenbeat_harness: HarnessFor) -> None:
    harness, store = evenbeat_harness(shop.app), shop.app.store
    ended = [shop.plain.enqueue(order=n) for n in (1, 2)]
    asleep = shop.approval.enqueue()
    harness.drain()

    def kept() -> set[UUID]:
        return {one.job_id for job in (*ended, asleep) for one in store.steps.of(job.id)}

    store.control.delete([ended[0].id])
    assert kept() == {ended[1].id, asleep.id}
    store.upkeep.prune_jobs(older_than=harness.now + DAY)
    assert kept() == {asleep.id}
    store.upkeep.prune_executions(older_than=harness.now + DAY, keep=0, now=harness.now)
    assert kept() == {asleep.id}


def test_history_of_a_schedule_takes_the_steps_of_occurrences_that_are_over(
    shop: Shop, evenbeat_harness: HarnessFor
) -> None:
    harness, store = evenbeat_harness(shop.app), shop.app.store
    shop.app.schedule(shop.sleeper, cron="0 0 1 6 *", name="often")
    for _ in range(2):
        shop.app.jobs.run_now("often")
        harness.advance("1d")
        store.upkeep.prune_executions(older_than=harness.now, keep=0, now=harness.now)
        asleep = shop.app.jobs.get("often")
        (mail, sleep) = store.steps.of(asleep.id)
        assert (mail.plan_time, sleep.completed_at) == (asleep.plan_time, None)
        harness.advance("2d")
    assert shop.calls.count("mail") == 4


def test_a_fail_in_a_step_is_a_fail(evenbeat_harness: HarnessFor) -> None:
    app = Evenbeat()

    def refuse() -> None:
        raise Fail("no", code="refused")

    @app.task
    def handler(ctx: Context) -> None:
        ctx.step("refuse", refuse)

    harness = evenbeat_harness(app)
    job = handler.enqueue()
    harness.drain()
    assert (job.status(), last(job).error_code) == (JobStatus.FAILED, "refused")
    assert app.store.steps.of(job.id) == []
