"""`evenbeat migrate` and `evenbeat doctor`: commands on the database itself.

Every process migrates by itself when it starts, unless EVENBEAT_MIGRATE is off; `migrate` is for
doing it beforehand, as a user who may create tables, or for only finding out. `doctor` also works
when the schema is missing, behind or too new; with a URL it asks the service how its own database
fares.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import psycopg
from rich.text import Text

from evenbeat.cli.client import connected, service_url
from evenbeat.cli.output import print_json, safe, show, write
from evenbeat.cli.session import DatabaseOption, JsonOption, TokenOption, UrlOption, flag
from evenbeat.humanize import count

if TYPE_CHECKING:
    from evenbeat.settings import Settings

_SIGNS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "error": ("✗", "red")}


def migrate(
    check: Annotated[
        bool, flag("--check", "Change nothing; exit with 1 when something is missing.")
    ] = False,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> int:
    """Apply the migrations that the database lacks, and say which."""
    from evenbeat.cli.app_loader import database_app, database_place  # noqa: PLC0415
    from evenbeat.store import migrate as migrations  # noqa: PLC0415 - `doctor --url` needs neither

    settings = database_app(database).settings
    known = {step.version: step.name for step in migrations.migrations()}
    newest = max(known)
    with _database_url(settings) as url:
        applied = [] if check else migrations.migrate(url, settings.db_schema)
        with psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
            present = migrations.applied_migrations(connection, settings.db_schema)
    version = present[-1].version if present else 0
    missing = [number for number in known if number > version]
    is_usable = migrations.usable(present, newest)

    def named(numbers: list[int]) -> str:
        return ", ".join(f"{number:04} {known[number]}" for number in numbers)

    text = f"The schema in {database_place(settings)} is at version {version}"
    if applied:
        text += f". Applied: {named(applied)}."
    elif missing:
        text += f". Missing: {named(missing)}. `evenbeat migrate` applies them."
    elif not is_usable:
        text += f", newer than this Evenbeat, which knows {newest}: upgrade it."
    elif version != newest:
        text += f", newer than this Evenbeat, which knows {newest} and can use it."
    else:
        text += ", the newest. Nothing to do."
    if as_json:
        print_json({"version": version, "newest": newest, "applied": applied, "missing": missing})
    else:
        write(text)
    return 1 if missing or not is_usable else 0


def doctor(
    url: UrlOption = None,
    token: TokenOption = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> int:
    """Check the database, its version, clock, rows and transactions, and the workers.

    The exit code is 1 when something is wrong that keeps jobs from running well, and 0 when there
    are only warnings.
    """
    if service_url(url, database) is not None:
        with connected(url, token, database) as client:
            report = client.get("/api/v1/scheduler/doctor")
    else:
        from evenbeat.app import Evenbeat  # noqa: PLC0415 - a service would do all of it
        from evenbeat.cli.app_loader import configured  # noqa: PLC0415
        from evenbeat.observe.doctor import check, worst  # noqa: PLC0415

        settings = configured(Evenbeat(), database=database).settings
        with _database_url(settings) as database_url:
            findings = check(database_url, schema=settings.db_schema)
        report = {"worst": worst(findings), "findings": [one._asdict() for one in findings]}
    if as_json:
        print_json(report)
        return 1 if report["worst"] == "error" else 0
    severities = [finding["severity"] for finding in report["findings"]]
    errors, warnings = severities.count("error"), severities.count("warning")
    lines = []
    for finding in report["findings"]:
        sign, style = _SIGNS[finding["severity"]]
        lines.append(Text.assemble((f"{sign} ", style), safe(finding["title"])))
        more = () if finding["severity"] == "ok" else (finding["detail"], finding["remedy"])
        lines += [Text(f"    {safe(text)}") for text in more if text]
    summary = f"{count(errors, 'error')}, {count(warnings, 'warning')}."
    show(*lines, "", Text(summary if errors or warnings else "All is well.", style="bold"))
    return 1 if errors else 0


@contextmanager
def _database_url(settings: "Settings") -> Iterator[str]:
    """The URL of the database; the embedded server runs while it is needed."""
    if settings.database_url is not None:
        yield settings.database_url.get_secret_value()
        return
    from evenbeat import embedded  # noqa: PLC0415 - seldom needed

    with embedded.start(settings.server_dir) as server:
        yield server.url
