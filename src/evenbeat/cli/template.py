"""`evenbeat template`: keep definitions of jobs with parameters, and make jobs from them."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from evenbeat.cli.client import Document, path_segment
from evenbeat.cli.job_add import answer
from evenbeat.cli.output import cell, confirmed, heading, relative, safe, say, table
from evenbeat.cli.session import ApiSession, api_command
from evenbeat.domain.templates import Parameter, read_parameters
from evenbeat.errors import InvalidInput
from evenbeat.importers.files import as_json, load_file

template_cli = typer.Typer(
    help="Definitions of jobs with parameters.", no_args_is_help=True, rich_markup_mode="markdown"
)

_PLACE = "/api/v1/templates"
_PAGE = 1000

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The template's name.")]


@template_cli.command("list")
@api_command
def list_templates(
    session: ApiSession,
    search: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only those that have this in them.")
    ] = None,
) -> None:
    """List the templates that are kept."""
    found = session.client.get(_PLACE, search=search, limit=_PAGE)
    if found["templates"] or session.as_json:
        session.show(found, lambda: _table(session, found["templates"]))
    if not found["templates"]:
        say("There are no templates. Keep one: evenbeat template save FILE")


@template_cli.command()
@api_command
def show(session: ApiSession, name: NameArgument) -> None:
    """Show a template: its parameters with their rules, and its body."""
    found = session.client.get(f"{_PLACE}/{path_segment(name)}")
    session.show(found, lambda: _view(found))


@template_cli.command()
@api_command
def save(
    session: ApiSession,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A JSON or YAML file; - is standard input.")
    ],
    name: Annotated[str | None, typer.Option(help="Its name, where the file does not say.")] = None,
) -> None:
    """Keep a template, in place of the one of its name.

    The file has `name`, `description`, `parameters` and `body`.
    """
    document = as_json(load_file(file))
    if not isinstance(document, dict):
        raise InvalidInput(f"{file} is not a template: it has no fields.", field="file")
    own = document.pop("name", None)
    chosen = name or own
    if not isinstance(chosen, str):
        raise InvalidInput(f"{file} has no name. Put one in, or give --name.", field="name")
    kept = session.client.put(f"{_PLACE}/{path_segment(chosen)}", document)
    session.show(kept, f"{kept['name']} is kept as version {kept['version']}.")


@template_cli.command()
@api_command
def delete(
    session: ApiSession,
    name: NameArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> int:
    """Remove a template; jobs made from it stay."""
    if not confirmed(f"Delete the template {name}?", yes):
        return 1
    session.client.delete(f"{_PLACE}/{path_segment(name)}")
    session.show({"deleted": name}, f"{name} is deleted.")
    return 0


@template_cli.command()
@api_command
def use(
    session: ApiSession,
    name: NameArgument,
    values: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A parameter; may be given several times."),
    ] = None,
    preview: Annotated[
        bool, typer.Option("--preview", help="Show the job, and add nothing.")
    ] = False,
) -> int:
    """Add a job from a template."""
    place = f"{_PLACE}/{path_segment(name)}"
    parameters = read_parameters(
        {key: _rules(one) for key, one in session.client.get(place)["parameters"].items()}
    )
    body = {"parameters": _given(parameters, values or [])}
    if preview:
        told = session.client.post(f"{place}/preview", body)
        session.show(told, lambda: _previewed(told))
        return 0
    return answer(session, session.client.post(f"{place}/jobs", body))


def _given(parameters: dict[str, Parameter], values: list[str]) -> Document:
    given: Document = {}
    for text in values:
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise InvalidInput(
                f"--set {text}: give the parameter's name and its value, such as --set city=Rome.",
                field="set",
            )
        # A parameter that does not exist is for the service to refuse: it names those that do.
        given[key] = parameters[key].read(value) if key in parameters else value
    return given


def _rules(one: Document) -> Document:
    return {rule: value for rule, value in one.items() if value is not None}


# -- views -----------------------------------------------------------------------------------------


def _table(session: ApiSession, templates: list[Document]) -> RenderableType:
    made = table("name", "parameters…", "description…", "version", "changed")
    now = session.client.now()
    for one in templates:
        made.add_row(
            cell(one["name"]),
            cell(", ".join(one["parameters"])),
            cell(one["description"] or ""),
            str(one["version"]),
            relative(one["updated_at"], now),
        )
    return made


def _view(one: Document) -> RenderableType:
    parts: list[RenderableType] = [heading(f"{one['name']}, version {one['version']}")]
    if one["description"]:
        parts.append(Text(safe(one["description"])))
    if one["parameters"]:
        made = table("parameter", "type", "default", "rules…", "description…")
        for name, rules in one["parameters"].items():
            default = "required" if rules["required"] else _json(rules["default"])
            more = cell(rules["description"] or "")
            made.add_row(cell(name), rules["type"], cell(default), cell(_told(rules)), more)
        parts.append(made)
    return Group(*parts, heading("Body"), Text(safe(_indented(one["body"]))))


def _told(rules: Document) -> str:
    named = ("enum", "pattern", "min", "max")
    return ", ".join(f"{one} {_json(rules[one])}" for one in named if rules[one] is not None)


def _previewed(told: Document) -> RenderableType:
    return Group(heading(f"Would run {told['schedule_text']}"), Text(safe(_indented(told["job"]))))


def _json(value: Any) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _indented(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)
