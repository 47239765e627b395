"""Screen 4, the distribution: how even the schedule is, when it is crowded, and making it even."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo
from typing import NamedTuple

from fastapi import Request, Response

from evenbeat import charts, humanize
from evenbeat.api.dependencies import Operator, Service, ServiceDep, Viewer
from evenbeat.balance import PlanPreview, Rebalance
from evenbeat.dashboard import drawings, pages
from evenbeat.dashboard.forms import Form, FormDep, QueryDep, id_of
from evenbeat.dashboard.notices import Notice
from evenbeat.dashboard.spread import present_distribution, renew_distribution
from evenbeat.errors import Conflict, InvalidInput
from evenbeat.placement import Distribution, SkippedJob
from evenbeat.placement.distribution import ACCEPTABLE
from evenbeat.store.placement import UndoResult

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
    "job_running": "It runs right now, or its run is due",
    "protection_window": "Its next run is too near to be moved",
    "placement_cooldown": "It was placed less than an hour ago, or has not run since",
    "pinned": "It is pinned to its times",
    "cron": "It goes by cron, so its times are yours",
    "paused": "It is paused",
    "window": "It has an execution window",
    "changed_meanwhile": "It changed since the preview",
}
"""Why a job stays where it is, in words."""


class Stay(NamedTuple):
    """The jobs that stay for one reason; a few of them by name."""

    words: str
    number: int
    jobs: list[SkippedJob]


@router.get("/distribution", name="distribution")
def distribution(
    request: Request, _viewer: Viewer, service: ServiceDep, query: QueryDep
) -> Response:
    """How even it is now, over the day and the week, and how even it was."""
    told, now, zone = _present(service), pages.now_of(request), pages.zone_of(request)
    day = "load" if query.text("day") == "load" else "count"
    week = "count" if query.text("week") == "count" else "load"
    points = service.app.balancer.history(now - _HISTORY)
    return pages.render(
        request,
        "distribution.html",
        now=now,
        told=told,
        is_even=told.score >= ACCEPTABLE,
        day=day,
        week=week,
        day_chart=_day_chart(told, day, now, zone),
        week_chart=_week_chart(told, week, now, zone),
        score_chart=drawings.score_line(points, zone) if len(points) > 1 else "",
        rebalances=service.app.balancer.rebalances(_PAST),
    )


def _present(service: Service) -> Distribution:
    """How even it is at this moment; with very many jobs, as it was some seconds ago."""
    told = present_distribution(service)
    if told.total_jobs > _FEW_JOBS:
        return told
    renew_distribution(service)
    return present_distribution(service)


# -- rebalancing -----------------------------------------------------------------------------------


@router.get("/distribution/rebalance", name="rebalancing")
def preview(request: Request, _operator: Operator, service: ServiceDep) -> Response:
    """What a rebalance would do, to be agreed to."""
    return _preview(request, service, None)


@router.post("/distribution/rebalance/preview", name="preview_rebalancing")
def preview_bounded(
    request: Request, _operator: Operator, service: ServiceDep, form: FormDep
) -> Response:
    """The same with so many moves at most."""
    try:
        return _preview(request, service, _max_moves(form))
    except InvalidInput as error:
        return _preview(request, service, None, str(error))


@router.post("/distribution/rebalance", name="apply_rebalancing")
def apply_rebalance(
    request: Request, operator: Operator, service: ServiceDep, form: FormDep
) -> Response:
    """Do what was previewed, as far as it still holds."""
    home, plan_id = pages.url(request, "distribution"), form.text("plan_id")
    try:
        done = service.app.balancer.rebalance(
            _max_moves(form), by=operator.subject, plan_id=plan_id or None
        )
    except Conflict:
        text = "Nothing was moved: the schedule has changed since the preview. Look at it again."
        return pages.back(request, home, Notice(text, "refused"))
    renew_distribution(service)
    undo = pages.url(request, "undo_rebalancing", rebalance_id=done.id)
    offer = ("Undo", undo) if done.moved else ("", "")
    return pages.back(request, home, Notice(_told(done), "done", *offer))


@router.get("/distribution/rebalances/{rebalance_id}", name="past_rebalance")
def past_rebalance(
    request: Request, rebalance_id: str, _viewer: Viewer, service: ServiceDep
) -> Response:
    """The moves of one rebalance."""
    moves = service.app.balancer.moves_of(id_of(rebalance_id, "rebalance"))
    return pages.render(
        request,
        "past_rebalance.html",
        now=pages.now_of(request),
        moves=moves[:MOST_SHOWN],
        number=len(moves),
    )


@router.post("/distribution/rebalances/{rebalance_id}/undo", name="undo_rebalancing")
def undo_rebalance(
    request: Request, rebalance_id: str, operator: Operator, service: ServiceDep
) -> Response:
    """Put back what is still where the rebalance put it."""
    home = pages.url(request, "distribution")
    try:
        undone = service.app.balancer.undo(id_of(rebalance_id, "rebalance"), by=operator.subject)
    except Conflict as error:
        return pages.back(request, home, Notice(str(error), "refused"))
    renew_distribution(service)
    return pages.back(request, home, Notice(_told_undone(undone)))


def _max_moves(form: Form) -> int | None:
    text = form.text("max_moves")
    if not text:
        return None
    if not text.isdecimal() or not 1 <= int(text[:9]) <= 1_000_000:
        raise InvalidInput(
            f"At most how many moves? A whole number from 1 to 1,000,000, not {text[:20]!r}.",
            field="max_moves",
        )
    return int(text[:9])


def _preview(
    request: Request, service: Service, max_moves: int | None, problem: str = ""
) -> Response:
    found = service.app.balancer.preview(max_moves)
    return pages.render(
        request,
        "rebalance.html",
        status=422 if problem else 200,
        problem=problem,
        now=found.at,
        plan_id=found.plan_id,
        max_moves=max_moves,
        before=found.plan.before,
        after=found.plan.after,
        moves=found.moves[:MOST_SHOWN],
        number=len(found.moves),
        stays=_stays(found.skipped),
        skipped=len(found.skipped),
        chart=_both(found, pages.zone_of(request)) if found.moves else "",
    )


def _stays(skipped: Sequence[SkippedJob]) -> list[Stay]:
    """Jobs that stay by reason, the commonest first."""
    named: defaultdict[str, list[SkippedJob]] = defaultdict(list)
    for job in skipped:
        if len(named[job.reason]) < _NAMED:
            named[job.reason].append(job)
    numbers = Counter(job.reason for job in skipped)
    return [Stay(REASONS.get(r, r), number, named[r]) for r, number in numbers.most_common()]


def _told(done: Rebalance) -> str:
    if not done.moved:
        return "Nothing was moved: no job could be moved to any gain."
    before, after = done.before, done.after
    stayed = f" {humanize.count(len(done.skipped), 'job')} stayed." if done.skipped else ""
    return (
        f"Moved {humanize.count(len(done.moved), 'job')}: at most {after.workers_needed:,} run at "
        f"once instead of {before.workers_needed:,}, and the score goes from {before.score:.2f} "
        f"to {after.score:.2f}.{stayed}"
    )


def _told_undone(undone: UndoResult) -> str:
    back = f"Put back {humanize.count(len(undone.restored), 'job')}."
    if not undone.left_alone:
        return back
    left = humanize.count(len(undone.left_alone), "job has", "jobs have")
    return f"{back} {left} moved on since and stayed."


# -- charts ----------------------------------------------------------------------------------------


def shifted(slots: Sequence[float], now: datetime, zone: tzinfo) -> list[float]:
    """Slots that begin at midnight UTC, from midnight in another time zone."""
    offset = zone.utcoffset(now.astimezone(zone).replace(tzinfo=None)) or timedelta(0)
    by = -(offset // _SLOT) % max(1, len(slots))
    return [*slots[by:], *slots[:by]]


def _day_chart(told: Distribution, show: str, now: datetime, zone: tzinfo) -> str:
    """Starts by the hour, or the load of every quarter of an hour."""
    if show == "load":
        values, labels, unit = shifted(told.load_per_slot, now, zone), _SLOTS, "at once"
        what = "Expected load in each quarter of an hour of the coming day"
    else:
        starts = shifted(told.starts_per_slot, now, zone)
        values = [sum(starts[hour * 4 : hour * 4 + 4]) for hour in range(24)]
        labels, unit = _HOURS, "starts"
        what = "Runs that start in each hour of the coming day"
    peak = values.index(max(values))
    title = f"{what}; the most at {labels[peak]}: {values[peak]:,.4g}"
    return charts.bars(
        values, title=title, labels=labels, peak_index=peak, unit=unit, width=1080, height=210
    )


def _week_chart(told: Distribution, show: str, now: datetime, zone: tzinfo) -> str:
    week = told.week_starts if show == "count" else told.week_peak
    unit = "starts" if show == "count" else "at once"
    there = now.astimezone(zone)
    present = there.weekday() * 96 + there.hour * 4 + there.minute // 15
    values = shifted(week, now, zone)
    highest = values.index(max(values))
    at = f"{charts.WEEKDAYS[highest // 96]} {_SLOTS[highest % 96]}"
    title = f"A week in quarters of an hour; the most on {at}: {values[highest]:,.4g} {unit}"
    return drawings.heat(values, title=title, unit=unit, now=drawings.Mark(present))


def _both(found: PlanPreview, zone: tzinfo) -> str:
    before, after = found.plan.before, found.plan.after
    return charts.before_after(
        shifted(before.week_peak, found.at, zone),
        shifted(after.week_peak, found.at, zone),
        title="Runs at once over the week",
        notes=(
            f"Now: up to {before.workers_needed:,}, {before.mean_load:,.1f} on average",
            f"After: up to {after.workers_needed:,}",
        ),
        height=380,
    )
