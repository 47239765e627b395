"""`evenbeat simulate`: the load of a week as it is, and as Evenbeat would place it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import ceil
from pathlib import Path
from typing import Annotated, Any

from rich.console import Group
from rich.text import Text

from evenbeat import charts
from evenbeat.cli.app_loader import database_app
from evenbeat.cli.output import console, heading, print_json
from evenbeat.cli.session import DatabaseOption, JsonOption, flag, option
from evenbeat.domain.duration import format_duration, parse_duration
from evenbeat.domain.moments import zone_named
from evenbeat.domain.schedule import Cron, Interval
from evenbeat.errors import InvalidInput
from evenbeat.humanize import count
from evenbeat.importers.crontab import CrontabEntry, UnusableLine, lines
from evenbeat.importers.files import LINE, job_rows, line_of, load_file, read_text
from evenbeat.importers.source import excerpt, moment_of
from evenbeat.placement.simulate import Curve, Forecast, RecurringJob, forecast

_SPARKS = " ▁▂▃▄▅▆▇█"
_MOST_NAMED = 10
_FORMS = ("every", "cron", "interval_minutes")
_FIELDS = ("name", *_FORMS, "interval_type", "timezone", "duration", "next_run_at", "placement")
_UNITS = {"minutes": 60, "hours": 3600, "days": 86_400}
_PLACEMENTS = ("balanced", "grid", "pinned")
_LISTED = '[{"name": "report", "every": "6h", "duration": "90s"}, {"cron": "0 0 * * *"}]'


def simulate(  # noqa: PLR0917 - the options are named on the command line
    crontab: Annotated[Path | None, option("FILE", "Read the jobs of a crontab.")] = None,
    jobs: Annotated[
        Path | None,
        option(
            "FILE",
            "Read a JSON or YAML list: name, every (or cron, or interval_minutes and "
            "interval_type), timezone, duration, next_run_at, placement.",
        ),
    ] = None,
    live: Annotated[bool, flag("--live", "Read the jobs of the database.")] = False,
    duration: Annotated[
        str, option("DURATION", "How long a run takes unless its job says so.")
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

    Before, jobs run where they are; intervals without a next_run_at all start together. After,
    intervals are placed, and so are cron jobs that only mean an interval, such as `0 * * * *` or
    `0 0 * * *`. Other cron jobs keep their times.
    """
    lasting = parse_duration(duration, field="duration")
    zone_named(timezone, error=InvalidInput)
    if (crontab is not None) + (jobs is not None) + live != 1:
        raise InvalidInput("Give one of --crontab FILE, --jobs FILE and --live.", field="jobs")
    if crontab is not None:
        recurring = read_crontab(crontab, lasting, timezone)
    elif jobs is not None:
        recurring = read_list(jobs, lasting, timezone)
    else:
        with database_app(database) as app:
            snapshot = app.store.placement.load_snapshot()
        if not snapshot:
            raise InvalidInput("The database holds no recurring jobs yet.", field="live")
        recurring = [RecurringJob.of(job) for job in snapshot if job.status != "paused"]
    result = forecast(recurring, datetime.now(UTC))
    if svg is not None:
        if svg.suffix != ".svg":
            raise InvalidInput(f"--svg {svg}: name a file that ends in .svg.", field="svg")
        try:
            svg.write_text(picture(result, title) + "\n", encoding="utf-8")
        except OSError as error:
            raise InvalidInput(f"{svg} cannot be written: {error.strerror}.", field="svg") from None
    if as_json:
        print_json(document(result))
    else:
        console().print(summary(result, svg), soft_wrap=True)
    return 0


def read_crontab(path: Path, lasting: timedelta, timezone: str) -> list[RecurringJob]:
    """The jobs of a crontab, of a user or of the system: who runs a command does not matter here.
    `@reboot` has no place in a week."""
    jobs: list[RecurringJob] = []
    for line in lines(read_text(path), timezone):
        if isinstance(line, UnusableLine) and not line.at_start:
            raise InvalidInput(f"{path}, line {line.number}: {line.why}", field="crontab")
        if isinstance(line, CrontabEntry):
            jobs.append(RecurringJob(line.raw, line.cron, line.duration or lasting))
    if not jobs:
        raise InvalidInput(f"{path} holds no jobs, such as: 0 * * * * /usr/local/bin/sync.")
    return jobs


def read_list(path: Path, lasting: timedelta, timezone: str) -> list[RecurringJob]:
    """The jobs of a JSON or YAML list, or of one under the key `jobs`."""
    jobs: list[RecurringJob] = []
    for number, row in enumerate(job_rows(load_file(path), path, _LISTED), start=1):
        try:
            jobs.append(_recurring(row, f"job {number}", lasting, timezone))
        except InvalidInput as error:
            where = f"{path}, job {number}{line_of(row)}"
            raise InvalidInput(f"{where}: {error}", field="jobs") from error
    if not jobs:
        raise InvalidInput(f"{path} holds no jobs, such as {_LISTED}.")
    return jobs


def _recurring(row: Any, name: str, lasting: timedelta, timezone: str) -> RecurringJob:
    if not isinstance(row, Mapping):
        raise InvalidInput(f"a job is a set of fields, not {excerpt(row)}.")
    row = {"name": name, "timezone": timezone, "duration": lasting, **row}
    row.pop(LINE, None)
    if unknown := [str(key) for key in row if key not in _FIELDS]:
        raise InvalidInput(f"there is no field {unknown[0]!r}. Fields are {', '.join(_FIELDS)}.")
    forms = [key for key in _FORMS if row.get(key) is not None]
    if len(forms) != 1:
        not_these = f", not {' and '.join(forms)}" if forms else ""
        raise InvalidInput(f"give exactly one of every, cron and interval_minutes{not_these}.")
    value, unit = row[forms[0]], row.get("interval_type", "minutes")
    placement, next_run_at = row.get("placement", "balanced"), row.get("next_run_at")
    texts = {key: row[key] for key in ("name", "timezone")}
    if forms == ["cron"]:
        texts["cron"] = value
    for key, text in texts.items():
        if not isinstance(text, str) or not text.strip():
            raise InvalidInput(f"{key} must be text, not {excerpt(text)}.")
    for key, word, words in (
        ("placement", placement, _PLACEMENTS),
        ("interval_type", unit, tuple(_UNITS)),
    ):
        if word not in words:
            raise InvalidInput(f"{key} is {', '.join(words)}, not {excerpt(word)}.")
    if forms == ["interval_minutes"]:
        if type(value) is not int or value < 1:
            raise InvalidInput(
                f"interval_minutes is a whole number from 1 on, not {excerpt(value)}."
            )
        value *= _UNITS[unit]
    first = None if next_run_at is None else moment_of(next_run_at, "next_run_at")
    schedule = (
        Cron(value, row["timezone"])
        if forms == ["cron"]
        else Interval(parse_duration(value, field=forms[0]), first)
    )
    duration = parse_duration(row["duration"], field="duration")
    return RecurringJob(row["name"], schedule, duration, placement != "balanced")


def document(result: Forecast) -> dict[str, Any]:
    """The forecast as JSON; loads are per 15-minute slot of the week, from Monday midnight."""
    curves = {}
    for name, curve in (("before", result.before), ("after", result.after)):
        slots = curve.per_second.reshape(-1, 900)
        curves[name] = {
            "workers_needed": curve.peak,
            "expected_peak": curve.peak,
            "expected_mean": round(curve.mean, 3),
            "distribution_score": round(curve.score, 4),
            "week_load": [round(value, 3) for value in slots.mean(axis=1).tolist()],
            "week_peak": slots.max(axis=1).tolist(),
        }
    return {
        "since": f"{result.since:%Y-%m-%dT%H:%M:%SZ}",
        "total_jobs": result.jobs,
        "placed": result.placed,
        "turned": [
            {"name": job.name, "cron": job.expression, "every": format_duration(job.every)}
            for job in result.converted
        ],
        "kept": [job._asdict() for job in result.unchanged],
        **curves,
    }


def picture(result: Forecast, title: str = "") -> str:
    before, after = (
        f"{name}: {curve.peak:,} workers needed, {curve.mean:,.1f} busy on average"
        for name, curve in (("Before", result.before), ("After", result.after))
    )
    return charts.before_after(
        result.before.peaks(60),
        result.after.peaks(60),
        title=title or f"Jobs running at once over a week, {result.jobs:,} jobs",
        notes=(before, after),
        alone=True,
    )


def summary(result: Forecast, svg: Path | None = None) -> Group:
    """Two weeks as lines of blocks on one scale, their figures, and which jobs stay."""
    title = f"{count(result.jobs, 'job')}, the week from {result.since:%A %d %B %Y} (UTC)"
    lines, top = [heading(title)], max(result.before.peak, result.after.peak)
    for name, curve, colour in (("before", result.before, "red"), ("after", result.after, "green")):
        figures = (
            f"{curve.peak:,} at once at most, {curve.mean:,.1f} on average: "
            f"{count(curve.peak, 'worker')}, score {curve.score:.2f}"
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
        lines += _some([f"{j.expression} -> {format_duration(j.every)}" for j in result.converted])
    if result.unchanged:
        words = "job keeps its times", "jobs keep their times"
        lines.append(Text(f"{count(len(result.unchanged), *words)}:"))
        lines += _some([f"{job.schedule} ({job.reason})" for job in result.unchanged])
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
