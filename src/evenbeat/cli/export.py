"""`evenbeat export`: write the definitions of jobs out."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from evenbeat.cli.choosing import (
    KindOption,
    QueueOption,
    SearchOption,
    StatusOption,
    TagOption,
    TaskOption,
)
from evenbeat.cli.client import Document
from evenbeat.cli.importing import pages
from evenbeat.cli.output import say
from evenbeat.cli.session import Session, asking
from evenbeat.domain.webhooks import TASK as DELIVERY
from evenbeat.errors import InvalidInput
from evenbeat.humanize import count
from evenbeat.importers.export import FORMATS, definition_of, template_of, written

_LIVE = "pending,scheduled,running,paused"


@asking
def export(  # noqa: PLR0917 - the options are named on the command line
    session: Session,
    form: Annotated[str, typer.Option("--format", metavar="FORMAT", help="json or yaml.")] = "json",
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write into this file. Default: standard output."),
    ] = None,
    status: StatusOption = None,
    queue: QueueOption = None,
    task: TaskOption = None,
    kind: KindOption = None,
    tag: TagOption = None,
    search: SearchOption = None,
) -> int:
    """Write the definitions of jobs out, without what has happened to them since.

    `evenbeat import json` reads them. Jobs that have ended are left out unless --status asks for
    them: importing one would run it again. Those of a backfill belong to their job, and deliveries
    of webhooks to this database. Templates are written, too, unless a filter is given.
    """
    if session.as_json:
        form = "json"
    if form not in FORMATS:
        raise InvalidInput(f"--format is {' or '.join(FORMATS)}, not {form!r}.", field="format")
    chosen = pages(
        session.client,
        status=status or [_LIVE],
        queue=queue,
        task=task,
        kind=kind,
        tag=tag,
        search=search,
    )
    definitions = [
        definition_of(job) for job in chosen if job["parent_id"] is None and job["task"] != DELIVERY
    ]
    everything = not any((status, queue, task, kind, tag, search))
    templates = [template_of(one) for one in _templates(session)] if everything else []
    text = written(definitions, form, templates)
    if out is None:
        typer.echo(text, nl=False)
    else:
        _write(out, text)
        also = f" and {count(len(templates), 'template')}" if templates else ""
        say(f"{count(len(definitions), 'job')}{also} written into {out}.")
    return 0


def _templates(session: Session) -> Iterator[Document]:
    offset = 0
    while found := session.client.get("/api/v1/templates", limit=1000, offset=offset)["templates"]:
        yield from found
        offset += len(found)


def _write(path: Path, text: str) -> None:
    """All of it or nothing, and for its owner alone: payloads may hold secrets."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}.", field="out") from None
