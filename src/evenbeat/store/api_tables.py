"""What the API keeps for itself: tokens and login codes, idempotency keys, templates of jobs."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from evenbeat.errors import Conflict, NotFound
from evenbeat.store.audit import AuditLog
from evenbeat.store.database import Connection
from evenbeat.store.part import BATCH, Between, StorePart, containing, go_on
from evenbeat.store.rows import encode_json

LIFETIME = timedelta(hours=24)
"""How long an idempotency key stands for its request."""


class Token(NamedTuple):
    """A token as the list shows it; the token itself is nowhere. `kind` is `token` for one that
    was asked for and `session` for one that a login link made."""

    id: UUID
    kind: str
    subject: str
    role: str
    created_at: datetime
    created_by: str
    expires_at: datetime
    revoked_at: datetime | None


class AccessTables(StorePart):
    """Tokens that were issued, and the hashes of one-time login codes."""

    def add_token(
        self,
        token_id: UUID,
        *,
        subject: str,
        role: str,
        created_by: str,
        expires_at: datetime,
        now: datetime | None = None,
    ) -> None:
        """Make a token known."""
        issued = {"subject": subject, "role": role, "created_by": created_by}
        params = {**issued, "id": token_id, "expires_at": expires_at, "now": now}
        self._database.rows("add_token", params)
        about = {"subject": subject, "role": role, "expires_at": expires_at.isoformat()}
        audit = AuditLog(self._database)
        audit.add("token.create", ids=[token_id], name=subject, after=about, now=now)

    def tokens(self, *, active: bool = False, limit: int = 100, offset: int = 0) -> list[Token]:
        """The newest tokens; with `active`, only those that still count."""
        params = {"active": active, "limit": limit, "offset": offset}
        return self._all(Token._make, "tokens", params)

    def count_tokens(self, *, active: bool = False) -> int:
        return int(self._database.rows("count_tokens", {"active": active})[0][0])

    def revoke_token(self, token_id: UUID, *, session_only: bool = False) -> bool:
        """End a token; False if there is none with this id (and, if asked, of this kind)."""
        params = {"id": token_id, "session_only": session_only}
        revoked = bool(self._database.rows("revoke_token", params))
        if revoked and not session_only:
            AuditLog(self._database).add("token.revoke", ids=[token_id])
        return revoked

    def revoked_tokens(self) -> frozenset[UUID]:
        """Every token that was ended before its time."""
        return frozenset(self._ids("revoked_tokens", {}))

    def add_login_code(self, code_hash: bytes, *, subject: str, role: str, ttl: timedelta) -> None:
        """Keep a one-time code by its hash."""
        code = {"code_hash": code_hash, "subject": subject, "role": role}
        self._database.rows("add_login_code", code | {"ttl_seconds": ttl.total_seconds()})

    def redeem_login_code(
        self, code_hash: bytes, token_id: UUID, *, expires_at: datetime, now: datetime | None = None
    ) -> tuple[str, str] | None:
        """Use a code up for a session: its subject and role. None if the code is unknown, used or
        too old; of several that come at once, one gets it."""
        params = {"code_hash": code_hash, "id": token_id, "expires_at": expires_at, "now": now}
        row = self._database.row("redeem_login_code", params)
        return None if row is None else (row[0], row[1])


class IdempotencyKeys(StorePart):
    """Keys of requests that may be sent twice. Reserving, doing and keeping happen in one
    transaction, so that a key exists exactly when what it stands for was done."""

    def reserve(
        self,
        principal: str,
        key: str,
        fingerprint: bytes,
        connection: Connection,
        *,
        now: datetime | None = None,
    ) -> tuple[bytes, str] | None:
        """Take the key for this request, or give what it stands for already: the fingerprint of a
        request, and the answer it got. One that is under way elsewhere is waited for."""
        request = {"principal": principal, "key": key, "fingerprint": fingerprint}
        params = {**request, "lifetime_seconds": LIFETIME.total_seconds(), "now": now}
        while not self._database.rows("reserve_key", params, connection):
            row = self._database.row("kept_answer", params, connection)
            if row is not None:
                return bytes(row[0]), row[2]
        return None

    def keep(
        self, principal: str, key: str, status: int, answer: str, connection: Connection
    ) -> None:
        """Keep the answer of the request that the key was reserved for."""
        params = {"principal": principal, "key": key, "status": status, "answer": answer}
        self._database.rows("keep_answer", params, connection)

    def prune(self, *, older_than: datetime, between: Between = go_on) -> int:
        """Forget keys made before the moment; returns how many."""
        return self._prune("prune_keys", older_than, BATCH, between)


class Template(NamedTuple):
    """A template of jobs as it is kept; `version` grows with every change."""

    name: str
    description: str | None
    parameters: dict[str, dict[str, Any]]
    body: dict[str, Any]
    version: int
    created_at: datetime
    updated_at: datetime
    created_by: str | None


class NewTemplate(NamedTuple):
    """A template to keep; its rules were checked by then."""

    name: str
    parameters: Mapping[str, Mapping[str, Any]]
    body: Mapping[str, Any]
    description: str | None = None
    created_by: str | None = None


class Templates(StorePart):
    """The kept templates, by name."""

    def page(
        self, *, search: str | None = None, limit: int = 50, offset: int = 0
    ) -> tuple[list[Template], int]:
        """Some templates by name, and how many there are in all."""
        pattern = containing(search) if search else None
        params = {"search": pattern, "limit": limit, "offset": offset}
        total: int = self._database.rows("count_templates", params)[0][0]
        return self._all(Template._make, "templates", params), total

    def get(self, name: str) -> Template:
        """The template of this name, or `NotFound`."""
        return self._get(Template._make, "template", "template", name)

    def add(self, template: NewTemplate, *, now: datetime | None = None) -> Template:
        """Keep a new one, or `Conflict` when the name is taken."""
        row = self._database.row("add_template", self._params(template, now))
        if row is None:
            raise Conflict(
                f"A template named {template.name!r} exists already. Change that one (PUT), or "
                "choose another name."
            )
        AuditLog(self._database).add(
            "template.save", name=template.name, after=template.body, now=now
        )
        return Template._make(row)

    def save(self, template: NewTemplate, *, now: datetime | None = None) -> Template:
        """Keep one, in place of the one of that name."""
        before = self._database.row("template", {"id": template.name})
        saved = self._all(Template._make, "save_template", self._params(template, now))[0]
        old = None if before is None else Template._make(before)
        audit = AuditLog(self._database)
        audit.add_row("template.save", old, saved, name=template.name, now=now)
        return saved

    def delete(self, name: str) -> None:
        """Remove one, or `NotFound`; jobs made from it stay."""
        template = self.get(name)
        if self._database.row("delete_template", {"name": name}) is None:
            raise NotFound("template", name)
        AuditLog(self._database).add("template.delete", name=name, before=template.body)

    def _params(self, template: NewTemplate, now: datetime | None) -> dict[str, Any]:
        limit = self._max_json_bytes
        return template._asdict() | {
            "parameters": encode_json("parameters", template.parameters, limit),
            "body": encode_json("body", template.body, limit),
            "now": now,
        }
