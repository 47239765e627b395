"""`evenbeat simulate`: the load of a week as it is, and as Evenbeat would place it."""

from pathlib import Path
from typing import Annotated

import typer

from evenbeat.domain.duration import parse_duration
from evenbeat.domain.moments import zone_named
from evenbeat.errors import InvalidInput


def simulate(  # noqa: PLR0917 - the options are named on the command line
    crontab: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Read the jobs of a crontab.")
    ] = None,
    jobs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Read a JSON or YAML list: name, every (or cron, or interval_minutes and "
            "interval_type), timezone, duration, next_run_at, placement.",
        ),
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="Read the jobs of the database.")] = False,
    duration: Annotated[
        str, typer.Option(metavar="DURATION", help="How long a run takes where nothing tells.")
    ] = "60s",
    timezone: Annotated[
        str, typer.Option(metavar="ZONE", help="The time zone of cron where nothing tells.")
    ] = "UTC",
    svg: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Draw both weeks into an SVG file.")
    ] = None,
    title: Annotated[str, typer.Option(help="The heading of the picture.")] = "",
    database: Annotated[
        str | None, typer.Option(metavar="URL", help="With --live: the PostgreSQL database.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
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
    from evenbeat.cli import forecasting  # noqa: PLC0415 - NumPy, for those who need it

    if crontab is not None:
        known = forecasting.read_crontab(crontab, lasting, timezone)
    elif jobs is not None:
        known = forecasting.read_list(jobs, lasting, timezone)
    else:
        known = forecasting.read_live(database)
    forecasting.show(known, svg=svg, title=title, as_json=as_json)
    return 0
