"""`evenbeat simulate`: the load of a week as it is, and as Evenbeat would place it."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from math import ceil
from pathlib import Path
from typing import Annotated, Any

from rich.console import Group
from rich.text import Text

from evenbeat import charts
from evenbeat.cli.app_loader import database_app
from evenbeat.cli.client import Document, stated
from evenbeat.cli.output import console, heading, print_json, say
from evenbeat.cli.session import DatabaseOption, JsonOption, flag, option
from evenbeat.domain.duration import format_duration, parse_duration
from evenbeat.domain.schedule import Cron, Interval
from evenbeat.domain.window import parse_window
from evenbeat.errors import InvalidInput
from evenbeat.humanize import count
from evenbeat.importers.crontab import is_system, read_crontab
from evenbeat.importers.files import read_job_file, read_text
from evenbeat.importers.plan import schedule_of
from evenbeat.importers.source import ImportSource
from evenbeat.placement.load import score
from evenbeat.placement.simulate import Curve, Forecast, RecurringJob, forecast

_SPARKS = " ▁▂▃▄▅▆▇█"
_MOST_NAMED = 10


def simulate(  # noqa: PLR0917 - the options are named on the command line
    crontab: Annotated[Path | None, option("FILE", "Read the jobs of a crontab.")] = None,
    jobs: Annotated[
        Path | None, option("FILE", "Read a JSON or YAML list of jobs, as `evenbeat import` does.")
    ] = None,
    live: Annotated[bool, flag("--live", "Read the jobs of the database.")] = False,
    slack: Annotated[
        str | None,
        option("DURATION", "Show a third week: cron jobs that name a time have so much slack."),
    ] = None,
    duration: Annotated[
        str, option("DURATION", "How long a run takes unless the cost of its job says so.")
    ] = "60s",
    timezone: Annotated[
        str, option("ZONE", "The time zone of cron unless its job says so.")
    ] = "UTC",
    svg: Annotated[Path | None, option("OUT", "Draw both weeks into an SVG file.")] = None,
    title: Annotated[str, option("TEXT", "The heading of the picture.")] = "",
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> int:
    """Show what balancing would gain: replay a week second by second, before and after.

    Before, jobs run where they are; intervals without an anchor_at all start together. After,
    intervals are placed, inside their windows, and so are cron jobs that only mean an interval,
    such as `0 * * * *` or `0 0 * * *`. Other cron jobs keep their times.
    """
    lasting = parse_duration(duration, field="duration")
    if (crontab is not None) + (jobs is not None) + live != 1:
        raise InvalidInput("Give one of --crontab FILE, --jobs FILE and --live.", field="jobs")
    if crontab is not None:
        origin, system = str(crontab), is_system(crontab.absolute())
        text = read_text(crontab)
        source = read_crontab(text, origin=origin, timezone=timezone, user=None, system=system)
        recurring = recurring_jobs(source, lasting, timezone)
    elif jobs is not None:
        recurring = recurring_jobs(read_job_file(jobs), lasting, timezone)
    else:
        with database_app(database) as app:
            snapshot = app.store.placement.load_snapshot()
        recurring = [RecurringJob.of(job) for job in snapshot if job.status != "paused"]
    if not recurring:
        raise InvalidInput("There is no recurring job to simulate.", field="jobs")
    now, most = datetime.now(UTC), None if slack is None else parse_duration(slack, field="slack")
    result = forecast(recurring, now)
    loose = None if most is None else forecast(recurring, now, most)
    if svg is not None:
        if svg.suffix != ".svg":
            raise InvalidInput(f"--svg {svg}: name a file that ends in .svg.", field="svg")
        try:
            svg.write_text(picture(result, title, loose) + "\n", encoding="utf-8")
        except OSError as error:
            raise InvalidInput(f"{svg} cannot be written: {error.strerror}.", field="svg") from None
    if as_json:
        print_json(document(result, loose))
    else:
        console().print(summary(result, svg, loose), soft_wrap=True)
    return 0


def recurring_jobs(source: ImportSource, lasting: timedelta, timezone: str) -> list[RecurringJob]:
    """The jobs of a source that run again and again."""
    for review in source.reviews:
        say(f"{review.where}: {review.why}")
    jobs: list[RecurringJob] = []
    for one in source.jobs:
        fields: Document = {"timezone": timezone, "cost": lasting, "placement": "balanced"}
        fields |= stated(one.document)
        schedule, cost = schedule_of(fields), parse_duration(fields["cost"], field="cost")
        if isinstance(schedule, Interval | Cron):
            window, stays = fields.get("window"), fields["placement"] != "balanced"
            hours = None if window is None else str(parse_window(window))
            jobs.append(RecurringJob(fields.get("name") or one.where, schedule, cost, stays, hours))
    return jobs


def weeks(result: Forecast, loose: Forecast | None) -> list[tuple[str, Curve, int]]:
    """Each replayed week with its name, and how many workers would suffice for its jobs."""
    before = result.workers_sufficient if loose is None else loose.workers_sufficient
    shown = [("before", result.before, before), ("after", result.after, result.workers_sufficient)]
    if loose is not None:
        shown.append(("slack", loose.after, loose.workers_sufficient))
    return shown


def document(result: Forecast, loose: Forecast | None = None) -> dict[str, Any]:
    """The forecast as JSON; loads are per 15-minute slot of the week, from Monday midnight."""
    curves = {}
    for name, curve, sufficient in weeks(result, loose):
        slots = curve.per_second.reshape(-1, 900)
        curves[name] = {
            "workers_needed": curve.peak,
            "expected_peak": curve.peak,
            "expected_mean": round(curve.mean, 3),
            "workers_sufficient": sufficient,
            "distribution_score": round(score(sufficient, curve.peak), 4),
            "week_load": [round(value, 3) for value in slots.mean(axis=1).tolist()],
            "week_peak": slots.max(axis=1).tolist(),
        }
    return {
        "since": f"{result.since:%Y-%m-%dT%H:%M:%SZ}",
        "total_jobs": result.jobs,
        "workers_sufficient": result.workers_sufficient,
        "placed": result.placed,
        "turned": [
            {"name": job.name, "cron": job.expression, "every": format_duration(job.becomes.every)}
            for job in result.converted
            if isinstance(job.becomes, Interval)
        ],
        "kept": [job._asdict() for job in result.unchanged],
        "loosened": [
            {"name": job.name, "cron": job.expression, "schedule": job.becomes.expression}
            for job in (() if loose is None else loose.converted)
            if isinstance(job.becomes, Cron)
        ],
        "advice": [one._asdict() | {"text": one.text} for one in result.advice],
        "workers_with_advice": result.workers_with_advice,
        **curves,
    }


def picture(result: Forecast, title: str = "", loose: Forecast | None = None) -> str:
    """The week before and after, which is with slack if that is asked for."""
    after, words = result.after, "balanced"
    if loose is not None:
        after, words = loose.after, f"balanced ({result.after.peak:,} workers needed) with slack"
    return charts.before_after(
        result.before.peaks(60),
        after.peaks(60),
        title=title or f"Jobs running at once over a week, {result.jobs:,} jobs",
        notes=(
            f"Before: {result.before.peak:,} workers needed, {result.before.mean:,.1f} on average",
            f"After, {words}: {after.peak:,} workers needed",
        ),
        alone=True,
    )


def summary(result: Forecast, svg: Path | None = None, loose: Forecast | None = None) -> Group:
    """The weeks as lines of blocks on one scale, their figures, and which jobs stay."""
    title = f"{count(result.jobs, 'job')}, the week from {result.since:%A %d %B %Y} (UTC)"
    lines, top = [heading(title)], max(result.before.peak, result.after.peak)
    for name, curve, sufficient in weeks(result, loose):
        colour = "red" if name == "before" else "green"
        figures = (
            f"needs {count(curve.peak, 'worker')} at once, {sufficient:,} would "
            f"suffice; {curve.mean:,.1f} busy on average"
        )
        lines += [Text(), Text(f"{name:<7}", "bold") + Text(figures), *_days(curve, top, colour)]
    fewer = result.before.peak - result.after.peak
    lines.append(Text())
    lines.append(
        Text(f"{count(fewer, 'worker')} fewer." if fewer > 0 else "Nothing to gain: it is even.")
    )
    if result.placed:
        lines.append(Text(f"{count(result.placed, 'interval is', 'intervals are')} placed again."))
    if result.converted:
        words = "cron job becomes a balanced interval", "cron jobs become balanced intervals"
        lines.append(Text(f"{count(len(result.converted), *words)}:"))
        lines += _some([f"{job.expression} -> {job.becomes.text}" for job in result.converted])
    if loose is not None:
        slack = [job for job in loose.converted if isinstance(job.becomes, Cron)]
        lines.append(Text(f"{count(len(slack), 'cron job gets', 'cron jobs get')} slack:"))
        lines += _some([f"{job.expression} -> {job.becomes.text}" for job in slack])
    if result.unchanged:
        words = "job keeps its times", "jobs keep their times"
        lines.append(Text(f"{count(len(result.unchanged), *words)}:"))
        lines += _some([f"{job.schedule} ({job.reason})" for job in result.unchanged])
    lines += [Text(f"{one.text}.") for one in result.advice]
    if result.workers_with_advice is not None and result.workers_with_advice < result.after.peak:
        lines.append(Text(f"That needs {count(result.workers_with_advice, 'worker')} at once."))
    if svg is not None:
        lines.append(Text(f"Drawn into {svg}"))
    return Group(*lines)


def _days(curve: Curve, top: int, colour: str) -> list[Text]:
    """A line for each day; a block is the peak of a quarter of an hour."""
    rows = []
    highest = curve.per_second.reshape(7, 96, 900).max(axis=2).tolist()
    for day, slots in zip(charts.WEEKDAYS, highest, strict=True):
        levels = (ceil((len(_SPARKS) - 1) * value / max(1, top)) for value in slots)
        blocks = Text("".join(_SPARKS[level] for level in levels), colour)
        rows.append(Text(f"  {day} ") + blocks + Text(f" {max(slots):,}"))
    return rows


def _some(lines: Sequence[str]) -> list[Text]:
    """Each line once, with its count, the most frequent first, and no more than a few."""
    counts = Counter(lines).most_common()
    shown = [Text(f"  {line}" + (f"  x {n:,}" if n > 1 else "")) for line, n in counts]
    more = len(shown) - _MOST_NAMED
    return [*shown[:_MOST_NAMED], *([Text(f"  and {more:,} more, see --json")] if more > 0 else [])]
