"""Screen 1, the overview: is everything all right, what needs attention, what comes next."""

from datetime import datetime, timedelta

from fastapi import Response

from evenbeat import charts, humanize
from evenbeat.api.dependencies import Viewer
from evenbeat.dashboard import pages
from evenbeat.dashboard.pages import PageDep
from evenbeat.observe.alerts import alerts
from evenbeat.store.runs import RunFilter

router = pages.router()

_NEXT_RUNS = 10
_MOST_CONCERNS = 8
_LOST = ("lease_expired", "stale_timeout")


@router.get("/", name="overview")
def overview(page: PageDep, _viewer: Viewer) -> Response:
    read, service = page.store.read, page.service
    hours, states = read.hourly(now=service.now), read.counts_by_status()
    counted = page.store.upkeep.figures().get("counting")
    completed = [hour.completed for hour in hours]
    failed = [hour.failed for hour in hours]
    ended = sum(completed) + sum(failed)
    # The failures themselves, as the list that the figure leads to counts them.
    since = hours[0].hour
    failures = page.store.runs.summary(RunFilter(statuses=["failed"], since=since, own=True))

    concerns: list[tuple[str, object]] = [
        *(("alert", one) for one in alerts(page.store.database.rows, page.now)),
        *(("failing", one) for one in read.failing_jobs(now=service.now)),
        *(("lost", one) for one in failures.groups if one.error_code in _LOST),
    ]

    def runs_of(hour: datetime, status: str) -> str:
        period = {"since": hour.isoformat(), "until": (hour + timedelta(hours=1)).isoformat()}
        return page.url("runs", query={"status": status} | period)

    distribution, distribution_chart = service.app.balancer.recent_distribution(), None
    if distribution is not None:
        most_at = f"the most at {distribution.peak_hour}:00"
        distribution_chart = charts.bars(
            distribution.jobs_per_hour,
            title=f"Runs planned in each hour of the next day; {most_at}",
            labels=[f"{hour:02d}" for hour in range(24)],
            unit="runs",
            width=460,
            height=150,
        )
    return page.render(
        "overview.html",
        failed=sum(failed) if failures.more else failures.total,
        since=since,
        counted_at=counted and counted.updated_at,
        jobs=sum(states.values()),
        active=sum(states.get(state, 0) for state in ("pending", "scheduled", "running")),
        states=states,
        ended=ended,
        hours_chart=charts.stacked(
            completed,
            failed,
            title=f"Runs that ended in each of the last 24 hours: {humanize.count(ended, 'run')}, "
            f"{sum(failed):,} failed",
            labels=[f"{hour.hour.astimezone(page.zone):%H}" for hour in hours],
            links=[(runs_of(h.hour, "completed"), runs_of(h.hour, "failed")) for h in hours],
        ),
        concerns=concerns[:_MOST_CONCERNS],
        more_concerns=concerns[_MOST_CONCERNS:],
        failing_since={(one.task, one.error_code): one.since for one in failures.groups},
        upcoming=read.upcoming(_NEXT_RUNS),
        following=next(iter(read.upcoming(1, after=page.now)), None),
        distribution=distribution,
        distribution_chart=distribution_chart,
    )
