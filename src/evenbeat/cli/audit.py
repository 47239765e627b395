"""`evenbeat audit`: who changed what."""

from typing import Annotated, Any

from evenbeat.cli.client import Document
from evenbeat.cli.output import Column, compact, exact
from evenbeat.cli.session import (
    ApiSession,
    LimitOption,
    OffsetOption,
    api_command,
    find,
    is_id,
    option,
)


def audit(  # noqa: PLR0917 - the options are named on the command line
    session: ApiSession,
    job: Annotated[str | None, option("JOB", "Of this job: id, its beginning, or name.")] = None,
    actor: Annotated[str | None, option("NAME", "By this person or program.")] = None,
    action: Annotated[
        list[str] | None, option("ACTION", "Such as job.pause, or job for all of jobs.")
    ] = None,
    search: Annotated[str | None, option("TEXT", "In the name, or in who did it.")] = None,
    since: Annotated[str | None, option("TIME", "From 2030-01-31T09:00:00Z on.")] = None,
    until: Annotated[str | None, option("TIME", "Before this time.")] = None,
    limit: LimitOption = 20,
    offset: OffsetOption = 0,
) -> None:
    """Show who changed what, when and from where, newest first.

    Changes through the API, the dashboard and these commands are listed. `--json` has all that was
    different before and after.
    """
    client = session.client
    object_id = None
    if job is not None:  # of a deleted one, only the id is left
        object_id = job if is_id(job) else find(client, "job", job)["id"]
    query: dict[str, Any] = {"actor": actor, "action": action, "search": search}
    query |= {"object_id": object_id, "since": since, "until": until}
    page = client.get("/api/v1/audit", **query, limit=limit, offset=offset)
    columns: dict[str, Column] = {
        "when": lambda one: exact(one["created_at"]),
        "who": "actor",
        "via": "via",
        "from…": "address",
        "action": "action",
        "what": _object,
        "before → after…": _change,
    }
    session.show_list(page, "entries", columns, "Nothing was changed.", paged=True)


def _object(entry: Document) -> str:
    if entry["changed"] != 1:
        return f"{entry['changed']:,} {entry['action'].partition('.')[0]}s"
    return str(entry["name"] or (entry["ids"] or [""])[0])


def _change(entry: Document) -> str:
    parts = [entry["before"], entry["after"]]
    return " → ".join("" if part is None else compact(part) for part in parts) if any(parts) else ""


audit_command = api_command(audit)
