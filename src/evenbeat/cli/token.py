"""`evenbeat token`: create, list and revoke the tokens of the service, and create login links.

These work on the database and the secret of this machine, so they need no token themselves:
anyone who may read the secret could sign one anyway.
"""

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
from evenbeat.cli.output import Column, print_json, say, show, table, write
from evenbeat.cli.session import CommandGroup, DatabaseOption, JsonOption, argument, flag, option
from evenbeat.domain.duration import format_duration, parse_duration
from evenbeat.store.audit import Actor, actor

token_cli = CommandGroup()

RoleOption = Annotated[Role, typer.Option(help="What it allows: to look, to operate, or all.")]
SubjectOption = Annotated[
    str | None, option("NAME", "Who or what it is for. Default: your user name.")
]


@token_cli.command()
def create(
    role: RoleOption,
    expires: Annotated[
        str, option("DURATION", "How long it is valid, such as 12h or 90d.")
    ] = "30d",
    subject: SubjectOption = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> int:
    """Create a token, and print it on standard output. It is shown only this once."""
    lifetime = parse_duration(expires, field="expires")
    with _access(database) as access:
        issued = access.issue(role, lifetime, subject=subject or user_name(), by=user_name())
    return _answer(
        as_json,
        vars(issued) | {"expires_at": issued.expires_at.isoformat()},
        f"A token for {issued.subject}, {issued.role}, until {_to_the_minute(issued.expires_at)}.\n"
        f"It is shown only this once. To revoke it: evenbeat token revoke {issued.id}",
        issued.token,
    )


@token_cli.command("list")
def list_(
    active: Annotated[bool, flag("--active", "Only those still valid.")] = False,
    limit: Annotated[int, option("N", "Show at most N.", min=1, max=10_000)] = 100,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> int:
    """List the tokens created here, newest first. The tokens themselves are stored nowhere."""
    with _access(database) as access:
        views = [view_of(token) for token in access.tokens(active=active, limit=limit)]
        total = access.count_tokens(active=active)
    document = {"tokens": [view.model_dump(mode="json") for view in views], "total": total}
    if as_json or not views:
        nothing = "There are no tokens. Create one with: evenbeat token create --role viewer"
        return _answer(as_json, document, nothing)
    columns: dict[str, Column] = {
        "id": "id",
        "subject…": "subject",
        "role": "role",
        "kind": "kind",
        "status": "status",
        "expires": lambda token: _to_the_minute(token["expires_at"]),
        "created by…": "created_by",
    }
    show(table([view.model_dump() for view in views], columns))
    if total > len(views):
        say(f"{total - len(views)} more; see --limit.")
    return 0


@token_cli.command()
def revoke(
    token_id: Annotated[UUID, argument("ID", "As `token list` shows it.")],
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> int:
    """End a token for good. Every service process refuses it within a few seconds."""
    with _access(database) as access:
        access.revoke(token_id)
    return _answer(as_json, {"id": token_id, "status": "revoked"}, f"Revoked {token_id}.")


@token_cli.command()
def login(  # noqa: PLR0917 - the options are named on the command line
    role: RoleOption = Role.ADMIN,
    url: Annotated[str, option("URL", "The address of the service.")] = "http://127.0.0.1:8060",
    ttl: Annotated[str, option("DURATION", "How long the link is valid.")] = "10m",
    subject: SubjectOption = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> int:
    """Print a link that signs a browser in, once."""
    base, lifetime = checked_url(url), parse_duration(ttl, field="ttl")
    with _access(database) as access:
        code = access.login_code(role, lifetime, subject=subject or user_name())
    link = f"{base}/login?code={code}"
    document = {"url": link, "role": role, "expires_in": lifetime.total_seconds()}
    remark = f"Signs in once as {role}, within {format_duration(lifetime)}:"
    return _answer(as_json, document, remark, link)


@contextmanager
def _access(database: str | None) -> Iterator[Access]:
    before = actor.set(Actor(user_name(), Role.ADMIN, "command line", None))
    try:
        with database_app(database) as app:
            yield Access.of(app.settings, app.store)
    finally:
        actor.reset(before)


def _to_the_minute(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _answer(as_json: bool, document: object, remark: str, text: str | None = None) -> int:
    """The remark goes to standard error: what is asked for stands alone on standard output."""
    if as_json:  # on one line, for `jq -r .token`
        print_json(document, indent=None)
        return 0
    say(remark)
    if text is not None:
        write(text)
    return 0
