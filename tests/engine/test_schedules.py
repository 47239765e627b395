"""Schedules declared in code: synchronised to the database, scope by scope."""

import multiprocessing
import sys
from datetime import UTC, datetime, timedelta

import pytest

from evenbeat import Context, Evenbeat, Scope, ScopeContext
from evenbeat.errors import InvalidInput, InvalidSchedule
from evenbeat.store.store import Store

START = datetime(2030, 1, 1, tzinfo=UTC)
PERIODIC = {
    "cadence": "5m",
    "run_timeout": "1m",
    "stale_timeout": "2m",
    "heartbeat_interval": "10s",
}


def fresh_app(name: str = "schedules") -> Evenbeat:
    return Evenbeat(name=name)


def test_schedules_are_added_once_and_kept(evenbeat_harness):
    app = fresh_app()

    @app.every("30m")
    def sync() -> None: ...

    @app.cron("0 9 * * mon-fri", timezone="Europe/Berlin", payload={"kind": "daily"})
    async def report(kind: str) -> None: ...

    evenbeat_harness(app, START)
    before = {job.name: job for job in app.store.read.jobs().jobs}
    assert set(before) == {"sync", "report"}
    assert before["report"].payload == {"kind": "daily"}
    assert app.sync_schedules().changed == 0
    assert {job.name: job for job in app.store.read.jobs().jobs} == before


def test_a_task_with_two_schedules_runs_by_both(evenbeat_harness):
    app = fresh_app()

    @app.every("1h", payload={"by": "interval"})
    @app.cron("30 3 * * *", payload={"by": "cron"})
    def both(by: str) -> str:
        return by

    harness = evenbeat_harness(app, START)
    assert {job.name: job.task for job in app.store.read.jobs().jobs} == {
        "both": "both",
        "both-2": "both",
    }
    harness.advance("1d")
    (nightly,) = harness.executions("both")
    assert (nightly.result, nightly.plan_time) == ("cron", START.replace(hour=3, minute=30))
    assert len(harness.executions("both-2")) == 24
    assert app.sync_schedules().changed == 0


def test_a_changed_schedule_is_updated_in_place_and_keeps_its_rhythm(evenbeat_harness):
    app = fresh_app()

    @app.every("30m")
    def sync() -> None: ...

    harness = evenbeat_harness(app, START)
    harness.advance("40m")
    before = app.store.read.job_by_name("sync")

    app.declared.clear()
    app.every("30m", priority=40)(sync.__wrapped__)
    assert app.sync_schedules().updated == ["sync"]
    same_rhythm = app.store.read.job_by_name("sync")
    assert (same_rhythm.id, same_rhythm.priority) == (before.id, 40)
    assert same_rhythm.next_run_at == before.next_run_at

    app.declared.clear()
    app.every("1h", priority=40)(sync.__wrapped__)
    app.sync_schedules()
    new_rhythm = app.store.read.job_by_name("sync")
    assert new_rhythm.interval_seconds == 3600
    assert new_rhythm.next_run_at <= harness.clock.now() + timedelta(hours=1)


def test_a_removed_schedule_is_reported_and_stopped_when_asked(evenbeat_harness):
    app = fresh_app()

    @app.every("10m")
    def gone() -> None: ...

    harness = evenbeat_harness(app, START)
    declared = dict(app.declared)
    app.declared.clear()
    report = app.sync_schedules()
    assert (report.removed, report.stopped) == (["gone"], [])
    assert app.sync_schedules(disable_removed=True).stopped == ["gone"]
    assert app.store.read.job_by_name("gone").status == "paused"
    assert harness.advance("1h") == 0

    app.declared.update(declared)
    assert app.sync_schedules().resumed == ["gone"]
    assert harness.advance("1h") == 6


def test_a_schedule_that_an_operator_paused_stays_paused(evenbeat_harness):
    app = fresh_app()

    @app.every("10m")
    def job() -> None: ...

    harness = evenbeat_harness(app, START)
    app.store.control.pause([app.store.read.job_by_name("job").id], now=harness.clock.now())
    assert app.sync_schedules().changed == 0
    assert harness.advance("1h") == 0


def test_each_scope_has_a_row_and_a_history_of_its_own(evenbeat_harness):
    app = fresh_app()
    tenants = ["a", "b"]
    ran: list[str] = []

    @app.every("1h", scopes=lambda: [Scope("tenant", t) for t in tenants])
    def bill(ctx: Context) -> None:
        ran.append(ctx.scope.id)

    harness = evenbeat_harness(app, START)
    harness.advance("1h")
    assert sorted(ran) == ["a", "b"]

    tenants[:] = ["b", "c"]
    report = app.sync_schedules()
    assert (report.created, report.stopped) == (["bill [tenant/c]"], ["bill [tenant/a]"])
    ran.clear()
    harness.advance("2h")
    assert sorted(ran) == ["b", "b", "c", "c"]
    b = app.store.read.job_by_name("bill", Scope("tenant", "b"))
    assert app.store.read.executions_of(b.id).total == 3

    tenants.append("a")
    assert app.sync_schedules().resumed == ["bill [tenant/a]"]
    ran.clear()
    harness.advance("1h")
    assert sorted(ran) == ["a", "b", "c"]


def test_two_applications_share_a_database_without_touching_each_other(evenbeat_harness):
    one, two = fresh_app("one"), fresh_app("two")
    one.every("1h", name="first")(lambda: None)
    two.every("1h", name="second")(lambda: None)
    evenbeat_harness(one, START)
    two.configure(**{k: one._overrides[k] for k in ("database_url", "db_schema")})
    report = two.sync_schedules(disable_removed=True)
    assert (report.created, report.removed, report.stopped) == (["second"], [], [])
    two.close()


def test_a_name_that_was_made_elsewhere_is_not_taken_over(evenbeat_harness):
    app = fresh_app()

    @app.task
    def job() -> None: ...

    evenbeat_harness(app, START)
    job.options(name="job").enqueue()
    app.every("1h")(job.__wrapped__)
    with pytest.raises(InvalidInput, match="was made elsewhere"):
        app.sync_schedules()


def _sync_in_process(url: str, barrier) -> None:
    app = Evenbeat(url, name="many")
    for n in range(20):
        app.every("1h", name=f"job-{n}")(lambda: None)
    barrier.wait()
    app.sync_schedules()
    app.close()


def test_many_processes_starting_at_once_make_each_schedule_once(database_url):
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(6)
    processes = [
        context.Process(target=_sync_in_process, args=(database_url, barrier)) for _ in range(6)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    store = Store(database_url)
    assert store.read.jobs().total == 20
    store.close()


def test_periodic_jobs_run_for_buckets_with_everything_spelled_out(evenbeat_harness):
    app = fresh_app()
    seen: list[tuple[datetime, str]] = []

    @app.periodic(
        "rollup_hourly", cadence="1h", schedule_delay="5m", catch_up="every_plan",
        catch_up_window="6h", max_plans_per_tick=3, run_timeout="1m", stale_timeout="2m",
        heartbeat_interval="30s", allow_stale_reentry=False, max_attempts=3,
        retry_backoff=["10s", "1m"], scopes=lambda: [Scope("shard", "0"), Scope("shard", "1")],
    )  # fmt: skip
    async def rollup(ctx: Context) -> None:
        seen.append((ctx.plan_time, str(ctx.scope)))

    harness = evenbeat_harness(app, START + timedelta(minutes=30))
    job = app.store.read.job_by_name("rollup_hourly", Scope("shard", "0"))
    assert job.next_run_at == START + timedelta(minutes=5)
    assert (job.max_retries, job.retry_delays_seconds) == (2, [10, 60])
    assert (job.timeout_seconds, job.lease_seconds, job.heartbeat_seconds) == (60, 120, 30)
    assert job.allow_stale_reentry is False
    harness.advance("30m")
    assert sorted(seen) == [(START, f"shard/{n}") for n in (0, 1)]  # the bucket of the present
    seen.clear()
    harness.advance("5m")
    assert sorted(seen) == [(START + timedelta(hours=1), f"shard/{n}") for n in (0, 1)]
    harness.skip("12h")
    seen.clear()
    harness.advance("1m")
    buckets = sorted({plan for plan, _ in seen})
    assert buckets == [START + timedelta(hours=h) for h in range(7, 14)]


@pytest.mark.parametrize(
    ("options", "at", "bucket"),
    [
        ({"cadence": "1h"}, "2030-01-02T10:30", "2030-01-02T10:00"),
        ({"cadence": "1h"}, "2030-01-02T10:00", "2030-01-02T10:00"),
        ({"cadence": "1h", "schedule_delay": "5m"}, "2030-01-02T10:04", "2030-01-02T09:00"),
        ({"cadence": "1h", "schedule_delay": "5m"}, "2030-01-02T10:05", "2030-01-02T10:00"),
        ({"cadence": "7d"}, "2030-01-02T10:30", "2029-12-31T00:00"),  # a Monday
        # What Go's time.Truncate makes of it, whose days count from the year 1.
        ({"cadence": "7h"}, "2030-01-02T10:30", "2030-01-02T08:00"),
        ({"cadence": "1h", "catch_up": "every_plan"}, "2030-01-02T10:30", "2030-01-02T10:00"),
        # A bucket that its policy calls too old is left to the next one.
        ({"cadence": "1h", "catch_up": "skip"}, "2030-01-02T10:30", None),
        ({"cadence": "1h", "catch_up_window": "29m"}, "2030-01-02T10:30", None),
    ],
)
def test_a_periodic_job_begins_with_the_bucket_of_the_present(
    evenbeat_harness, options, at, bucket
):
    app = fresh_app()
    seen: list[datetime] = []

    @app.periodic("rollup", **(PERIODIC | options))
    async def rollup(ctx: Context) -> None:
        seen.append(ctx.plan_time)

    harness = evenbeat_harness(app, datetime.fromisoformat(at).replace(tzinfo=UTC))
    harness.drain()
    assert seen == ([] if bucket is None else [datetime.fromisoformat(bucket).replace(tzinfo=UTC)])
    harness.drain()
    assert app.sync_schedules().changed == 0
    assert len(seen) == (bucket is not None)


def test_weeks_on_the_grid_begin_on_monday_and_a_known_job_keeps_its_own(evenbeat_harness):
    app = fresh_app()

    @app.every("7d", placement="grid")
    async def weekly() -> None: ...

    harness = evenbeat_harness(app, START)  # a Tuesday
    job = app.store.read.job_by_name("weekly")
    assert job.next_run_at == datetime(2030, 1, 7, tzinfo=UTC)
    # As an earlier release had it: weeks from the epoch, which began on a Thursday.
    thursday = {
        "anchor": datetime(1970, 1, 1, tzinfo=UTC),
        "plan": datetime(2030, 1, 3, tzinfo=UTC),
    }
    app.store.database.query(
        "before",
        "UPDATE evenbeat.jobs SET anchor_at = %(anchor)s, plan_time = %(plan)s,"
        " next_run_at = %(plan)s RETURNING id",
        thursday,
    )
    assert app.sync_schedules().changed == 0
    harness.advance("3d")
    assert app.store.read.job(job.id).next_run_at == thursday["plan"] + timedelta(days=7)


def test_a_provider_may_take_the_context_and_the_time(evenbeat_harness):
    app = fresh_app("shop")
    asked: list[tuple[ScopeContext, datetime]] = []

    def even_days(ctx: ScopeContext, now: datetime) -> list[Scope]:
        asked.append((ctx, now))
        return [Scope("day", str(now.day))]

    app.every("1h", name="a", scopes=even_days)(lambda: None)
    app.every("1h", name="b", scopes=lambda *, kind="k": [Scope(kind, "x")])(lambda: None)
    harness = evenbeat_harness(app, START)
    assert asked == [(ScopeContext("a", "shop"), START)]
    harness.skip("1d")
    report = app.sync_schedules()
    assert (report.created, report.stopped) == (["a [day/2]"], ["a [day/1]"])
    assert app.store.read.job_by_name("b", Scope("k", "x")).status == "scheduled"


@pytest.mark.parametrize("scopes", [lambda one: [one], [Scope("a", "b")], 3])
def test_what_cannot_provide_scopes_is_refused_when_it_is_declared(scopes):
    with pytest.raises(InvalidInput, match=r"scopes of 'job' must be .*nothing or \(ctx, now\)"):
        fresh_app().every("1h", name="job", scopes=scopes)(lambda: None)


def no_database() -> list[Scope]:
    raise ConnectionError("no tenants today")


@pytest.mark.parametrize(
    ("provider", "reason"),
    [
        (no_database, "ConnectionError: no tenants today"),
        (lambda: sys.exit(3), "SystemExit: 3"),
        (lambda: ["a"], "TypeError: it returned 'a', which is no Scope"),
        (lambda: None, "TypeError: 'NoneType' object is not iterable"),
    ],
)
def test_a_provider_that_fails_harms_neither_other_schedules_nor_the_workers_start(
    evenbeat_harness, caplog, provider, reason
):
    app, failing = fresh_app("shop"), []

    def tenants() -> list[Scope]:
        return provider() if failing else [Scope("tenant", "a")]

    app.every("1h", name="bill", scopes=tenants)(lambda: None)
    app.every("1h", name="other")(lambda: None)
    evenbeat_harness(app, START)
    failing.append(True)
    app.every("1h", name="new")(lambda: None)
    app.worker()  # starts, and synchronises first
    assert app.store.read.job_by_name("new").status == "scheduled"
    report = app.sync_schedules(disable_removed=True)
    assert (report.failed, report.changed, report.removed) == (["bill"], 0, [])
    assert app.store.read.job_by_name("bill", Scope("tenant", "a")).status == "scheduled"
    (told, _) = (record.getMessage() for record in caplog.records if "provider" in record.msg)
    assert "application's scope provider" in told
    assert "tenants of the schedule 'bill' failed" in told
    assert reason in told


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"cadence": 0}, "cadence must be longer than zero, got 0"),
        ({"cadence": "-5m"}, "cadence"),
        ({"run_timeout": 0}, "run_timeout must be longer than zero, got 0"),
        ({"stale_timeout": "1m"}, "stale_timeout (1m) must be longer than run_timeout (1m)"),
        (
            {"heartbeat_interval": "2m"},
            "stale_timeout (2m) must be longer than heartbeat_interval (2m)",
        ),
        ({"heartbeat_interval": 0}, "heartbeat_interval must be longer than zero, got 0"),
        ({"max_attempts": 0}, "max_attempts must be at least 1, got 0"),
        (
            {"catch_up": "every_plan", "max_plans_per_tick": 0},
            "max_plans_per_tick must be a whole number from 1 to 1,000, got 0",
        ),
        ({"retry_backoff": ["soon"]}, "retry_backoff"),
    ],
)
def test_a_wrong_periodic_spec_names_the_job_and_the_values(change, says):
    app = fresh_app()
    with pytest.raises(InvalidInput) as caught:
        app.periodic("rollup", **(PERIODIC | change))(lambda: None)
    assert "'rollup'" in str(caught.value)
    assert says in str(caught.value)


def nothing() -> None: ...


@pytest.mark.parametrize(
    ("setting", "choices"),
    [
        ("catch_up", "skip, latest_only, every_plan"),
        ("placement", "balanced, grid, pinned"),
        ("on_failure", "continue, stop"),
    ],
)
@pytest.mark.parametrize(
    "declare",
    [
        lambda app, **options: app.task(**options),
        lambda app, **options: app.every("1h", **options),
        lambda app, **options: app.cron("@daily", **options),
        lambda app, **options: app.after("other", **options),
        lambda app, **options: app.periodic("rollup", **(PERIODIC | options)),
    ],
)
def test_an_unknown_choice_in_a_decorator_is_answered_with_the_choices(declare, setting, choices):
    with pytest.raises(InvalidInput, match=f"{setting} must be one of {choices}, got 'latest'"):
        declare(fresh_app(), **{setting: "latest"})(nothing)


@pytest.mark.parametrize("declare", [
    lambda app: app.every("0s"),
    lambda app: app.every("soon"),
    lambda app: app.cron("61 * * * *"),
    lambda app: app.cron("0 9 * * *", timezone="Mars/Olympus"),
])  # fmt: skip
def test_a_bad_schedule_is_refused_where_it_is_declared(declare):
    with pytest.raises((InvalidSchedule, InvalidInput)):
        declare(fresh_app())
