"""`evenbeat token`: make, list and revoke the tokens of the service, and make login links.

These work on the database and the secret of this machine, so they need no token themselves:
whoever may read the secret could sign one anyway.
"""

import getpass
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated
from urllib.parse import urlsplit
from uuid import UUID

import typer
from rich.console import Console
from rich.table import Table

from evenbeat.api.auth.sessions import view_of
from evenbeat.api.auth.tokens import Access, Role
from evenbeat.app import Evenbeat
from evenbeat.cli.output import safe
from evenbeat.cli.worker import check_database, configured
from evenbeat.domain.duration import format_duration, parse_duration
from evenbeat.errors import InvalidInput

token_cli = typer.Typer(help="Tokens and login links of the service.", no_args_is_help=True)

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
    typer.Option(metavar="NAME", help="Whom or what it is for. Default: your user name."),
]


@token_cli.command()
def create(
    role: RoleOption,
    expires: Annotated[
        str, typer.Option(metavar="DURATION", help="How long it lives, such as 12h or 90d.")
    ] = "30d",
    subject: SubjectOption = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> int:
    """Make a token, and print it on standard output. It is shown only this once."""
    lifetime = parse_duration(expires, field="expires")
    with _access(database) as access:
        issued = access.issue(role, lifetime, subject=subject or _user(), by=_user())
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
    _say(f"A token for {issued.subject}, {issued.role}, until {_minute(issued.expires_at)}.")
    _say(f"It is shown only this once. To revoke it: evenbeat token revoke {issued.id}")
    typer.echo(issued.token)
    return 0


@token_cli.command("list")
def list_(
    active: Annotated[bool, typer.Option("--active", help="Only those that still count.")] = False,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=10_000)] = 100,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> int:
    """List the tokens that were made here, newest first. The tokens themselves are kept nowhere."""
    with _access(database) as access:
        views = [view_of(token) for token in access.tokens(active=active, limit=limit)]
        total = access.count_tokens(active=active)
    if as_json:
        _print_json({"tokens": [view.model_dump(mode="json") for view in views], "total": total})
        return 0
    if not views:
        _say("There are no tokens. Make one with: evenbeat token create --role viewer")
        return 0
    table = Table("id", "subject", "role", "kind", "status", "expires", "made by", box=None)
    for view in views:
        cells = (str(view.id), safe(view.subject), view.role, view.kind, view.status)
        table.add_row(*cells, _minute(view.expires_at), safe(view.created_by))
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = 400  # lines for other programs are not folded
    console.print(table)
    if total > len(views):
        _say(f"{total - len(views)} more; see --limit.")
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
        _say(f"Revoked {token_id}.")
    return 0


@token_cli.command()
def login(  # noqa: PLR0917 - the options are named on the command line
    role: RoleOption = Role.ADMIN,
    url: Annotated[
        str, typer.Option(metavar="URL", help="Where the service is.")
    ] = "http://127.0.0.1:8060",
    ttl: Annotated[
        str, typer.Option(metavar="DURATION", help="How long the link is good for.")
    ] = "10m",
    subject: SubjectOption = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> int:
    """Print a link that signs a browser in, once."""
    base, lives = _base(url), parse_duration(ttl, field="ttl")
    with _access(database) as access:
        code = access.login_code(role, lives, subject=subject or _user())
    link = f"{base}/login?code={code}"
    if as_json:
        _print_json({"url": link, "role": role.value, "expires_in": lives.total_seconds()})
        return 0
    _say(f"Signs in once as {role}, within {format_duration(lives)}:")
    typer.echo(link)
    return 0


# --------------------------------------------------------------------------------------------------


@contextmanager
def _access(database: str | None) -> Iterator[Access]:
    app = configured(Evenbeat(), None, database)
    check_database(app.settings)
    with app:
        yield Access.of(app.settings, app.store)


def _base(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment:
        raise InvalidInput(
            "--url must be the address of the service, such as http://127.0.0.1:8060.", field="url"
        )
    return url.rstrip("/")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "command line"  # a user without a name, as in some containers


def _minute(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False))


def _say(text: str) -> None:
    typer.echo(text, err=True)
