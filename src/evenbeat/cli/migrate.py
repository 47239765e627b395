"""`evenbeat migrate`: bring the database's schema up to what this Evenbeat knows.

Every process migrates by itself when it starts; this is for those who want it done before, by a
user who may create tables, or who only want to know.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import psycopg
import typer

from evenbeat import embedded
from evenbeat.app import Evenbeat
from evenbeat.cli.output import print_json
from evenbeat.cli.session import DatabaseOption, JsonOption
from evenbeat.cli.worker import check_database, configured, database_place
from evenbeat.settings import Settings
from evenbeat.store import migrate as store_migrate


def migrate(
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit with 1 when something is missing.")
    ] = False,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> int:
    """Apply the migrations that the database lacks, and say which."""
    settings = configured(Evenbeat(), None, database).settings
    check_database(settings)
    known = {step.version: step.name for step in store_migrate.migrations()}
    with _server(settings) as url:
        if check:
            with psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
                version = store_migrate.schema_version(connection, settings.db_schema)
            missing = [number for number in known if number > version]
            applied: list[int] = []
        else:
            applied = store_migrate.migrate(url, settings.db_schema)
            version, missing = max(known), []
    document = {"version": version, "newest": max(known), "applied": applied, "missing": missing}
    if as_json:
        print_json(document)
    else:
        typer.echo(_told(known, document, database_place(settings)))
    return 1 if check and (missing or version > max(known)) else 0


def _told(known: dict[int, str], document: dict[str, object], place: str) -> str:
    steps = {
        word: [f"{number:04} {known[number]}" for number in known if number in numbers]
        for word in ("applied", "missing")
        if isinstance(numbers := document[word], list)
    }
    where = f"The schema in {place} is at version {document['version']}"
    if steps["applied"]:
        return f"{where}. Applied: {', '.join(steps['applied'])}."
    if steps["missing"]:
        return f"{where}. Missing: {', '.join(steps['missing'])}. `evenbeat migrate` applies them."
    if document["version"] != document["newest"]:
        return f"{where}, newer than this Evenbeat, which knows {document['newest']}: upgrade it."
    return f"{where}, the newest. Nothing to do."


@contextmanager
def _server(settings: Settings) -> Iterator[str]:
    """The URL of the database; the embedded server runs while it is needed."""
    if settings.database_url is not None:
        yield settings.database_url.get_secret_value()
        return
    with embedded.start(settings.server_dir) as server:
        yield server.url
