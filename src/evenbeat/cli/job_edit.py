"""`evenbeat job edit`: the options of `job add`, for a job that exists."""

import inspect
from typing import Annotated, Any

import typer

from evenbeat.cli.client import Document
from evenbeat.cli.job_add import OPTIONS, answer, body_of, keyword, payload_of
from evenbeat.cli.resolve import find_job
from evenbeat.cli.session import ApiSession, api_command
from evenbeat.errors import InvalidInput

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
    present_job = find_job(session.client, job)
    changes = body_of(options) | dict.fromkeys(unset or (), None)
    if payload is not None or arguments:
        present = present_job["payload"] if payload is None else {}
        changes["payload"] = present | (payload_of(payload, arguments or []) or {})
    if not changes:
        raise InvalidInput("There is nothing to change. Give an option, such as --priority 50.")
    edited: Document = session.client.patch(f"/api/v1/jobs/{present_job['id']}", changes)
    return answer(session, edited)


_edit.__signature__ = inspect.Signature([  # type: ignore[attr-defined]
    inspect.Parameter("session", inspect.Parameter.POSITIONAL_ONLY),
    keyword("job", JobArgument, inspect.Parameter.empty),
    keyword("arguments", Arguments),
    *(keyword(name, option) for name, option in OPTIONS.items()),
    keyword("unset", UnsetOption),
])  # fmt: skip
edit = api_command(_edit)
