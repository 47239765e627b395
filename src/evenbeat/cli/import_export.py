"""`evenbeat import` and `evenbeat export`: move in from cron, Celery, APScheduler or Evenbeat's own
files, and write such a file."""

import getpass
from pathlib import Path
from typing import Annotated

from evenbeat.cli.client import Document
from evenbeat.cli.output import say, write
from evenbeat.cli.run_import import all_jobs, all_of, run_import
from evenbeat.cli.session import ApiSession, CommandGroup, api_command, argument, flag, option
from evenbeat.domain.duration import parse_duration
from evenbeat.domain.webhooks import TASK as DELIVERY
from evenbeat.errors import EvenbeatError, InvalidInput
from evenbeat.humanize import count
from evenbeat.importers.celery_beat import celery_app_in, read_celery
from evenbeat.importers.crontab import is_system, local_timezone, read_crontab
from evenbeat.importers.files import (
    FORMATS,
    STDIN,
    definition_of,
    read_job_file,
    read_text,
    template_of,
    written,
)
from evenbeat.importers.source import Balance

_LIVE = "pending,scheduled,running,paused"

import_cli = CommandGroup(
    "Import jobs from cron and other schedulers. Without --apply, only the plan is shown. "
    "Importing again changes what has changed and adds what is new."
)

FileArgument = Annotated[Path, argument("FILE", "The file; - is standard input.")]
BalanceOption = Annotated[
    bool,
    flag(
        "--balance",
        "Turn cron that only says how often, such as '0 * * * *', into balanced intervals.",
    ),
]
SlackOption = Annotated[
    str | None,
    option("DURATION", "Let cron that names a time start up to so much later, by load: 2h."),
]
ApplyOption = Annotated[bool, flag("--apply", "Do it. Without it, only show the plan.")]


def balance_of(intervals: bool, slack: str | None) -> Balance:
    return Balance(intervals, None if slack is None else parse_duration(slack, field="slack"))


@import_cli.api_command()
def crontab(  # noqa: PLR0917 - the options are named on the command line
    session: ApiSession,
    file: FileArgument,
    user: Annotated[
        str | None, option("USER", "The user that workers run as. Default: who runs this command.")
    ] = None,
    system: Annotated[
        bool,
        flag("--system", "Lines name a user, as in /etc/crontab and /etc/cron.d (known there)."),
    ] = False,
    timezone: Annotated[
        str | None,
        option("ZONE", "What times are read in. Default: the time zone of this machine."),
    ] = None,
    balance: BalanceOption = False,
    slack: SlackOption = None,
    apply: ApplyOption = False,
) -> int:
    """Import a crontab: each line becomes a job of the task `shell`.

    `crontab -l | evenbeat import crontab -` shows what would become of your own.
    """
    text = read_text(file)
    zone = timezone or local_timezone()
    if timezone is None:
        say(f"Times are read in {zone}, the time zone of this machine; --timezone names another.")
    source = read_crontab(
        text,
        origin="stdin" if file == STDIN else str(file.absolute()),
        timezone=zone,
        user=user or getpass.getuser(),
        system=system or is_system(file.absolute()),
        balance=balance_of(balance, slack),
    )
    return run_import(session, source, apply=apply)


@import_cli.api_command()
def celery(
    session: ApiSession,
    module: Annotated[
        str, argument("MODULE[:APP]", "The application with the beat schedule: shop.celery:app.")
    ],
    balance: BalanceOption = False,
    slack: SlackOption = None,
    apply: ApplyOption = False,
) -> int:
    """Import Celery's beat schedule: each entry becomes a job of the task that it names.

    The module is imported, as `celery beat` would do; no broker is asked.
    """
    from evenbeat.cli.app_loader import BrokenApp, load_module  # noqa: PLC0415

    where, _, attribute = module.partition(":")
    app = celery_app_in(load_module(where), attribute or None)
    try:
        source = read_celery(app, origin=where, balance=balance_of(balance, slack))
    except EvenbeatError:
        raise
    except Exception as error:  # its configuration is the user's code, too
        raise BrokenApp(where, error) from error
    return run_import(session, source, apply=apply)


@import_cli.api_command()
def apscheduler(  # noqa: PLR0917 - the options are named on the command line
    session: ApiSession,
    store: Annotated[str, argument("URL", "The SQLAlchemyJobStore: sqlite:///jobs.sqlite, …")],
    trust: Annotated[
        bool, flag("--trust", "Read it although it holds pickles: you know who wrote into it.")
    ] = False,
    table: Annotated[str, option("NAME", "The table of the store.")] = "apscheduler_jobs",
    balance: BalanceOption = False,
    slack: SlackOption = None,
    apply: ApplyOption = False,
) -> int:
    """Import the jobs of APScheduler 3 from its SQLAlchemyJobStore.

    Each becomes a job of the task that is named as its function.
    """
    if not trust:
        raise InvalidInput(
            "APScheduler keeps jobs as pickles, and a pickle can be made to do harm when it is "
            "read. If you know who can write into this store, and trust them, give --trust.",
            field="trust",
        )
    from evenbeat.cli.app_loader import make_importable  # noqa: PLC0415
    from evenbeat.importers.apscheduler import read_apscheduler  # noqa: PLC0415

    make_importable(Path.cwd())
    source = read_apscheduler(
        store, now=session.client.now(), table=table, balance=balance_of(balance, slack)
    )
    return run_import(session, source, apply=apply)


@import_cli.api_command("json")
def json_(session: ApiSession, file: FileArgument, apply: ApplyOption = False) -> int:
    """Import a JSON list of jobs, as `evenbeat export` writes it."""
    return run_import(session, read_job_file(file, "json"), apply=apply)


@import_cli.api_command("yaml")
def yaml_(session: ApiSession, file: FileArgument, apply: ApplyOption = False) -> int:
    """Import a YAML list of jobs, as `evenbeat export --format yaml` writes it."""
    return run_import(session, read_job_file(file, "yaml"), apply=apply)


@api_command
def export(
    session: ApiSession,
    filters: Document,
    form: Annotated[str, option("FORMAT", "json or yaml.", "--format")] = "json",
    out: Annotated[
        Path | None, option("FILE", "Write into this file. Default: standard output.")
    ] = None,
) -> int:
    """Write job definitions to a file or standard output, without their history.

    `evenbeat import json` reads them. Jobs that have ended are left out unless --status asks for
    them: importing one would run it again. Those of a backfill belong to their job, and deliveries
    of webhooks to this database. Templates are written, too, unless a filter is given.
    """
    if session.as_json:
        form = "json"
    if form not in FORMATS:
        raise InvalidInput(f"--format is {' or '.join(FORMATS)}, not {form!r}.", field="format")
    jobs = all_jobs(session.client, **({"status": [_LIVE]} | filters))
    definitions = [
        definition_of(job) for job in jobs if job["parent_id"] is None and job["task"] != DELIVERY
    ]
    templates = [] if filters else list(map(template_of, all_of(session.client, "templates")))
    text = written(definitions, form, templates)
    if out is None:
        write(text, end="")
        return 0
    try:
        out.touch(mode=0o600)
        out.chmod(0o600)  # for its owner alone, also where it was there: payloads may hold secrets
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{out} cannot be written: {error.strerror}.", field="out") from None
    also = f" and {count(len(templates), 'template')}" if templates else ""
    say(f"{count(len(definitions), 'job')}{also} written into {out}.")
    return 0
