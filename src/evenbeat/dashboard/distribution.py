"""Screen 4, the distribution: how even the schedule is, when it is crowded, and making it even."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo

from fastapi import Response

from evenbeat import charts
from evenbeat.api.dependencies import Operator, Viewer
from evenbeat.dashboard import pages
from evenbeat.dashboard.pages import Form, FormDep, Notice, PageDep, PageRequest, id_of
from evenbeat.errors import Conflict, InvalidInput
from evenbeat.humanize import count
from evenbeat.placement.rebalancing import SkippedJob

router = pages.router()

MOST_SHOWN = 100
_PAST = 10
_HISTORY = timedelta(days=7)
_SLOT = timedelta(minutes=15)
_NAMED = 12
_FEW_JOBS = 5_000
_HOURS = [f"{hour:02d}" for hour in range(24)]
_SLOTS = [f"{slot // 4:02d}:{slot % 4 * 15:02d}" for slot in range(96)]

REASONS = {
    "job_running": "It is running, or its run is due",
    "protection_window": "Its next run is too near to be moved",
    "placement_cooldown": "It was placed less than an hour ago, or has not run since",
    "pinned": "It is pinned to its times",
    "cron": "It goes by cron, so its times are yours",
    "paused": "It is paused",
    "window": "Its next run waits for its execution window",
    "changed_meanwhile": "It changed since the preview",
}
"""Why a job stays where it is, in words."""


@router.get("/distribution", name="distribution")
def distribution(page: PageDep, _viewer: Viewer) -> Response:
    """How even it is now (with very many jobs: some seconds ago), over the day and the week, and
    how even it was."""
    balancer, now, zone = page.service.app.balancer, page.now, page.zone
    current = balancer.recent_distribution()
    if current is None or current.total_jobs <= _FEW_JOBS:
        current = balancer.distribution()
    day = "load" if page.query.text("day") == "load" else "count"
    if day == "load":
        labels, unit = _SLOTS, "at once"
        values = shifted(current.load_per_slot, now, zone)
        what = "Expected load in each quarter of an hour of the coming day"
    else:
        labels, unit = _HOURS, "starts"
        starts = shifted(current.starts_per_slot, now, zone)
        values = [sum(starts[hour * 4 : hour * 4 + 4]) for hour in range(24)]
        what = "Runs that start in each hour of the coming day"
    peak = values.index(max(values))
    day_chart = charts.bars(
        values,
        title=f"{what}; the most at {labels[peak]}: {values[peak]:,.4g}",
        labels=labels,
        unit=unit,
        width=1080,
        height=210,
    )
    week = "count" if page.query.text("week") == "count" else "load"
    unit = "starts" if week == "count" else "at once"
    slots = shifted(current.week_starts if week == "count" else current.week_peak, now, zone)
    highest, there = slots.index(max(slots)), now.astimezone(zone)
    at = f"{charts.WEEKDAYS[highest // 96]} {_SLOTS[highest % 96]}"
    week_chart = charts.heatmap(
        slots,
        title=f"A week in quarters of an hour; the most on {at}: {slots[highest]:,.4g} {unit}",
        unit=unit,
        now=there.weekday() * 96 + there.hour * 4 + there.minute // 15,
    )
    points = [(point.at, point.score) for point in balancer.history(now - _HISTORY)]
    return page.render(
        "distribution.html",
        current=current,
        day=day,
        week=week,
        day_chart=day_chart,
        week_chart=week_chart,
        score_chart=charts.score_line(points, zone) if len(points) > 1 else "",
        rebalances=balancer.rebalances(_PAST),
    )


def shifted(slots: Sequence[float], now: datetime, zone: tzinfo) -> list[float]:
    """Slots that begin at midnight UTC, from midnight in another time zone."""
    offset = zone.utcoffset(now.astimezone(zone).replace(tzinfo=None)) or timedelta(0)
    by = -(offset // _SLOT) % max(1, len(slots))
    return [*slots[by:], *slots[:by]]


@router.get("/distribution/rebalance", name="rebalancing")
def preview(page: PageDep, _operator: Operator) -> Response:
    return _preview(page, None)


@router.post("/distribution/rebalance/preview", name="preview_rebalancing")
def preview_bounded(page: PageDep, _operator: Operator, form: FormDep) -> Response:
    """The same with so many moves at most."""
    try:
        return _preview(page, _max_moves(form))
    except InvalidInput as error:
        return _preview(page, None, str(error))


@router.post("/distribution/rebalance", name="apply_rebalancing")
def apply_rebalance(page: PageDep, operator: Operator, form: FormDep) -> Response:
    """Do what was previewed, as far as it still holds."""
    home, plan_id = page.url("distribution"), form.text("plan_id") or None
    balancer = page.service.app.balancer
    try:
        done = balancer.rebalance(_max_moves(form), by=operator.subject, plan_id=plan_id)
    except Conflict:
        text = "Nothing was moved: the schedule has changed since the preview. Look at it again."
        return page.back(home, Notice(text, "refused"))
    balancer.distribution()
    if not done.moved:
        return page.back(home, Notice("Nothing was moved: no move would lower the peak."))
    before, after = done.before, done.after
    text = (
        f"Moved {count(len(done.moved), 'job')}: {count(after.workers_needed, 'worker')} needed at "
        f"once instead of {before.workers_needed:,}; {after.workers_sufficient:,} would suffice."
    )
    if done.skipped:
        text += f" {count(len(done.skipped), 'job')} stayed."
    undo = page.url("undo_rebalancing", rebalance_id=done.id)
    return page.back(home, Notice(text, "done", "Undo", undo))


@router.get("/distribution/rebalances/{rebalance_id}", name="past_rebalance")
def past_rebalance(page: PageDep, rebalance_id: str, _viewer: Viewer) -> Response:
    moves = page.service.app.balancer.moves_of(id_of(rebalance_id, "rebalance"))
    return page.render("past_rebalance.html", moves=moves[:MOST_SHOWN], number=len(moves))


@router.post("/distribution/rebalances/{rebalance_id}/undo", name="undo_rebalancing")
def undo_rebalance(page: PageDep, rebalance_id: str, operator: Operator) -> Response:
    """Put back what is still where the rebalance put it."""
    home, balancer = page.url("distribution"), page.service.app.balancer
    try:
        undone = balancer.undo(id_of(rebalance_id, "rebalance"), by=operator.subject)
    except Conflict as error:
        return page.back(home, Notice(str(error), "refused"))
    balancer.distribution()
    text = f"Put back {count(len(undone.restored), 'job')}."
    if undone.left_alone:
        others = count(len(undone.left_alone), "job has", "jobs have")
        text += f" {others} moved on since and stayed."
    return page.back(home, Notice(text))


def _max_moves(form: Form) -> int | None:
    text = form.text("max_moves")
    if text and not (text.isdecimal() and 1 <= int(text[:9]) <= 1_000_000):
        message = "At most how many moves? A whole number from 1 to 1,000,000"
        raise InvalidInput(f"{message}, not {text[:20]!r}.", field="max_moves")
    return int(text[:9]) if text else None


def _preview(page: PageRequest, max_moves: int | None, problem: str = "") -> Response:
    plan = page.service.app.balancer.preview(max_moves)
    before, after, zone = plan.before, plan.after, page.zone
    stays: defaultdict[str, list[SkippedJob]] = defaultdict(list)
    for job in plan.skipped:
        stays[REASONS.get(job.reason, job.reason)].append(job)
    chart = charts.before_after(
        shifted(before.week_peak, plan.at, zone),
        shifted(after.week_peak, plan.at, zone),
        title="Runs at once over the week",
        notes=(
            f"Now: {count(before.workers_needed, 'worker')} needed at once",
            f"After: {after.workers_needed:,}; {after.workers_sufficient:,} would suffice",
        ),
        height=380,
    )
    return page.render(
        "rebalance.html",
        status=422 if problem else 200,
        problem=problem,
        now=plan.at,
        plan_id=plan.plan_id,
        max_moves=max_moves,
        before=before,
        after=after,
        moves=plan.moves[:MOST_SHOWN],
        number=len(plan.moves),
        stays=sorted(stays.items(), key=lambda entry: -len(entry[1])),
        named=_NAMED,
        skipped=len(plan.skipped),
        chart=chart,
    )
