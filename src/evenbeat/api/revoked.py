"""The revoked tokens as one process knows them: read from the database every few seconds."""

import logging
import threading
import time

from evenbeat.errors import StoreError
from evenbeat.store.access import AccessTables

logger = logging.getLogger(__name__)

FRESH_SECONDS = 2.0
MARGIN_SECONDS = 0.2
"""How long what was read counts, and so how long a token that was revoked elsewhere still passes
here. Also how long a database that did not answer is left alone."""


class Revoked:
    """A set that is read again when it is asked for and no longer fresh.

    While the database does not answer, the last known set stands. Before the first answer there
    is none, and then nobody gets in.
    """

    def __init__(self, tables: AccessTables, fresh_seconds: float = FRESH_SECONDS) -> None:
        self._tables = tables
        self._fresh_seconds = fresh_seconds
        self._ids: frozenset[str] | None = None
        self._fresh_until = float("-inf")
        self._changes = 0
        self._reading = threading.Lock()

    @property
    def at_hand(self) -> bool:
        """Whether asking for the set will not ask the database."""
        return self._ids is not None and time.monotonic() + MARGIN_SECONDS < self._fresh_until

    def ids(self) -> frozenset[str]:
        """The ids (`jti`) of all revoked tokens; raises StoreError if none were ever read."""
        if time.monotonic() < self._fresh_until and self._ids is not None:
            return self._ids
        with self._reading:
            # Whoever waited for the lock finds the answer of the one before.
            if time.monotonic() >= self._fresh_until or self._ids is None:
                self._read()
            assert self._ids is not None  # noqa: S101 - `_read` raises otherwise
            return self._ids

    def look_again(self) -> None:
        """Something was revoked here: what was read so far, or is being read, no longer counts."""
        self._changes += 1
        self._fresh_until = float("-inf")

    def _read(self) -> None:
        changes = self._changes
        try:
            self._ids = frozenset(map(str, self._tables.revoked_tokens()))
        except StoreError as error:
            if self._ids is None:
                raise
            logger.warning(
                "Revoked tokens cannot be read, the last known ones stand",
                extra={"error": type(error).__name__},
            )
        if changes == self._changes:
            self._fresh_until = time.monotonic() + self._fresh_seconds
