"""`evenbeat token`: create, list and revoke the tokens of the service, and create login links.

These work on the database and the secret of this machine, so they need no token themselves:
anyone who may read the secret could sign one anyway.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated
from uuid import UUID

import typer

from evenbeat.api.auth.sessions import view_of
from evenbeat.api.auth.tokens import Access, Role
from evenbeat.cli.app_loader import database_app
from evenbeat.cli.client import checked_url
from evenbeat.cli.local_access import user_name
from evenbeat.cli.output import safe, say, table
from evenbeat.cli.output import show as show_table
from evenbeat.cli.session import command_group
from evenbeat.domain.duration import format_duration, parse_duration

token_cli = command_group("Tokens and login links of the service.")

DatabaseOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="The PostgreSQL database, before all other settings. A password is better kept in "
        "EVENBEAT_DATABASE_URL.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
RoleOption = Annotated[Role, typer.Option(help="What it allows: to look, to operate, or all.")]
SubjectOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Who or what it is for. Default: your user name."),
]


@token_cli.command()
def create(
    role: RoleOption,
    expires: Annotated[
        str, typer.Option(metavar="DURATION", help="How long it is valid, such as 12h or 90d.")
    ] = "30d",
    subject: SubjectOption = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> int:
    """Create a token, and print it on standard output. It is shown only this once."""
    lifetime = parse_duration(expires, field="expires")
    with _access(database) as access:
        issued = access.issue(role, lifetime, subject=subject or user_name(), by=user_name())
    if as_json:
        _print_json(
            {
                "token": issued.token,
                "id": str(issued.id),
                "subject": issued.subject,
                "role": issued.role.value,
                "expires_at": issued.expires_at.isoformat(),
            }
        )
        return 0
    say(f"A token for {issued.subject}, {issued.role}, until {_to_the_minute(issued.expires_at)}.")
    say(f"It is shown only this once. To revoke it: evenbeat token revoke {issued.id}")
    typer.echo(issued.token)
    return 0


@token_cli.command("list")
def list_(
    active: Annotated[bool, typer.Option("--active", help="Only those still valid.")] = False,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=10_000)] = 100,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> int:
    """List the tokens created here, newest first. The tokens themselves are stored nowhere."""
    with _access(database) as access:
        views = [view_of(token) for token in access.tokens(active=active, limit=limit)]
        total = access.count_tokens(active=active)
    if as_json:
        _print_json({"tokens": [view.model_dump(mode="json") for view in views], "total": total})
        return 0
    if not views:
        say("There are no tokens. Create one with: evenbeat token create --role viewer")
        return 0
    lines = table("id", "subject…", "role", "kind", "status", "expires", "created by…")
    for view in views:
        cells = (str(view.id), safe(view.subject), view.role, view.kind, view.status)
        lines.add_row(*cells, _to_the_minute(view.expires_at), safe(view.created_by))
    show_table(lines)
    if total > len(views):
        say(f"{total - len(views)} more; see --limit.")
    return 0


@token_cli.command()
def revoke(
    token_id: Annotated[UUID, typer.Argument(metavar="ID", help="As `token list` shows it.")],
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> int:
    """End a token for good. Every service process refuses it within a few seconds."""
    with _access(database) as access:
        access.revoke(token_id)
    if as_json:
        _print_json({"id": str(token_id), "status": "revoked"})
    else:
        say(f"Revoked {token_id}.")
    return 0


@token_cli.command()
def login(  # noqa: PLR0917 - the options are named on the command line
    role: RoleOption = Role.ADMIN,
    url: Annotated[
        str, typer.Option(metavar="URL", help="The address of the service.")
    ] = "http://127.0.0.1:8060",
    ttl: Annotated[
        str, typer.Option(metavar="DURATION", help="How long the link is valid.")
    ] = "10m",
    subject: SubjectOption = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> int:
    """Print a link that signs a browser in, once."""
    base, lifetime = checked_url(url), parse_duration(ttl, field="ttl")
    with _access(database) as access:
        code = access.login_code(role, lifetime, subject=subject or user_name())
    link = f"{base}/login?code={code}"
    if as_json:
        _print_json({"url": link, "role": role.value, "expires_in": lifetime.total_seconds()})
        return 0
    say(f"Signs in once as {role}, within {format_duration(lifetime)}:")
    typer.echo(link)
    return 0


@contextmanager
def _access(database: str | None) -> Iterator[Access]:
    with database_app(database) as app:
        yield Access.of(app.settings, app.store)


def _to_the_minute(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False))  # on one line, for `jq -r .token`
