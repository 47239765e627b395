"""The table of limits: what is asked for and set for each concurrency key, and how it stands."""

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from evenbeat.domain.job import Job
from evenbeat.domain.limits import KeyLimit, Limits, RateLimit, check_running, parse_rate
from evenbeat.domain.setting_kinds import check_name
from evenbeat.errors import InvalidInput, NotFound, StoreError
from evenbeat.store.database import Connection, Database
from evenbeat.store.lists import check_page

logger = logging.getLogger(__name__)

_MICROSECOND = timedelta(microseconds=1)


class LimitPage(NamedTuple):
    """Some keys, and how many there are in all."""

    limits: list[KeyLimit]
    total: int


class LimitTable:
    """Keys with their limits. No counter of runs is kept anywhere: running rows are counted."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def page(self, *, limit: int = 50, offset: int = 0) -> LimitPage:
        """Known keys in their order."""
        check_page(limit, offset)
        params = {"keys": None, "limit": limit, "offset": offset}
        rows = self._database.rows("limits", params)
        total = self._database.rows("count_limits", {})[0][0]
        return LimitPage([KeyLimit._make(row) for row in rows], total)

    def get(self, key: str) -> KeyLimit:
        """One key, or `NotFound`."""
        limit = self.find(key)
        if limit is None:
            raise NotFound("limit", key)
        return limit

    def find(self, key: str) -> KeyLimit | None:
        """One key, if it is known."""
        row = self._database.row("limits", {"keys": [key], "limit": 1, "offset": 0})
        return None if row is None else KeyLimit._make(row)

    def put(
        self,
        key: str,
        *,
        max_running: int | None = None,
        rate: RateLimit | str | None = None,
        now: datetime | None = None,
    ) -> KeyLimit:
        """Set what counts for a key from now on, whatever its jobs ask for: how many may run at
        once, a rate, or both. What runs already goes on."""
        check_name("key", key)
        if max_running is None and rate is None:
            raise InvalidInput(
                "Give concurrency_limit, rate_limit, or both. To leave the key to what its jobs "
                "ask for, reset it.",
                field="concurrency_limit",
            )
        if max_running is not None:
            check_running(max_running)
        figures = _figures(Limits(key, max_running, None if rate is None else parse_rate(rate)))
        self._database.rows("set_limit", {**figures, "key": key, "now": now})
        self._hint([key], now)
        return self.get(key)

    def reset(self, key: str, *, now: datetime | None = None) -> KeyLimit:
        """Leave a key to what its jobs ask for: those that wait, and each that comes."""
        if not self._database.rows("unset_limit", {"key": key, "now": now}):
            raise NotFound("limit", key)
        self.recall([key], now=now)
        return self.get(key)

    def note(self, asked: Iterable[Limits], *, now: datetime | None = None) -> None:
        """Make keys known with what is asked for, the last one counting. It is a transaction of its
        own, so that no key stays locked while a caller's transaction is open."""
        newest = {limits.key: limits for limits in asked}
        if not newest:
            return
        figures = [_figures(limits) for limits in newest.values()]
        params = {
            "keys": list(newest),
            "max_running": [f["max_running"] for f in figures],
            "rate_limits": [f["rate_limit"] for f in figures],
            "bursts": [f["burst"] for f in figures],
            "steps_us": [f["step_us"] for f in figures],
            "now": now,
        }
        changed = [row[0] for row in self._database.rows("note_limits", params)]
        if changed:
            self._hint(changed, now)

    def recall(self, keys: Sequence[str], *, now: datetime | None = None) -> None:
        """Make keys known again by what their waiting jobs ask for."""
        rows = self._database.rows("limits_asked", {"keys": list(keys)})
        self.note(
            [
                Limits(key, running, None if rate is None else parse_rate(rate))
                for key, running, rate in rows
            ],
            now=now,
        )

    def freed(
        self,
        jobs: Iterable[Job],
        *,
        now: datetime | None = None,
        connection: Connection | None = None,
    ) -> set[str]:
        """Runs of these jobs have ended: hint at what waits behind their keys, which are returned.
        A hint that cannot be sent is lost, as any may be; what has ended stays so."""
        keys = {job.concurrency_key for job in jobs if job.concurrency_key is not None}
        if keys:
            try:
                self._hint(sorted(keys), now, connection, changed=False)
            except StoreError as error:
                logger.warning("no hint at what waits behind %s: %s", sorted(keys)[:5], error)
        return keys

    def prune(self, *, older_than: datetime) -> int:
        """Forget keys that have long been without jobs and that nobody has set; how many."""
        return len(self._database.rows("prune_limits", {"older_than": older_than}))

    def _hint(
        self,
        keys: Sequence[str],
        now: datetime | None,
        connection: Connection | None = None,
        *,
        changed: bool = True,
    ) -> None:
        channel = self._database.channel
        params = {"keys": list(keys), "changed": changed, "channel": channel, "now": now}
        self._database.rows("hint_freed", params, connection)


def _figures(limits: Limits) -> dict[str, Any]:
    rate = limits.rate
    return {
        "max_running": limits.max_running,
        "rate_limit": None if rate is None else str(rate),
        "burst": None if rate is None else rate.burst,
        "step_us": None if rate is None else rate.step // _MICROSECOND,
    }
