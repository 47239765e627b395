"""Claims in fair turns: jobs with a fair key, beside the ordinary claim and at no cost to it.

What is remembered here between two claims is whose turn it is, as far as this process knows.
"""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple

from evenbeat.domain.fair_turns import Turn, deal, in_turns
from evenbeat.domain.job import JobRecord
from evenbeat.store.database import Connection, Database
from evenbeat.store.limits import QUIET_SECONDS, RECENT_SECONDS, ClaimFilter, claim_filter

FEW = 10
"""A claim looks at so many keys, or at a tenth of its room. So the jobs of a large claim come ten
of a key at a time, and finding them costs no more than it does without keys."""

MOST_KEYS = 250
MOST_LANES = 500
LOOKS = 4
"""How often one claim looks for keys until its room is filled; further where it found nothing."""

COME_DUE = 1000


class KeyLane(NamedTuple):
    """A key's waiting jobs of one task and priority."""

    queue: str
    key: str
    weight: int
    task: str
    priority: int
    next_run_at: datetime
    is_open: bool


class NextKeys(NamedTuple):
    """Whose turns come next, each with what this worker can take; whether these are all keys."""

    keys: list[list[KeyLane]]
    is_all: bool


@dataclass(slots=True)
class FairMemory:
    """What one kind of claim (by its queues and tasks) remembers; `wants_room` means that it would
    take what room the ordinary claim leaves."""

    turn: Turn = field(default_factory=Turn)
    look_after: float = 0.0
    takes_share: bool = False
    wants_room: bool = False


class FairClaims:
    """`claim_share` takes a share before the ordinary claim, `fill` what room is left after it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._memories: dict[ClaimFilter, FairMemory] = {}
        self._last_seen = -RECENT_SECONDS

    def look_again(self) -> None:
        """There is something due, or this process has added something."""
        self._last_seen = time.monotonic()
        for memory in list(self._memories.values()):
            memory.look_after = 0.0

    def claim_share(
        self,
        jobs: list[JobRecord],
        params: Mapping[str, Any],
        room: int,
        connection: Connection | None,
    ) -> FairMemory:
        """Add up to half of `room`, of one every other time, so that neither kind of job can keep
        the other waiting; nothing when it is not yet time to look."""
        memory = self._memories.setdefault(claim_filter(params), FairMemory())
        moment = time.monotonic()
        if room > 0 and (moment >= memory.look_after or params["now"] is not None):
            memory.takes_share = not memory.takes_share
            share = (room + 1) // 2 if room > 1 or memory.takes_share else 0
            found = self.fill(jobs, memory, params, share, connection) if share else 0
            memory.wants_room = found == share
        else:
            memory.wants_room = moment - self._last_seen < RECENT_SECONDS
        return memory

    def fill(
        self,
        jobs: list[JobRecord],
        memory: FairMemory,
        params: Mapping[str, Any],
        room: int,
        connection: Connection | None,
    ) -> int:
        """Add up to `room` jobs whose turn it is; how many."""
        due = {"now": params["now"], "limit": COME_DUE}
        came_due = len(self._database.rows("fair_come_due", due, connection))
        before, further, more = len(jobs), 1, True
        for _ in range(LOOKS):
            left = room - (len(jobs) - before)
            if not (left and more):
                break
            reach = min(further * min(left, max(FEW, left // FEW)), MOST_KEYS)
            found = self._keys(reach, memory, params, connection)
            more = not found.is_all
            if found.keys:
                claimed, has_full = self._claim(found, memory, params, left, connection)
                jobs += claimed
                more = more or has_full
            else:
                further *= FEW
        if len(jobs) > before or came_due or more:
            memory.look_after, self._last_seen = 0.0, time.monotonic()
        else:
            memory.look_after = time.monotonic() + QUIET_SECONDS
        return len(jobs) - before

    # --------------------------------------------------------------------------------------------

    def _keys(
        self,
        reach: int,
        memory: FairMemory,
        params: Mapping[str, Any],
        connection: Connection | None,
    ) -> NextKeys:
        """The next keys, up to `reach`."""
        turn = memory.turn
        search = {
            "queues": params["queues"],
            "tasks": params["tasks"],
            "from_queue": turn.queue,
            "from_key": turn.key,
            "is_over": turn.is_over,
            "keys": reach,
            "lanes": MOST_LANES,
            "now": params["now"],
        }
        rows = self._database.rows("fair_turns", search, connection)
        keys = [list(own) for _, own in groupby(map(KeyLane._make, rows), lambda row: row[:2])]
        is_all = len(keys) <= reach and len(rows) < MOST_LANES
        if not is_all and len(keys) > 1:
            del keys[-1]  # not all of it may have been seen
        own = [[lane for lane in key if lane.is_open] for key in keys]
        if not is_all and not any(own):
            memory.turn = Turn(keys[-1][0].queue, keys[-1][0].key)
        return NextKeys([key for key in own if key], is_all)

    def _claim(
        self,
        next_keys: NextKeys,
        memory: FairMemory,
        params: Mapping[str, Any],
        room: int,
        connection: Connection | None,
    ) -> tuple[list[JobRecord], bool]:
        """Claim of these keys what their turns allow; whether one may have more than that."""
        keys, is_all = next_keys
        first = keys[0][0]
        goes_on = not memory.turn.is_over and (first.queue, first.key) == memory.turn[:2]
        weights = [key[0].weight for key in keys]
        dealt = deal(room, weights, memory.turn.started if goes_on else 0, is_all=is_all)
        shared = [(lane, n) for key, n in zip(keys, dealt.shares, strict=True) for lane in key if n]
        taking = {
            "worker_id": params["worker_id"],
            "lease_seconds": params["lease_seconds"],
            "now": params["now"],
            "queues": [lane.queue for lane, _ in shared],
            "keys": [lane.key for lane, _ in shared],
            "shares": [share for _, share in shared],
            "tasks": [lane.task for lane, _ in shared],
            "priorities": [lane.priority for lane, _ in shared],
            "since": [lane.next_run_at for lane, _ in shared],
        }
        jobs = [
            JobRecord._make(row) for row in self._database.rows("claim_fair", taking, connection)
        ]
        last = keys[dealt.last][0]
        over = dealt.started >= last.weight
        memory.turn = Turn(last.queue, last.key, dealt.started, over)
        place = {(key[0].queue, key[0].key): number for number, key in enumerate(keys)}
        jobs.sort(key=lambda job: place[job.queue, job.fair_key or ""])
        taken = Counter(place[job.queue, job.fair_key or ""] for job in jobs)
        has_full = any(taken[index] == share for index, share in enumerate(dealt.shares) if share)
        ordered = in_turns(jobs, lambda job: (job.queue, job.fair_key), lambda job: job.fair_weight)
        return ordered, has_full
