"""`evenbeat job edit`: the options of `job add`, for a job that exists."""

import inspect
from typing import Annotated, Any

import typer

from evenbeat.cli.client import Document
from evenbeat.cli.job_add import add, answer, body_of, payload_of
from evenbeat.cli.resolve import find_job
from evenbeat.cli.session import OPTIONS, ApiSession, api_command
from evenbeat.errors import InvalidInput

_ONLY_NEW = {"task", "arguments", "paused", "dedup_key", "scope", *OPTIONS}

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Id, its beginning, or name.")]
Arguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Change these arguments and keep the others."),
]
UnsetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--unset",
        metavar="FIELD",
        help="Back to the default, by the API's name: timeout, window, retry_delays …",
    ),
]


def _edit(
    session: ApiSession,
    /,
    job: str,
    arguments: list[str] | None,
    unset: list[str] | None,
    payload: str | None,
    **options: Any,
) -> int:
    """Change a job: only what is given changes.

    A changed schedule is planned anew; a run in progress ends under the old definition.
    """
    found = find_job(session.client, job)
    changes = body_of(options) | dict.fromkeys(unset or (), None)
    if payload is not None or arguments:
        present = found["payload"] if payload is None else {}
        changes["payload"] = present | (payload_of(payload, arguments or []) or {})
    if not changes:
        raise InvalidInput("There is nothing to change. Give an option, such as --priority 50.")
    edited: Document = session.client.patch(f"/api/v1/jobs/{found['id']}", changes)
    return answer(session, edited)


def _signature() -> inspect.Signature:
    kind = inspect.Parameter.KEYWORD_ONLY
    own = {"job": (JobArgument, inspect.Parameter.empty), "arguments": (Arguments, None)}
    first = [
        inspect.Parameter("session", inspect.Parameter.POSITIONAL_ONLY),
        *(inspect.Parameter(n, kind, annotation=a, default=d) for n, (a, d) in own.items()),
    ]
    shared = inspect.signature(add).parameters.values()
    last = inspect.Parameter("unset", kind, annotation=UnsetOption, default=None)
    return inspect.Signature([*first, *(o for o in shared if o.name not in _ONLY_NEW), last])


_edit.__signature__ = _signature()  # type: ignore[attr-defined]
edit = api_command(_edit)
