"""A month of mixed schedules on the virtual clock, with an outage in the middle."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from evenbeat import Context, Evenbeat
from evenbeat.domain.schedule import Cron
from evenbeat.domain.window import parse_window

START = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)  # the clocks in Berlin go forward on 29 March
OUTAGE = datetime(2026, 3, 20, 12, 0, tzinfo=UTC)
BACK = OUTAGE + timedelta(days=3)
END = START + timedelta(days=30)
HOUR = timedelta(hours=1)
NIGHTS = "Mon-Fri 22:00-06:00 Europe/Berlin"


def make_app(seen: dict[str, list[tuple[datetime, int]]]) -> Evenbeat:
    app = Evenbeat(name="month")

    def note(ctx: Context) -> None:
        seen.setdefault(ctx.job.task, []).append((ctx.plan_time, ctx.attempt))

    @app.every("6h", placement="grid")
    async def rollup(ctx: Context) -> None:
        note(ctx)

    @app.every("7h")
    def odd(ctx: Context) -> None:
        note(ctx)

    @app.cron("30 2 * * *", timezone="Europe/Berlin")
    async def nightly(ctx: Context) -> None:
        note(ctx)

    @app.every("1d", placement="grid", catch_up="every_plan")
    async def ledger(ctx: Context) -> None:
        note(ctx)

    @app.every("12h", placement="grid", catch_up="skip")
    async def digest(ctx: Context) -> None:
        note(ctx)

    @app.every("8h", placement="grid", window=NIGHTS)
    async def heavy(ctx: Context) -> None:
        note(ctx)

    @app.cron("0 9 * * mon", retry_backoff="10m", max_retries=2)
    async def flaky(ctx: Context) -> None:
        note(ctx)
        if ctx.attempt < 3:
            raise RuntimeError("not yet")

    return app


def plans(seen: list[tuple[datetime, int]]) -> list[datetime]:
    return [plan for plan, _ in seen]


def grid(every: timedelta, start: datetime, end: datetime) -> list[datetime]:
    """Every multiple of the interval in (start, end]."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    first = epoch + ((start - epoch) // every + 1) * every
    return [first + k * every for k in range((end - first) // every + 1)]


def test_a_month_of_plans_is_exactly_as_promised(evenbeat_harness):
    seen: dict[str, list[tuple[datetime, int]]] = {}
    harness = evenbeat_harness(make_app(seen), START)
    harness.advance(OUTAGE - START)
    harness.skip(BACK - OUTAGE)
    harness.advance(END - BACK)

    # latest_only: of the plans that the outage swallowed, the newest runs when it ends.
    swallowed = grid(6 * HOUR, OUTAGE, BACK)
    assert plans(seen["rollup"]) == (
        grid(6 * HOUR, START, OUTAGE) + swallowed[-1:] + grid(6 * HOUR, BACK, END)
    )
    odd = plans(seen["odd"])
    assert START < odd[0] <= START + 7 * HOUR, "balanced: where there is room, within an interval"
    assert {(plan - odd[0]) % (7 * HOUR) for plan in odd} == {timedelta(0)}, "the rhythm drifted"
    assert sum(OUTAGE < plan <= BACK for plan in odd) == 1

    # A fixed local time fires once a day, also on the day on which 02:30 does not exist.
    berlin = ZoneInfo("Europe/Berlin")
    nightly = [plan.astimezone(berlin) for plan in plans(seen["nightly"])]
    days = [START.date() + timedelta(days=n) for n in range(1, 31)]
    lost = {OUTAGE.date() + timedelta(days=n) for n in (1, 2)}
    assert [moment.date() for moment in nightly] == [day for day in days if day not in lost]
    assert all(
        (moment.hour, moment.minute) == ((3, 0) if moment.day == 29 else (2, 30))
        for moment in nightly
    )

    # every_plan: nothing is left out. skip: only what came due in time runs.
    assert plans(seen["ledger"]) == grid(timedelta(days=1), START, END)
    assert plans(seen["digest"]) == grid(12 * HOUR, START, OUTAGE) + grid(
        12 * HOUR, BACK - timedelta(seconds=1), END
    )

    # Retries keep their plan.
    mondays = [m for m in Cron("0 9 * * mon").preview(START, 5) if m <= END]
    assert seen["flaky"] == [(monday, attempt) for monday in mondays for attempt in (1, 2, 3)]
    assert all(e.status == "completed" for e in harness.executions("flaky")[2::3])


def test_windows_defer_but_never_move_the_plan(evenbeat_harness):
    seen: dict[str, list[tuple[datetime, int]]] = {}
    app = make_app(seen)
    harness = evenbeat_harness(app, START)
    harness.advance("14d")
    window = parse_window(NIGHTS)
    runs = harness.executions("heavy")
    assert runs
    assert all(window.contains(run.started_at) for run in runs)
    assert [run.plan_time for run in runs] == sorted({run.plan_time for run in runs})
    late = [run for run in runs if run.started_at > run.plan_time]
    assert late, "no plan fell outside the window"
    assert all(run.started_at == window.next_open(run.started_at) for run in late)
    assert all(plan in grid(8 * HOUR, START, END) for plan in plans(seen["heavy"]))
