"""What is kept about access: the tokens that were issued, and the hashes of one-time codes."""

from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from evenbeat.store.database import Database


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


class AccessTables:
    """Tokens and login codes."""

    def __init__(self, database: Database) -> None:
        self._database = database

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
        params = {
            "id": token_id,
            "subject": subject,
            "role": role,
            "created_by": created_by,
            "expires_at": expires_at,
            "now": now,
        }
        self._database.rows("add_token", params)

    def tokens(
        self,
        *,
        active: bool = False,
        limit: int = 100,
        offset: int = 0,
        now: datetime | None = None,
    ) -> list[Token]:
        """The newest tokens; with `active`, only those that still count."""
        params = {"active": active, "limit": limit, "offset": offset, "now": now}
        return [Token._make(row) for row in self._database.rows("tokens", params)]

    def count_tokens(self, *, active: bool = False, now: datetime | None = None) -> int:
        """How many there are."""
        return int(self._database.rows("count_tokens", {"active": active, "now": now})[0][0])

    def revoke_token(
        self, token_id: UUID, *, session_only: bool = False, now: datetime | None = None
    ) -> bool:
        """End a token; False if there is none with this id (and, if asked, of this kind)."""
        params = {"id": token_id, "session_only": session_only, "now": now}
        return bool(self._database.rows("revoke_token", params))

    def revoked_tokens(self) -> frozenset[UUID]:
        """Every token that was ended before its time."""
        return frozenset(row[0] for row in self._database.rows("revoked_tokens", {}))

    def add_login_code(
        self,
        code_hash: bytes,
        *,
        subject: str,
        role: str,
        ttl: timedelta,
        now: datetime | None = None,
    ) -> None:
        """Keep a one-time code by its hash."""
        params = {
            "code_hash": code_hash,
            "subject": subject,
            "role": role,
            "ttl_seconds": ttl.total_seconds(),
            "now": now,
        }
        self._database.rows("add_login_code", params)

    def redeem_login_code(
        self, code_hash: bytes, token_id: UUID, *, expires_at: datetime, now: datetime | None = None
    ) -> tuple[str, str] | None:
        """Use a code up for a session: its subject and role. None if the code is unknown, used or
        too old; of several that come at once, one gets it."""
        params = {"code_hash": code_hash, "id": token_id, "expires_at": expires_at, "now": now}
        row = self._database.row("redeem_login_code", params)
        return None if row is None else (row[0], row[1])
