"""`evenbeat template`: save definitions of jobs with parameters, and make jobs from them."""

import json
from pathlib import Path
from typing import Annotated, Any

from rich.console import RenderableType
from rich.text import Text

from evenbeat.cli.client import Document, path_segment, stated
from evenbeat.cli.job_edit import answer, key_and_value
from evenbeat.cli.output import Column, compact, confirmed, heading, relative, safe, table
from evenbeat.cli.session import ApiSession, CommandGroup, YesOption, argument, flag, option
from evenbeat.domain.templates import read_parameters
from evenbeat.errors import InvalidInput
from evenbeat.importers.files import as_json, load_file

template_cli = CommandGroup()

_PATH = "/api/v1/templates"
_RULES = ("enum", "pattern", "min", "max")

NameArgument = Annotated[str, argument("NAME", "The template's name.")]


@template_cli.api_command("list")
def list_templates(
    session: ApiSession,
    search: Annotated[str | None, option("TEXT", "Only those that contain this.")] = None,
) -> None:
    """List the saved templates."""
    session.show_list(
        session.client.get(_PATH, search=search, limit=1000),
        "templates",
        {
            "name": "name",
            "parameters…": lambda one: ", ".join(one["parameters"]),
            "description…": "description",
            "version": "version",
            "changed": lambda one: relative(one["updated_at"], session.client.now()),
        },
        "There are no templates. Save one: evenbeat template save FILE",
    )


@template_cli.api_command()
def show(session: ApiSession, name: NameArgument) -> None:
    """Show a template: its parameters with their rules, and its body."""
    template = session.client.get(f"{_PATH}/{path_segment(name)}")
    parts: list[RenderableType] = [heading(f"{template['name']}, version {template['version']}")]
    if template["description"]:
        parts.append(Text(safe(template["description"])))
    if template["parameters"]:

        def default(one: Document) -> str:
            value = "" if one["default"] is None else compact(one["default"])
            return "required" if one["required"] else value

        def rules(one: Document) -> str:
            return ", ".join(f"{r} {compact(one[r])}" for r in _RULES if one[r] is not None)

        rows = [{"name": name, **rules} for name, rules in template["parameters"].items()]
        columns: dict[str, Column] = {"parameter": "name", "type": "type", "default": default}
        columns |= {"rules…": rules, "description…": "description"}
        parts.append(table(rows, columns))
    session.show(template, *parts, heading("Body"), _indented(template["body"]))


@template_cli.api_command()
def save(
    session: ApiSession,
    file: Annotated[Path, argument("FILE", "A JSON or YAML file; - is standard input.")],
    name: Annotated[str | None, option("NAME", "Its name, where the file does not say.")] = None,
) -> None:
    """Save a template, in place of the one with its name.

    The file has `name`, `description`, `parameters` and `body`.
    """
    document = as_json(load_file(file))
    if not isinstance(document, dict):
        raise InvalidInput(f"{file} is not a template: it has no fields.", field="file")
    own_name = document.pop("name", None)
    name = name or own_name
    if not isinstance(name, str):
        raise InvalidInput(f"{file} has no name. Put one in, or give --name.", field="name")
    template = session.client.put(f"{_PATH}/{path_segment(name)}", document)
    session.show(template, f"{template['name']} is saved as version {template['version']}.")


@template_cli.api_command()
def delete(session: ApiSession, name: NameArgument, yes: YesOption = False) -> int:
    """Remove a template; jobs made from it stay."""
    if not confirmed(f"Delete the template {name}?", yes):
        return 1
    session.client.delete(f"{_PATH}/{path_segment(name)}")
    session.show({"deleted": name}, f"{name} is deleted.")
    return 0


@template_cli.api_command()
def use(
    session: ApiSession,
    name: NameArgument,
    values: Annotated[
        list[str] | None,
        option("KEY=VALUE", "A parameter; may be given several times.", "--set"),
    ] = None,
    preview: Annotated[bool, flag("--preview", "Show the job, and add nothing.")] = False,
) -> int:
    """Add a job from a template."""
    path = f"{_PATH}/{path_segment(name)}"
    declared = session.client.get(path)["parameters"]
    parameters = read_parameters({key: stated(rules) for key, rules in declared.items()})
    arguments: Document = {}
    for text in values or ():
        key, value = key_and_value(text)
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
