"""Which errors are tried again, what expires, and what runs leave behind for others to read."""

import asyncio
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from evenbeat import Context, Evenbeat, Retry
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.errors import InvalidInput
from evenbeat.testing import Harness

START = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def app() -> Evenbeat:
    return Evenbeat(name="endings")


class Declined(Exception):
    """An error of the application's own."""


class Expired(Declined): ...


# -- retry_on, never_retry -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "raised", "status"),
    [
        ({}, Declined, "scheduled"),
        ({"retry_on": [ConnectionError]}, ConnectionResetError, "scheduled"),
        ({"retry_on": [ConnectionError]}, ValueError, "failed"),
        ({"retry_on": ["Declined"]}, Expired, "scheduled"),
        ({"retry_on": [Declined]}, Expired, "scheduled"),
        ({"retry_on": [Expired]}, Declined, "failed"),
        ({"retry_on": ["test_endings.Declined"]}, Declined, "scheduled"),
        ({"retry_on": []}, Declined, "failed"),
        ({"retry_on": [KeyError]}, Retry, "scheduled"),  # who asks for it gets it
        ({"never_retry": [Declined]}, Expired, "failed"),
        ({"never_retry": ["psycopg.DataError"]}, psycopg.OperationalError, "scheduled"),
        ({"never_retry": [Exception]}, psycopg.OperationalError, "failed"),
        ({"retry_on": [Declined], "never_retry": [Expired]}, Expired, "failed"),
    ],
)
@pytest.mark.parametrize("place", ["task", "options"])
def test_the_error_decides_whether_a_run_is_tried_again(  # noqa: PLR0917 - a table of cases
    app, evenbeat_harness, place, options, raised, status
):
    @app.task(**(options if place == "task" else {"never_retry": [OSError]}))
    def charge() -> None:
        raise raised

    chosen = charge if place == "task" else charge.options(**{"never_retry": []} | options)
    harness = evenbeat_harness(app)
    added = chosen.enqueue()
    harness.drain()
    assert app.store.read.job(added.id).status == status


def test_a_timeout_is_tried_again_unless_it_is_named(app, evenbeat_harness):
    @app.task(retry_on=[ValueError], timeout=0.05)
    async def slow(ctx: Context) -> None:
        while not ctx.cancelled:
            await asyncio.sleep(0.01)

    harness = evenbeat_harness(app)
    jobs = [slow.enqueue(), slow.options(never_retry=["timeout"]).enqueue()]
    harness.drain()
    assert [app.store.read.job(job.id).status for job in jobs] == ["scheduled", "failed"]


def test_a_job_of_older_code_goes_by_its_task(app, evenbeat_harness):
    @app.task(never_retry=[KeyError])
    def look() -> None:
        raise KeyError("x")

    harness = evenbeat_harness(app)
    added = app.add(NewJob(JobSpec("look")))
    harness.drain()
    assert app.store.read.job(added.id).status == "failed"


def test_many_jobs_and_the_database_keep_the_names(app, evenbeat_harness):
    send = app.task(lambda: None, name="send")
    evenbeat_harness(app)
    chosen = send.options(retry_on=[OSError, Declined, "null"], never_retry=[])
    for added in [chosen.enqueue(), *app.enqueue_many([chosen.job(), chosen.job()])]:
        job = app.store.read.job(added.id)
        assert job.retry_on == ["OSError", "test_endings.Declined", "null"]
        assert job.never_retry == []


@pytest.mark.parametrize(
    "wrong",
    ["KeyError", KeyError, [int], [""], ["a b"], ["a\x05b"], ["a\u202eb"], [3], ["x"] * 51],
)
def test_what_names_no_errors_is_refused(app, wrong):
    with pytest.raises(InvalidInput, match="retry_on") as caught:
        app.task(lambda: None, name="send", retry_on=wrong)
    assert caught.value.field == "retry_on"


def test_a_misspelt_option_is_answered_with_the_one_that_was_meant(app):
    send = app.task(lambda: None, name="send")
    for wrong, meant in (("backoff", "retry_backoff"), ("dellay", "delay"), ("runat", "run_at")):
        with pytest.raises(TypeError, match=f"Did you mean '{meant}'"):
            send.options(**{wrong: "5s"})
    with pytest.raises(TypeError, match="Did you mean 'aliases'"):
        app.task(lambda: None, name="other", alias=["old"])
    with pytest.raises(TypeError, match="Did you mean 'schedule_name'"):
        app.every("1h", name="hourly", schedul_name="hour")(lambda: None)
    with pytest.raises(TypeError, match=r"'eta'.*There are: after, .*delay, .*run_at, "):
        send.options(eta=None)  # no value at all is no reason to let it pass


# -- expires ---------------------------------------------------------------------------------------


def test_a_job_that_is_claimed_too_late_is_cancelled_and_says_why(app, evenbeat_harness, caplog):
    @app.task(expires="10m")
    def remind() -> str:
        return "reminded"

    harness = evenbeat_harness(app, START)
    late, delayed, patient = (
        remind.enqueue(),
        remind.options(delay="8m").enqueue(),
        remind.options(expires="1h").enqueue(),
    )
    harness.skip("15m")
    harness.drain()
    jobs = [app.store.read.job(one.id) for one in (late, delayed, patient)]
    assert [job.status for job in jobs] == ["cancelled", "completed", "completed"]
    (run,) = app.store.read.executions_of(late.id).executions
    assert (run.status, run.error_code) == ("cancelled", "expired")
    assert run.error_message == "It was due 15 min ago and expires after 10 min, so it was not run."
    (line,) = [one for one in caplog.records if "Expired" in one.getMessage()]
    assert (line.levelname, line.task, line.job_id) == ("WARNING", "remind", str(late.id))


def test_a_retry_does_not_begin_after_the_end(app, evenbeat_harness):
    @app.task(expires="10m", retry_delays=["6m"], max_retries=5)
    def remind(ctx: Context) -> None:
        raise Declined

    harness = evenbeat_harness(app, START)
    added = remind.enqueue()
    harness.advance("1h")
    runs = app.store.read.executions_of(added.id).executions[::-1]
    assert [run.error_code for run in runs] == ["Declined", "Declined", "expired"]


def test_expires_is_for_one_off_jobs(app, evenbeat_harness):
    @app.every("1h", expires="1m", catch_up="latest_only")
    def sync() -> None: ...

    harness = evenbeat_harness(app, START)
    harness.skip("2h30m")
    harness.drain()
    assert [run.status for run in harness.executions("sync")] == ["completed"]


# -- aliases ---------------------------------------------------------------------------------------


def test_jobs_and_schedules_under_an_older_name_are_the_renamed_tasks(database_url):
    old = Evenbeat(database_url, name="shop")
    old.every("1h")(old.every("2h")(old.task(lambda to="all": f"old {to}", name="mail.send")))
    with Harness(old, START) as harness:
        waiting = old.registry.get("mail.send")
        added = old.add(NewJob(waiting.spec, {"to": "ada"}, start=timedelta(hours=1)))
        harness.advance("30m")
        before = {job.name: job.id for job in old.store.read.jobs().jobs if job.name}

    app = Evenbeat(database_url, name="shop")
    renamed = app.task(lambda to="all": f"new {to}", name="post", aliases=["mail.send", "send"])
    app.every("1h")(app.every("2h")(renamed))
    with Harness(app, START + timedelta(minutes=30)) as harness:
        harness.advance("10h")
        assert app.store.read.executions_of(added.id).executions[0].result == "new ada"
        now = {job.name: (job.id, job.task) for job in app.store.read.jobs().jobs if job.name}
        assert now == {
            "post": (before["mail.send"], "post"),
            "post-2": (before["mail.send-2"], "post"),
        }
        assert len(harness.executions("post-2")) in (10, 11)
        assert app.sync_schedules().changed == 0
        assert app.sync_schedules().removed == []
    assert {"mail.send", "post", "send"} < {*app.registry.named()}
    assert {"mail.send", "send"}.isdisjoint(task.name for task in app.registry)


def test_an_alias_that_is_a_task_is_refused(app):
    app.task(lambda: None, name="one", aliases=["first"])
    for options in ({"name": "first"}, {"name": "two", "aliases": ["one"]}):
        with pytest.raises(InvalidInput, match="Two handlers are named"):
            app.task(lambda: None, **options)
    with pytest.raises(InvalidInput, match="a list of names"):
        app.task(lambda: None, name="three", aliases="four")


# -- what a run leaves behind ----------------------------------------------------------------------


def test_figures_of_ones_own_stand_beside_the_known_ones(app, evenbeat_harness):
    @app.task
    async def load(ctx: Context) -> None:
        ctx.report(rows_affected=2, skipped=1, seconds=0.5, source="a.csv")
        ctx.report(rows_affected=1, skipped=2, seconds=0.25, source="b.csv", bad=["x"])
        assert ctx.figures["skipped"] == 3

    @app.task(max_retries=0)
    async def spoil(ctx: Context, what: str) -> None:
        ctx.report(good=1)
        ctx.report(**{what: {"inf": float("inf"), "large": "x" * 9000, "nul": "\0"}.get(what)})

    harness = evenbeat_harness(app)
    added = load.enqueue()
    spoilt = [spoil.enqueue(what=what) for what in ("inf", "large", "nul", "cpu_time_ms")]
    harness.drain()
    (run,) = app.store.read.executions_of(added.id).executions
    assert run.rows_affected == 3
    assert run.figures == {"skipped": 3, "seconds": 0.75, "source": "b.csv", "bad": ["x"]}
    for one in spoilt:
        (run,) = app.store.read.executions_of(one.id).executions
        assert run.status == "failed", run
        assert run.figures == {"good": 1}


def test_an_isolated_run_has_its_own_figures_too(evenbeat_harness):
    harness = evenbeat_harness(isolated_app)
    added = count.enqueue()
    harness.drain()
    (run,) = isolated_app.store.read.executions_of(added.id).executions
    assert run.figures == {"counted": 7}


isolated_app = Evenbeat(name="isolated-figures")


@isolated_app.task(isolate=True)
def count(ctx: Context) -> None:
    ctx.report(counted=7)


def test_a_job_after_others_knows_their_plan(app, evenbeat_harness):
    @app.cron("0 2 * * *", schedule_delay="10s")
    def extract() -> None: ...

    @app.cron("0 1 * * *")
    def prepare() -> None: ...

    @app.after(extract, prepare)
    def load(ctx: Context) -> str:
        return f"{ctx.predecessor_plan_time:%d %H:%M:%S}"

    @app.task
    def once(ctx: Context) -> str:
        return str(ctx.predecessor_plan_time)

    harness = evenbeat_harness(app, START)
    harness.advance("2d")
    assert [run.result for run in harness.executions("load")] == ["01 02:00:00", "02 02:00:00"]
    assert harness.executions("load")[0].plan_time == START.replace(hour=2, second=10)
    ended, alone = once.enqueue(), once.enqueue()
    harness.drain()
    planned = app.store.read.executions_of(ended.id).executions[0].plan_time
    after = once.options(after=ended).enqueue()
    harness.drain()
    results = [app.store.read.executions_of(job.id).executions[0].result for job in (alone, after)]
    assert results == ["None", str(planned)]
