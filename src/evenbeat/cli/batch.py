"""`evenbeat batch`: how far batches are, and the verbs over a whole one."""

from collections.abc import Callable
from typing import Annotated

from rich.console import RenderableType

from evenbeat.cli.client import ApiError, Client, Document
from evenbeat.cli.output import both, confirmed, facts, relative, short, status, table
from evenbeat.cli.session import (
    ApiSession,
    CommandGroup,
    LimitOption,
    OffsetOption,
    YesOption,
    argument,
    find_listed,
    is_id,
    option,
)
from evenbeat.cli.views import section
from evenbeat.domain.batch import BATCH_VERBS, BatchStatus
from evenbeat.domain.states import JobStatus, Verb
from evenbeat.humanize import any_of, count

batch_cli = CommandGroup(
    "Batches: jobs that were added as one. A batch is named by its id, the beginning of its id, or "
    "its name, which means the newest of that name."
)
BatchArgument = Annotated[str, argument("BATCH", "Id, its beginning, or name.")]

_FAILURES_SHOWN = 5
_BAR = 20
_CANDIDATES = 1000


@batch_cli.api_command("list")
def list_batches(
    session: ApiSession,
    name: Annotated[str | None, option("NAME", "Only those of this name.")] = None,
    state: Annotated[
        list[str] | None, option("STATUS", f"{any_of(BatchStatus)}.", "--status")
    ] = None,
    limit: LimitOption = 50,
    offset: OffsetOption = 0,
) -> None:
    """List batches, newest first."""
    page = session.client.get(
        "/api/v1/batches", name=name, status=state, limit=limit, offset=offset
    )
    columns = {
        "id": short(page["batches"]),
        "status": lambda one: status(one["status"]),
        "name…": lambda one: one["name"] or "",
        "progress": far,
        "failed": lambda one: one["counts"]["failed"] or "",
        "added": lambda one: relative(one["created_at"], session.client.now()),
    }
    empty = "There is none. app.batch(jobs, then=...) makes one: see docs/flow.md."
    session.show_list(page, "batches", columns, empty, paged=True)


@batch_cli.api_command("show")
def show_batch(session: ApiSession, batch: BatchArgument) -> None:
    """Show how far a batch is, its callback, and what has failed."""
    client = session.client
    one = find_batch(client, batch)
    now, counts = client.now(), one["counts"]
    parts: list[RenderableType] = [
        facts(
            {
                "Batch": one["name"] or one["id"],
                "Id": one["id"],
                "Status": status(one["status"]),
                "Progress": far(one),
                "Jobs": ", ".join(f"{counts[s]:,} {s}" for s in JobStatus if counts[s]) or "none",
                "Added": both(one["created_at"], now),
                "Ended": both(one["ended_at"], now) if one["ended_at"] else None,
                "Then": _callback(client, one),
                "Part of": one["parent_id"],
            }
        )
    ]
    failed = client.get("/api/v1/jobs", batch=one["id"], status="failed", limit=_FAILURES_SHOWN)[
        "jobs"
    ]
    if failed:
        columns = {"id": short(failed), "job…": "task", "error…": "error_message"}
        parts.append(section("Failed", table(failed, columns)))
    session.show(one, *parts)


def far(batch: Document) -> str:
    """A bar, and how many of its jobs have ended."""
    ended, total = batch["counts"]["ended"], batch["counts"]["total"]
    filled = int(_BAR * ended / total) if total else _BAR
    return f"{'#' * filled}{'.' * (_BAR - filled)} {ended:,} of {total:,}"


def _callback(client: Client, batch: Document) -> str | None:
    if batch["callback_id"] is None:
        return None
    try:
        job = client.get(f"/api/v1/jobs/{batch['callback_id']}")
    except ApiError as error:
        if error.status != 404:
            raise
        return f"{batch['callback_id']} (deleted)"
    return f"{job['task']} {job['id']} ({job['status']})"


def find_batch(client: Client, text: str) -> Document:
    """The batch of this id, the newest of this name, or that with an id that begins like this."""
    if is_id(text):
        return client.get(f"/api/v1/batches/{text}")
    if text and (named := client.get("/api/v1/batches", name=text, limit=1)["batches"]):
        first: Document = named[0]
        return first
    return find_listed(client.get("/api/v1/batches", limit=_CANDIDATES)["batches"], text, "batch")


def _command(verb: Verb, help_: str) -> Callable[..., int | None]:
    def command(session: ApiSession, batch: BatchArgument, yes: YesOption = False) -> int:
        one = find_batch(session.client, batch)
        called = one["name"] or one["id"]
        if verb.always_ask and not confirmed(f"{verb.label} the batch {called}?", yes):
            return 1
        done = session.client.post(f"/api/v1/batches/{one['id']}/{verb.name}")
        session.show(done, f"{verb.notice} {count(done['changed'], 'job')} of the batch {called}.")
        return 0

    command.__doc__ = help_
    return command


_HELP = {
    "pause": "Pause the jobs of a batch that have not ended. What runs goes on.",
    "resume": "Let the paused jobs of a batch run again.",
    "retry": "Run the failed and cancelled jobs of a batch again. Its callback waits for them.",
    "cancel": "End a batch: its jobs that have not ended, and its callback, are cancelled.",
}
for _name, _verb in BATCH_VERBS.items():
    batch_cli.api_command(_name)(_command(_verb, _HELP[_name]))


@batch_cli.api_command("close")
def close_batch(session: ApiSession, batch: BatchArgument) -> None:
    """Let an open batch end as soon as its jobs have."""
    one = find_batch(session.client, batch)
    closed = session.client.post(f"/api/v1/batches/{one['id']}/close")
    session.show(closed, f"Closed; it is {closed['status']}, {far(closed)}.")
