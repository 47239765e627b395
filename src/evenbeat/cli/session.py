"""What every command that uses the API shares: its options, its client and its output."""

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Annotated, Any, Concatenate, ParamSpec

import typer
from rich.console import RenderableType

from evenbeat.cli.client import ApiError, Client, Document, connected
from evenbeat.cli.output import print_json, say, show
from evenbeat.domain.schedule import KINDS
from evenbeat.domain.states import JobStatus
from evenbeat.humanize import any_of

P = ParamSpec("P")

_CONNECTION = "Connection"

UrlOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        rich_help_panel=_CONNECTION,
        help="Ask a running service; also EVENBEAT_URL. Default: the database itself.",
    ),
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        metavar="TOKEN",
        rich_help_panel=_CONNECTION,
        help="The token for the service. Better kept in EVENBEAT_TOKEN: others can see arguments.",
    ),
]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        rich_help_panel=_CONNECTION,
        help="Use this PostgreSQL database; a password is better kept in EVENBEAT_DATABASE_URL. "
        "Default: the settings', or the embedded server.",
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", rich_help_panel=_CONNECTION, help="Print the API's document.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
OffsetOption = Annotated[int, typer.Option(metavar="N", min=0, help="Skip the first N.")]
LimitOption = Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="Show at most N.")]

_JOBS = "Which jobs"
FILTERS = {
    "status": Annotated[
        list[str] | None,
        typer.Option(
            metavar="STATUS",
            rich_help_panel=_JOBS,
            help=f"{any_of(JobStatus)}. With commas, or given several times.",
        ),
    ],
    "queue": Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", rich_help_panel=_JOBS, help="In these queues."),
    ],
    "task": Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", rich_help_panel=_JOBS, help="Of these tasks."),
    ],
    "kind": Annotated[
        list[str] | None,
        typer.Option(metavar="KIND", rich_help_panel=_JOBS, help=f"{any_of(KINDS)}."),
    ],
    "tag": Annotated[
        list[str] | None,
        typer.Option(metavar="TAG", rich_help_panel=_JOBS, help="With all of these tags."),
    ],
    "search": Annotated[
        str | None,
        typer.Option(metavar="TEXT", rich_help_panel=_JOBS, help="In the name or the task."),
    ],
}
"""The options by which commands choose jobs."""

OPTIONS = {
    "url": (UrlOption, None),
    "token": (TokenOption, None),
    "database": (DatabaseOption, None),
    "as_json": (JsonOption, False),
}


def command_group(help_: str) -> typer.Typer:
    """A group of commands, such as `evenbeat job`."""
    return typer.Typer(help=help_, no_args_is_help=True, rich_markup_mode="markdown")


@dataclass(frozen=True)
class ApiSession:
    """One command's connection to the API and its way to print."""

    client: Client
    as_json: bool

    def show(
        self, document: Document, *parts: Callable[[], RenderableType] | RenderableType
    ) -> None:
        """Print the document with --json, otherwise the parts; a callable is called only then."""
        if self.as_json:
            print_json(document)
        elif parts:
            show(*(part() if callable(part) else part for part in parts))

    def show_list(
        self,
        document: Document,
        rows: Sequence[Document],
        view: Callable[[], RenderableType],
        empty: str,
    ) -> None:
        """Print the document with --json, otherwise the view; a list without rows says `empty`."""
        if rows or self.as_json:
            self.show(document, view)
        if not rows:
            say(empty)


def api_command(command: Callable[Concatenate[ApiSession, P], int | None]) -> Callable[..., int]:
    """Give a command that takes a session the options that make one. A parameter `filters` becomes
    the options by which jobs are chosen; the command gets those that were given."""
    signature = inspect.signature(command)
    _, *own = signature.parameters.values()
    takes_filters = "filters" in signature.parameters
    options: dict[str, tuple[Any, Any]] = {}
    for parameter in own:
        if parameter.name == "filters":
            options |= {name: (kind, None) for name, kind in FILTERS.items()}
        else:
            options[parameter.name] = (parameter.annotation, parameter.default)

    @functools.wraps(command)
    def run(*args: Any, **values: Any) -> int:
        url, token, database, as_json = (values.pop(name) for name in OPTIONS)
        if takes_filters:
            filters = {name: values.pop(name) for name in FILTERS}
            values["filters"] = {name: value for name, value in filters.items() if value}
        with connected(url, token, database) as client:
            return command(ApiSession(client, as_json), *args, **values) or 0

    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value, annotation=kind)
            for name, (kind, value) in (options | OPTIONS).items()
        ],
        return_annotation=int,
    )
    del run.__wrapped__  # its signature lacks the shared options
    return run


class RetryReads:
    """For commands that read again and again: while a read finds nobody, it may fail. Says so
    once, and again when it is over."""

    def __init__(self) -> None:
        self.is_waiting = False

    def __enter__(self) -> None:
        """Read."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        is_away = isinstance(error, ApiError) and error.exit_code == 3
        if is_away and not self.is_waiting:
            say(f"{error} Trying again; Ctrl-C ends it.")
        elif error is None and self.is_waiting:
            say("It answers again.")
        self.is_waiting = is_away
        return is_away
