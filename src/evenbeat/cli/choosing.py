"""The options by which commands choose jobs."""

from typing import Annotated

import typer

from evenbeat.domain.schedule import KINDS
from evenbeat.domain.states import JobStatus
from evenbeat.humanize import any_of

_FILTER = "Which jobs"

StatusOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="STATUS",
        rich_help_panel=_FILTER,
        help=f"{any_of(JobStatus)}. With commas, or given several times.",
    ),
]
QueueOption = Annotated[
    list[str] | None, typer.Option(metavar="NAME", rich_help_panel=_FILTER, help="In these queues.")
]
TaskOption = Annotated[
    list[str] | None, typer.Option(metavar="NAME", rich_help_panel=_FILTER, help="Of these tasks.")
]
KindOption = Annotated[
    list[str] | None,
    typer.Option(metavar="KIND", rich_help_panel=_FILTER, help=f"{any_of(KINDS)}."),
]
TagOption = Annotated[
    list[str] | None,
    typer.Option(metavar="TAG", rich_help_panel=_FILTER, help="With all of these tags."),
]
SearchOption = Annotated[
    str | None,
    typer.Option(metavar="TEXT", rich_help_panel=_FILTER, help="In the name or the task."),
]
