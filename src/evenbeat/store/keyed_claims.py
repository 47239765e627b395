"""Claiming jobs that have a concurrency key, beside the ordinary claim and at no cost to it.

Whether any such job waits is asked only now and then, and whenever there was nothing else to claim.
What is remembered here between two claims only says where to look first: the database decides.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from psycopg.pq import TransactionStatus

from evenbeat.domain.job import Job
from evenbeat.store.database import Connection, Database
from evenbeat.store.limits import LimitTable

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

_Filter = tuple[tuple[str, ...] | None, tuple[str, ...] | None]


@dataclass(slots=True)
class _ClaimMemory:
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


class KeyedClaims:
    """Claims key by key: `claim_share` takes a share before the ordinary claim, `claim_remaining`
    what room is left after it, `next_look` says when there may be more."""

    def __init__(self, database: Database, table: LimitTable) -> None:
        self._database = database
        self._table = table
        self._views: dict[_Filter, _ClaimMemory] = {}
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
        self, jobs: list[Job], params: Mapping[str, Any], limit: int, connection: Connection | None
    ) -> None:
        """Add up to half of `limit`, of one every other time, so that neither kind of job can keep
        the other waiting; nothing when it is not yet time to look."""
        view = self._view(params)
        view.looked = False
        soon = time.monotonic() < view.look_after and not self._freed_keys()
        if soon and params["now"] is None:
            return
        view.takes_turn = not view.takes_turn
        share = (limit + 1) // 2 if limit > 1 or view.takes_turn else 0
        if share:
            self._look(jobs, view, params, share, connection)

    def claim_remaining(
        self,
        jobs: list[Job],
        params: Mapping[str, Any],
        limit: int,
        connection: Connection | None,
        *,
        taken: int,
    ) -> None:
        """Fill up to `limit` after an ordinary claim that left room: when the share was used up
        (`taken` of it), or nothing was found at all though such jobs have been seen recently."""
        view = self._view(params)
        used_up = taken > 0 and taken >= (limit + 1) // 2
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
        views = self._that_looked(params["queues"], params["tasks"], params["now"])
        if views is None:
            return due
        walking, held = any(v.walk_from is not None for v in views), any(v.held for v in views)
        for view in views:
            view.looked = view.held = False
        if walking:
            return due
        # Since the look, not since now: what has become free meanwhile was not seen.
        since = min(view.saw or present for view in views)
        later: datetime | None = self._database.rows("limited_next", {**params, "since": since})[0][
            0
        ]
        soon = present + HELD_PAUSE if held else None
        return min((moment for moment in (later, soon) if moment is not None), default=None)

    # --------------------------------------------------------------------------------------------

    def _look(
        self,
        jobs: list[Job],
        view: _ClaimMemory,
        params: Mapping[str, Any],
        limit: int,
        connection: Connection | None,
    ) -> None:
        view.looked, view.looked_at = True, params["now"]
        due, present = self._database.rows("limited_due", params, connection)[0]
        view.saw = present
        if due is None or due > present:
            self._rest(view, QUIET_SECONDS)
            view.walk_from = None
            return
        before = len(jobs)
        claimed, unknown = self._claim(view, params, limit - before, connection)
        jobs += claimed
        if unknown:
            self._table.recall(unknown, now=params["now"])
            jobs += self._claim(view, params, limit - len(jobs), connection)[0]
        self._last_seen = time.monotonic()
        self._rest(view, 0.0 if len(jobs) > before else KEPT_BACK_SECONDS)

    def _claim(
        self,
        view: _ClaimMemory,
        params: Mapping[str, Any],
        limit: int,
        connection: Connection | None,
    ) -> tuple[list[Job], list[str]]:
        if limit <= 0:
            return [], []
        walks = not view.was_full or time.monotonic() >= view.walk_after
        with self._transaction(connection) as own:
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
            jobs: list[Job] = []
            if locked:
                taking = {**params, "limit": limit, "keys": locked}
                jobs = [Job._make(r) for r in self._database.rows("claim_limited", taking, own)]
        view.held, view.was_full = bool(held), len(jobs) == limit
        if view.walk_from is None:
            view.walk_from = "" if more_due else None
        elif walks:
            # What this stretch could give has been taken, or was less urgent than what was.
            view.walk_from, view.walk_after = walked_to, time.monotonic() + WALK_SECONDS
        return jobs, unknown or []

    @contextmanager
    def _transaction(self, connection: Connection | None) -> Iterator[Connection]:
        if connection is None:
            with self._database.transaction(hot=True) as own:
                yield own
        else:
            with connection.transaction():
                yield connection

    def _rest(self, view: _ClaimMemory, seconds: float) -> None:
        view.look_after = time.monotonic() + seconds

    def _view(self, params: Mapping[str, Any]) -> _ClaimMemory:
        return self._views.setdefault(_filter(params["queues"], params["tasks"]), _ClaimMemory())

    def _look_again(self) -> None:
        for view in list(self._views.values()):
            view.look_after, view.looked_at = 0.0, None

    def _that_looked(
        self, queues: Sequence[str] | None, tasks: Sequence[str] | None, now: datetime | None
    ) -> list[_ClaimMemory] | None:
        """The kinds of claim that have just looked, or have at this moment of a clock that stands,
        if together they cover all of these tasks; otherwise those that have not looked will."""
        asked = None if tasks is None else set(tasks)
        views = [
            (own, view)
            for (of_queues, own), view in list(self._views.items())
            if of_queues == _filter(queues, None)[0]
            and (asked is None or own is None or asked.intersection(own))
        ]
        looked = [
            (own, view)
            for own, view in views
            if (view.looked if now is None else view.looked_at == now)
        ]
        known = {task for own, _ in looked for task in own or ()}
        covered = any(own is None for own, _ in looked) or (asked is not None and asked <= known)
        if covered:
            return [view for _, view in looked]
        for _, view in views:
            view.look_after = 0.0
        return None

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


def _filter(queues: Sequence[str] | None, tasks: Sequence[str] | None) -> _Filter:
    return (
        None if queues is None else tuple(queues),
        None if tasks is None else tuple(tasks),
    )
