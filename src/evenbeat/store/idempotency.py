"""Requests that may be sent twice: what a key stands for, and what was answered."""

from datetime import datetime, timedelta
from typing import NamedTuple

from evenbeat.store.database import Connection, Database

LIFETIME = timedelta(hours=24)
_BATCH = 5000


class StoredResponse(NamedTuple):
    """The request that a key stands for, by its fingerprint, and the answer it got."""

    fingerprint: bytes
    status: int
    answer: str


class IdempotencyKeys:
    """Keys of callers. Reserving, doing and keeping happen in one transaction, so that a key exists
    exactly when what it stands for was done."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def reserve(
        self,
        principal: str,
        key: str,
        fingerprint: bytes,
        connection: Connection,
        *,
        now: datetime | None = None,
    ) -> StoredResponse | None:
        """Take the key for this request, or give what it stands for already. A request with the
        same key that is under way elsewhere is waited for."""
        params = {
            "principal": principal,
            "key": key,
            "fingerprint": fingerprint,
            "lifetime_seconds": LIFETIME.total_seconds(),
            "now": now,
        }
        while not self._database.rows("reserve_key", params, connection):
            row = self._database.row("kept_answer", params, connection)
            if row is not None:
                return StoredResponse(bytes(row[0]), row[1], row[2])
        return None

    def keep(
        self, principal: str, key: str, status: int, answer: str, connection: Connection
    ) -> None:
        """Keep the answer of the request that the key was reserved for."""
        params = {"principal": principal, "key": key, "status": status, "answer": answer}
        self._database.rows("keep_answer", params, connection)

    def prune(self, *, older_than: datetime) -> int:
        """Forget keys made before the moment; returns how many."""
        removed = 0
        while True:
            gone = self._database.rows("prune_keys", {"older_than": older_than, "limit": _BATCH})
            removed += len(gone)
            if len(gone) < _BATCH:
                return removed
