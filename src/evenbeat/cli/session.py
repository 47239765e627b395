"""What every command that uses the API shares: its options, its client, finding what an argument
names, and its output."""

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.console import RenderableType

from evenbeat.cli.client import ApiError, Client, Document, connected, path_segment
from evenbeat.cli.output import Column, print_json, say, short_ids, show, table
from evenbeat.cli.views import label
from evenbeat.domain.ids import parse_id
from evenbeat.domain.schedule import KINDS
from evenbeat.domain.states import JobStatus
from evenbeat.humanize import any_of

_CONNECTION = "Connection"
_JOBS = "Which jobs"
_CANDIDATES = 5
_ID_START = re.compile(r"[0-9a-f]{4,8}(-|$)|[0-9a-f]{9,}$", re.IGNORECASE)

_UNKNOWN = {
    "job": "There is no job with the id or the name {!r}. `evenbeat job list --search …` finds "
    "jobs by parts of their name or task.",
    "execution": "There is no execution whose id begins with {!r}. `evenbeat execution list` shows "
    "the newest.",
}


def option(
    metavar: str | None, text: str, *names: str, panel: str | None = None, **more: Any
) -> Any:
    """An option with a value, which the help calls by its metavar."""
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel=panel, **more)


def flag(name: str, text: str, *names: str, panel: str | None = None) -> Any:
    return typer.Option(name, *names, help=text, rich_help_panel=panel)


def argument(metavar: str, text: str) -> Any:
    return typer.Argument(metavar=metavar, help=text)


UrlOption = Annotated[
    str | None,
    option(
        "URL",
        "Ask a running service; also EVENBEAT_URL. Default: the database itself.",
        panel=_CONNECTION,
    ),
]
TokenOption = Annotated[
    str | None,
    option(
        "TOKEN",
        "The token for the service. Better kept in EVENBEAT_TOKEN: others can see arguments.",
        panel=_CONNECTION,
    ),
]
DatabaseOption = Annotated[
    str | None,
    option(
        "URL",
        "Use this PostgreSQL database; a password is better kept in EVENBEAT_DATABASE_URL, as "
        "others can see arguments. Default: the settings', or the embedded server.",
        panel=_CONNECTION,
    ),
]
JsonOption = Annotated[bool, flag("--json", "Print the document as JSON.", panel=_CONNECTION)]
YesOption = Annotated[bool, flag("--yes", "Do not ask for confirmation.", "-y")]
OffsetOption = Annotated[int, option("N", "Skip the first N.", min=0)]
LimitOption = Annotated[int, option("N", "Show at most N.", min=1, max=1000)]
JobArgument = Annotated[str, argument("JOB", "Id, its beginning, or name.")]

FILTERS = {
    "status": option(
        "STATUS", f"{any_of(JobStatus)}. With commas, or given several times.", panel=_JOBS
    ),
    "queue": option("NAME", "In these queues.", panel=_JOBS),
    "task": option("NAME", "Of these tasks.", panel=_JOBS),
    "kind": option("KIND", f"{any_of(KINDS)}.", panel=_JOBS),
    "tag": option("TAG", "With all of these tags.", panel=_JOBS),
    "batch": option("ID", "Of this batch.", panel=_JOBS),
    "search": option("TEXT", "In the name or the task.", panel=_JOBS),
}
"""The options by which commands choose jobs; all but the last two may be given several times."""

OPTIONS = {
    "url": (UrlOption, None),
    "token": (TokenOption, None),
    "database": (DatabaseOption, None),
    "as_json": (JsonOption, False),
}


@dataclass(frozen=True)
class ApiSession:
    """One command's connection to the API and its way to print."""

    client: Client
    as_json: bool

    def show(self, document: Document, *parts: RenderableType) -> None:
        """Print the document with --json, otherwise the parts."""
        if self.as_json:
            print_json(document)
        elif parts:
            show(*parts)

    def show_list(
        self,
        page: Document,
        name: str,
        columns: Mapping[str, Column],
        empty: str,
        *,
        paged: bool = False,
    ) -> None:
        """Print the page with --json, otherwise its rows; without rows, say `empty`. A command with
        --limit and --offset is `paged`, and says if there are more."""
        rows = page[name]
        if rows or self.as_json:
            self.show(page, table(rows, columns))
        if not rows:
            say(empty)
        elif paged and page["total"] > (shown := page["offset"] + len(rows)):
            about = "about " if page.get("total_is_estimate") else ""
            say(f"{about}{page['total'] - shown:,} more: --limit, or --offset {shown}.")


def api_command(
    command: Callable[..., int | None], options: Mapping[str, Any] | None = None
) -> Callable[..., int]:
    """Give a command that takes a session the options that make one. A parameter `filters` becomes
    the options by which jobs are chosen, and the command gets those that were given; `options`
    become keyword arguments."""
    _, *own = inspect.signature(command).parameters.values()
    parameters: dict[str, tuple[Any, Any]] = {}
    for one in own:
        if one.name == "filters":
            for name, filter_ in FILTERS.items():
                kind = str if name in ("batch", "search") else list[str]
                parameters[name] = (Annotated[kind | None, filter_], None)
        elif one.kind is not one.VAR_KEYWORD:
            parameters[one.name] = (one.annotation, one.default)
    takes_filters = FILTERS.keys() <= parameters.keys()
    parameters |= {name: (kind, None) for name, kind in (options or {}).items()} | OPTIONS

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
            for name, (kind, value) in parameters.items()
        ],
        return_annotation=int,
    )
    del run.__wrapped__  # its signature lacks the shared options
    return run


class CommandGroup(typer.Typer):
    """A group of commands, such as `evenbeat job`. Its help is that of the list of commands, unless
    there is more to say."""

    def __init__(self, help_: str | None = None) -> None:
        super().__init__(help=help_, no_args_is_help=True, rich_markup_mode="markdown")
        self.callback()(lambda: None)  # so that it stays a group if it has one command only

    def api_command(self, name: str | None = None) -> Callable[[Callable[..., int | None]], Any]:
        return lambda command: self.command(name)(api_command(command))


def find(client: Client, kind: str, text: str) -> Document:
    """The one job or execution with this id, or with an id that begins like this; a job also by its
    name. Otherwise ApiError."""
    path, rows = f"/api/v1/{kind}s", list[Document]()
    if is_id(text):
        return client.get(f"{path}/{path_segment(text)}")
    if text and kind == "job":
        rows = client.get(path, name=text, limit=_CANDIDATES)["jobs"]
    if not rows and _ID_START.match(text):
        rows = client.get(path, id=text, limit=_CANDIDATES)[f"{kind}s"]
    if len(rows) == 1:
        return rows[0]
    if not rows:
        raise ApiError(_UNKNOWN[kind].format(text), 4)
    short = short_ids(row["id"] for row in rows)
    names = [short[row["id"]] + (f" ({label(row)})" if kind == "job" else "") for row in rows]
    more = ", …" if len(rows) == _CANDIDATES else ""
    raise ApiError(
        f"{text!r} means more than one {kind}: {', '.join(names)}{more}. Give more of the id.", 2
    )


def find_listed(documents: Sequence[Document], text: str, kind: str) -> Document:
    """The one worker or webhook of a whole list that an id or its beginning names."""
    matches = [one for one in documents if text and one["id"].startswith(text.lower())]
    if len(matches) == 1:
        return matches[0]
    meaning = f"more than one {kind}" if matches else f"no {kind}"
    raise ApiError(f"{text!r} means {meaning}; see evenbeat {kind} list.", 2 if matches else 4)


def is_id(text: str) -> bool:
    return parse_id(text) is not None
