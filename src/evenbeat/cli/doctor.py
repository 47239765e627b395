"""`evenbeat doctor`: look at the database and the workers, and say what is wrong.

It asks the database itself, so it also works when the schema is missing, behind or too new; with a
URL it asks the service how its own database fares.
"""

from rich.console import Group, RenderableType
from rich.text import Text

from evenbeat.cli.client import Document, connected, service_url
from evenbeat.cli.output import print_json, safe, show
from evenbeat.cli.session import DatabaseOption, JsonOption, TokenOption, UrlOption
from evenbeat.humanize import count

_SIGNS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "error": ("✗", "red")}


def doctor(
    url: UrlOption = None,
    token: TokenOption = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> int:
    """Check the database, its version, clock, rows and transactions, and the workers.

    The exit code is 1 when something is wrong that keeps jobs from running well, and 0 when there
    are only warnings.
    """
    if service_url(url, database) is not None:
        with connected(url, token, database) as client:
            told = client.get("/api/v1/scheduler/doctor")
    else:
        told = _examined(database)
    if as_json:
        print_json(told)
    else:
        show(_view(told["findings"]))
    return 1 if told["worst"] == "error" else 0


def _examined(database: str | None) -> Document:
    from evenbeat import embedded  # noqa: PLC0415
    from evenbeat.app import Evenbeat  # noqa: PLC0415 - with a URL none of it is needed
    from evenbeat.cli.worker import configured  # noqa: PLC0415
    from evenbeat.observe.doctor import check, worst  # noqa: PLC0415

    settings = configured(Evenbeat(), None, database).settings
    if settings.database_url is not None:
        found = check(settings.database_url.get_secret_value(), schema=settings.db_schema)
    else:
        with embedded.start(settings.server_dir) as server:
            found = check(server.url, schema=settings.db_schema)
    return {"worst": worst(found), "findings": [one._asdict() for one in found]}


def _view(findings: list[Document]) -> RenderableType:
    parts: list[RenderableType] = []
    for one in findings:
        sign, style = _SIGNS[one["severity"]]
        parts.append(Text.assemble((f"{sign} ", style), safe(one["title"])))
        if one["severity"] != "ok":
            parts += [Text(f"    {safe(one[part])}") for part in ("detail", "remedy") if one[part]]
    return Group(*parts, Text(), _summary(findings))


def _summary(findings: list[Document]) -> Text:
    errors, warnings = (
        sum(one["severity"] == severity for one in findings) for severity in ("error", "warning")
    )
    if errors or warnings:
        return Text(f"{count(errors, 'error')}, {count(warnings, 'warning')}.", style="bold")
    return Text("All is well.", style="bold")
