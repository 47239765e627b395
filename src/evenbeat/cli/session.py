"""What every command that asks the API shares: where to ask, and how to answer."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Concatenate, ParamSpec

import typer
from rich.console import RenderableType

from evenbeat.cli.client import Client, Document, connected
from evenbeat.cli.output import print_json, show

P = ParamSpec("P")

_WHERE = "Where to ask"

UrlOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        rich_help_panel=_WHERE,
        help="Ask a running service; also EVENBEAT_URL. Default: the database itself.",
    ),
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        metavar="TOKEN",
        rich_help_panel=_WHERE,
        help="The token for the service. Better kept in EVENBEAT_TOKEN: others can see arguments.",
    ),
]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        rich_help_panel=_WHERE,
        help="Ask this PostgreSQL database; a password is better kept in EVENBEAT_DATABASE_URL. "
        "Default: the settings', or the embedded server.",
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", rich_help_panel=_WHERE, help="Print the API's document.")
]

OPTIONS = {
    "url": (UrlOption, None),
    "token": (TokenOption, None),
    "database": (DatabaseOption, None),
    "as_json": (JsonOption, False),
}


@dataclass(frozen=True)
class ApiSession:
    """One command's way to the API and back to its user."""

    client: Client
    as_json: bool

    def show(
        self, document: Document, *parts: Callable[[], RenderableType] | RenderableType
    ) -> None:
        """Print the document with --json, and the parts, which may be made late, without."""
        if self.as_json:
            print_json(document)
            return
        if parts:
            show(*(part() if callable(part) else part for part in parts))


def api_command(command: Callable[Concatenate[ApiSession, P], int | None]) -> Callable[..., int]:
    """Give a command that takes a session the options that make one."""
    signature = inspect.signature(command)
    own = list(signature.parameters.values())[1:]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in OPTIONS.items()
    ]

    @functools.wraps(command)
    def run(*args: Any, **options: Any) -> int:
        url, token, database = (options.pop(name) for name in ("url", "token", "database"))
        as_json = options.pop("as_json")
        with connected(url, token, database) as client:
            return command(ApiSession(client, as_json), *args, **options) or 0

    keyword = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]
    run.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*keyword, *shared], return_annotation=int
    )
    del run.__wrapped__  # its signature has no options
    return run
