"""`evenbeat template`: save definitions of jobs with parameters, and make jobs from them."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from evenbeat.cli.client import Document, path_segment
from evenbeat.cli.job_add import answer
from evenbeat.cli.output import cell, compact, confirmed, heading, relative, safe, table
from evenbeat.cli.session import ApiSession, YesOption, api_command, command_group
from evenbeat.domain.templates import read_parameters
from evenbeat.errors import InvalidInput
from evenbeat.importers.files import as_json, load_file

template_cli = command_group("Job definitions with parameters.")

_PATH = "/api/v1/templates"
_PAGE = 1000
_RULES = ("enum", "pattern", "min", "max")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The template's name.")]


@template_cli.command("list")
@api_command
def list_templates(
    session: ApiSession,
    search: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only those that contain this.")
    ] = None,
) -> None:
    """List the saved templates."""
    page = session.client.get(_PATH, search=search, limit=_PAGE)
    templates = page["templates"]

    def view() -> RenderableType:
        lines = table("name", "parameters…", "description…", "version", "changed")
        for template in templates:
            lines.add_row(
                cell(template["name"]),
                cell(", ".join(template["parameters"])),
                cell(template["description"] or ""),
                str(template["version"]),
                relative(template["updated_at"], session.client.now()),
            )
        return lines

    session.show_list(
        page, templates, view, "There are no templates. Save one: evenbeat template save FILE"
    )


@template_cli.command()
@api_command
def show(session: ApiSession, name: NameArgument) -> None:
    """Show a template: its parameters with their rules, and its body."""
    template = session.client.get(f"{_PATH}/{path_segment(name)}")
    parts: list[RenderableType] = [heading(f"{template['name']}, version {template['version']}")]
    if template["description"]:
        parts.append(Text(safe(template["description"])))
    if template["parameters"]:
        lines = table("parameter", "type", "default", "rules…", "description…")
        for parameter, rules in template["parameters"].items():
            default = "" if rules["default"] is None else compact(rules["default"])
            named = [f"{rule} {compact(rules[rule])}" for rule in _RULES if rules[rule] is not None]
            lines.add_row(
                cell(parameter),
                rules["type"],
                cell("required" if rules["required"] else default),
                cell(", ".join(named)),
                cell(rules["description"] or ""),
            )
        parts.append(lines)
    session.show(template, *parts, heading("Body"), _indented(template["body"]))


@template_cli.command()
@api_command
def save(
    session: ApiSession,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A JSON or YAML file; - is standard input.")
    ],
    name: Annotated[str | None, typer.Option(help="Its name, where the file does not say.")] = None,
) -> None:
    """Save a template, in place of the one with its name.

    The file has `name`, `description`, `parameters` and `body`.
    """
    document = as_json(load_file(file))
    if not isinstance(document, dict):
        raise InvalidInput(f"{file} is not a template: it has no fields.", field="file")
    name = name or document.pop("name", None)
    document.pop("name", None)
    if not isinstance(name, str):
        raise InvalidInput(f"{file} has no name. Put one in, or give --name.", field="name")
    template = session.client.put(f"{_PATH}/{path_segment(name)}", document)
    session.show(template, f"{template['name']} is saved as version {template['version']}.")


@template_cli.command()
@api_command
def delete(session: ApiSession, name: NameArgument, yes: YesOption = False) -> int:
    """Remove a template; jobs made from it stay."""
    if not confirmed(f"Delete the template {name}?", yes):
        return 1
    session.client.delete(f"{_PATH}/{path_segment(name)}")
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
    path = f"{_PATH}/{path_segment(name)}"
    declared = {
        key: {rule: value for rule, value in rules.items() if value is not None}
        for key, rules in session.client.get(path)["parameters"].items()
    }
    parameters = read_parameters(declared)
    arguments: Document = {}
    for text in values or ():
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise InvalidInput(
                f"--set {text}: give the parameter's name and its value, such as --set city=Rome.",
                field="set",
            )
        # A parameter that does not exist is for the service to refuse: it names those that do.
        arguments[key] = parameters[key].read(value) if key in parameters else value
    body = {"parameters": arguments}
    if not preview:
        return answer(session, session.client.post(f"{path}/jobs", body))
    result = session.client.post(f"{path}/preview", body)
    session.show(result, heading(f"Would run {result['schedule_text']}"), _indented(result["job"]))
    return 0


def _indented(value: Any) -> Text:
    return Text(safe(json.dumps(value, ensure_ascii=False, indent=2)))
