"""Limits of concurrency keys: the table of what is asked for and set, and claims key by key.

Jobs with a key are claimed beside the ordinary claim and at no cost to it. Whether any such job
waits is asked only now and then, and whenever there was nothing else to claim. What is remembered
here between two claims only says where to look first: the database decides.
"""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from psycopg.pq import TransactionStatus

from evenbeat.domain.job import BY_NAME, JobRecord
from evenbeat.domain.limits import KeyLimit, Limits, RateLimit, parse_rate
from evenbeat.domain.setting_kinds import check_name
from evenbeat.errors import InvalidInput, NotFound, StoreError
from evenbeat.store.audit import AuditLog
from evenbeat.store.database import Connection, Database
from evenbeat.store.part import StorePart, check_page

logger = logging.getLogger(__name__)

REACH = 100
"""How many rows each way to find a key may look at."""

STRETCH = 250
"""How many keys the walk over all of them goes on at a time."""

QUIET_SECONDS = 0.25
"""How long a worker with other work to do takes it that no job with a key is due."""

KEPT_BACK_SECONDS = 0.05
"""How long such a worker leaves due jobs alone that their limits have just kept back."""

WALK_SECONDS = 0.1
"""How long the walk rests from stretch to stretch while every claim is filled without it."""

RECENT_SECONDS = 10.0
FREED_SECONDS = 0.2
HELD_PAUSE = timedelta(milliseconds=20)

ClaimFilter = tuple[tuple[str, ...] | None, tuple[str, ...] | None]
_MICROSECOND = timedelta(microseconds=1)


class LimitPage(NamedTuple):
    """Some keys, and how many there are in all."""

    limits: list[KeyLimit]
    total: int


class LimitTable(StorePart):
    """Keys with their limits. No counter of runs is kept anywhere: running rows are counted."""

    def page(self, *, limit: int = 50, offset: int = 0) -> LimitPage:
        """Known keys in their order."""
        check_page(limit, offset)
        params = {"keys": None, "limit": limit, "offset": offset}
        total = self._database.rows("count_limits", {})[0][0]
        return LimitPage(self._all(KeyLimit._make, "limits", params), total)

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
            BY_NAME["concurrency_limit"].kind.parse("concurrency_limit", max_running)
        figures = _figures(Limits(key, max_running, None if rate is None else parse_rate(rate)))
        before = self.find(key)
        self._database.rows("set_limit", {**figures, "key": key, "now": now})
        self._hint([key], now)
        after = self.get(key)
        AuditLog(self._database).add_row("limit.set", before, after, name=key, now=now)
        return after

    def reset(self, key: str, *, now: datetime | None = None) -> KeyLimit:
        """Leave a key to what its jobs ask for: those that wait, and each that comes."""
        before = self.find(key)
        if not self._database.rows("unset_limit", {"key": key, "now": now}):
            raise NotFound("limit", key)
        self.recall([key], now=now)
        after = self.get(key)
        AuditLog(self._database).add_row("limit.reset", before, after, name=key, now=now)
        return after

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
        if changed := self._ids("note_limits", params):
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

    def freed(self, jobs: Iterable[JobRecord], *, now: datetime | None = None) -> set[str]:
        """Runs of these jobs have ended: hint at what waits behind their keys, which are returned.
        A hint that cannot be sent is lost, as any may be; what has ended stays so."""
        keys = {job.concurrency_key for job in jobs if job.concurrency_key is not None}
        if keys:
            try:
                self._hint(sorted(keys), now, changed=False)
            except StoreError as error:
                logger.warning("no hint at what waits behind %s: %s", sorted(keys)[:5], error)
        return keys

    def prune(self, *, older_than: datetime) -> int:
        """Forget keys that have long been without jobs and that nobody has set; how many."""
        return len(self._database.rows("prune_limits", {"older_than": older_than}))

    def _hint(self, keys: Sequence[str], now: datetime | None, *, changed: bool = True) -> None:
        channel = self._database.channel
        params = {"keys": list(keys), "changed": changed, "channel": channel, "now": now}
        self._database.rows("hint_freed", params)


@dataclass(slots=True)
class ClaimMemory:
    """What one kind of claim (by its queues and tasks) remembers."""

    look_after: float = 0.0
    looked: bool = False
    looked_at: datetime | None = None
    saw: datetime | None = None
    walk_from: str | None = None
    walk_after: float = 0.0
    was_full: bool = False
    held: bool = False
    takes_turn: bool = False
    taken: int = 0


class KeyedClaims:
    """Claims key by key: `claim_share` takes a share before the ordinary claim, `claim_remaining`
    what room is left after it, `next_look` says when there may be more."""

    def __init__(self, database: Database, table: LimitTable) -> None:
        self._database = database
        self._table = table
        self._views: dict[ClaimFilter, ClaimMemory] = {}
        self._freed: dict[str, float] = {}
        self._last_seen = 0.0

    def runs_ended(self, keys: Iterable[str]) -> None:
        """Runs with these keys have ended in this process: look there first."""
        moment = time.monotonic()
        for key in keys:
            self._freed[key] = moment
        self._look_again()

    def job_added(self) -> None:
        """A job with a key was added by this process."""
        self._last_seen = time.monotonic()
        self._look_again()

    def claim_share(
        self,
        jobs: list[JobRecord],
        params: Mapping[str, Any],
        limit: int,
        connection: Connection | None,
    ) -> ClaimMemory:
        """Add up to half of `limit`, of one every other time, so that neither kind of job can keep
        the other waiting; nothing when it is not yet time to look."""
        view = self._views.setdefault(claim_filter(params), ClaimMemory())
        view.looked = False
        soon = time.monotonic() < view.look_after and not self._freed_keys()
        if not soon or params["now"] is not None:
            view.takes_turn = not view.takes_turn
            share = (limit + 1) // 2 if limit > 1 or view.takes_turn else 0
            if share:
                self._look(jobs, view, params, share, connection)
        view.taken = len(jobs)
        return view

    def claim_remaining(
        self,
        jobs: list[JobRecord],
        view: ClaimMemory,
        params: Mapping[str, Any],
        limit: int,
        connection: Connection | None,
    ) -> None:
        """Fill up to `limit` after an ordinary claim that left room: when the share was used up,
        or nothing was found at all though such jobs have been seen recently."""
        used_up = view.taken > 0 and view.taken >= (limit + 1) // 2
        seen_recently = time.monotonic() - self._last_seen < RECENT_SECONDS
        unseen = not jobs and not view.looked and seen_recently
        if used_up or unseen:
            self._look(jobs, view, params, limit, connection)

    def next_look(
        self, params: Mapping[str, Any], due: datetime, present: datetime
    ) -> datetime | None:
        """When a worker that has just claimed should look again; `due` is when the earliest job
        with a key was or is due. Jobs that their limits keep back are not due now."""
        if due > present:
            return due
        # The kinds of claim that have just looked, or have at this moment of a clock that stands,
        # must together cover all of these tasks; otherwise those that have not looked will.
        (queues, tasks), now = claim_filter(params), params["now"]
        asked = None if tasks is None else set(tasks)
        views = {
            own: view
            for (of_queues, own), view in list(self._views.items())
            if of_queues == queues and (asked is None or own is None or asked.intersection(own))
        }
        looked = {
            own: view
            for own, view in views.items()
            if (view.looked if now is None else view.looked_at == now)
        }
        known = {task for own in looked for task in own or ()}
        if None not in looked and (asked is None or not asked <= known):
            for view in views.values():
                view.look_after = 0.0
            return due
        walking = any(view.walk_from is not None for view in looked.values())
        held = any(view.held for view in looked.values())
        for view in looked.values():
            view.looked = view.held = False
        if walking:
            return due
        # Since the look, not since now: what has become free meanwhile was not seen.
        since = min(view.saw or present for view in looked.values())
        row = self._database.rows("limited_next", {**params, "since": since})[0]
        later: datetime | None = row[0]
        soon = present + HELD_PAUSE if held else None
        return min((moment for moment in (later, soon) if moment is not None), default=None)

    # --------------------------------------------------------------------------------------------

    def _look(
        self,
        jobs: list[JobRecord],
        view: ClaimMemory,
        params: Mapping[str, Any],
        limit: int,
        connection: Connection | None,
    ) -> None:
        view.looked, view.looked_at = True, params["now"]
        due, present = self._database.rows("limited_due", params, connection)[0]
        view.saw = present
        if due is None or due > present:
            view.look_after = time.monotonic() + QUIET_SECONDS
            view.walk_from = None
            return
        before = len(jobs)
        claimed, unknown = self._claim(view, params, limit - before, connection)
        jobs += claimed
        if unknown:
            self._table.recall(unknown, now=params["now"])
            jobs += self._claim(view, params, limit - len(jobs), connection)[0]
        self._last_seen = time.monotonic()
        view.look_after = self._last_seen + (0.0 if len(jobs) > before else KEPT_BACK_SECONDS)

    def _claim(
        self,
        view: ClaimMemory,
        params: Mapping[str, Any],
        limit: int,
        connection: Connection | None,
    ) -> tuple[list[JobRecord], list[str]]:
        if limit <= 0:
            return [], []
        walks = not view.was_full or time.monotonic() >= view.walk_after
        opening: AbstractContextManager[Any] = (
            self._database.transaction(hot=True) if connection is None else connection.transaction()
        )
        with opening as opened:
            own = connection or opened
            search = {
                **params,
                "limit": limit,
                "reach": REACH,
                "stretch": STRETCH,
                "walk_from": view.walk_from if walks else None,
                "freed": self._freed_keys(),
            }
            row = self._database.rows("limited_keys", search, own)[0]
            locked, held, more_due, walked_to, unknown = row
            jobs: list[JobRecord] = []
            if locked:
                taking = {**params, "limit": limit, "keys": locked}
                jobs = [
                    JobRecord._make(r) for r in self._database.rows("claim_limited", taking, own)
                ]
        view.held, view.was_full = bool(held), len(jobs) == limit
        if view.walk_from is None:
            view.walk_from = "" if more_due else None
        elif walks:
            # What this stretch could give has been taken, or was less urgent than what was.
            view.walk_from, view.walk_after = walked_to, time.monotonic() + WALK_SECONDS
        return jobs, unknown or []

    def _look_again(self) -> None:
        for view in list(self._views.values()):
            view.look_after, view.looked_at = 0.0, None

    def _freed_keys(self) -> list[str]:
        if not self._freed:
            return []
        oldest = time.monotonic() - FREED_SECONDS
        for key, moment in list(self._freed.items()):
            if moment < oldest:
                self._freed.pop(key, None)
        return list(self._freed)[:REACH]


def commits_at_once(connection: Connection) -> bool:
    """Whether what is claimed on this connection is so at once, and not when its owner commits."""
    return connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE


def claim_filter(params: Mapping[str, Any]) -> ClaimFilter:
    """The queues and tasks of a claim."""
    queues, tasks = params["queues"], params["tasks"]
    return None if queues is None else tuple(queues), None if tasks is None else tuple(tasks)


def _figures(limits: Limits) -> dict[str, Any]:
    rate = limits.rate
    return {
        "max_running": limits.max_running,
        "rate_limit": None if rate is None else str(rate),
        "burst": None if rate is None else rate.burst,
        "step_us": None if rate is None else rate.step // _MICROSECOND,
    }
