"""Jobs that run after others: when one may start, what closes a circle, and all of it in words."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from evenbeat.domain.schedule import AfterCondition

NAMED_AT_MOST = 3
_LIVE = ("pending", "scheduled", "running", "paused")
_VERBS = {"success": "completed", "failure": "failed", "any": "ended"}


class Mark(NamedTuple):
    """Whether a job that is waited for has ended as wanted, and whether that was used already."""

    satisfied: bool
    fresh: bool


class Dependency(NamedTuple):
    """One job that is waited for. Without a status it was deleted; `last_end` is how its newest
    occurrence ended, wanted or not."""

    id: UUID
    name: str | None
    task: str | None
    wanted: str
    satisfied: bool
    status: str | None
    last_end: str | None = None
    last_end_at: datetime | None = None
    scope: str | None = "global/global"

    @property
    def label(self) -> str:
        """What people call it."""
        return self.name or (f"{self.task} {self.id}" if self.task else str(self.id))


class Dependent(NamedTuple):
    """One job that waits."""

    id: UUID
    name: str | None
    task: str
    wanted: str
    status: str

    @property
    def label(self) -> str:
        """What people call it."""
        return self.name or f"{self.task} {self.id}"


def may_start(marks: Sequence[Mark]) -> bool:
    """Whether an idle job starts: all have ended as wanted, one of them since its last start."""
    return all(mark.satisfied for mark in marks) and any(mark.fresh for mark in marks)


def ended_as_wanted(end: str, wanted: str) -> bool:
    """Whether an occurrence that ended `completed`, `failed` or `cancelled` is what was waited for.
    A cancelled one has neither succeeded nor failed."""
    if wanted == AfterCondition.ANY:
        return True
    return end == ("completed" if wanted == AfterCondition.SUCCESS else "failed")


def circle(edges: Iterable[tuple[UUID, UUID]], through: Iterable[UUID]) -> list[UUID] | None:
    """A way that leads from one of these jobs back to it, in the order of running, first and last
    alike; None when there is none. An edge is (who waits, for whom)."""
    waits_for: dict[UUID, list[UUID]] = {}
    for job, awaited in edges:
        waits_for.setdefault(job, []).append(awaited)
    return next((way for job in through if (way := _way_back(waits_for, job))), None)


def _way_back(waits_for: Mapping[UUID, list[UUID]], job: UUID) -> list[UUID] | None:
    came_from: dict[UUID, UUID] = {}
    waiting = [job]
    while waiting:
        here = waiting.pop()
        for awaited in waits_for.get(here, ()):
            if awaited == job:
                return [job, *_steps(came_from, here, job)]
            if awaited not in came_from:
                came_from[awaited] = here
                waiting.append(awaited)
    return None


def _steps(came_from: Mapping[UUID, UUID], here: UUID, job: UUID) -> Iterator[UUID]:
    while here != job:
        yield here
        here = came_from[here]
    yield job


# -- words -----------------------------------------------------------------------------------------


def say_dependencies(awaited: Sequence[Dependency]) -> str:
    """ "after load-data has completed", "after a and b have ended"."""
    if not awaited:
        return "after other jobs"
    parts: dict[str, list[str]] = {}
    for one in awaited:
        parts.setdefault(one.wanted, []).append(one.label)
    told = [f"{say_list(names)} {_has(names)} {_VERBS[how]}" for how, names in parts.items()]
    return f"after {' and '.join(told)}"


def say_list(names: Sequence[str]) -> str:
    """ "a", "a and b", "a, b, c and 4 more"."""
    if len(names) == 1:
        return names[0]
    if len(names) <= NAMED_AT_MOST:
        return f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{', '.join(names[:NAMED_AT_MOST])} and {len(names) - NAMED_AT_MOST} more"


def _has(names: Sequence[str]) -> str:
    return "has" if len(names) == 1 else "have"


def what_is_missing(awaited: Sequence[Dependency]) -> str:
    """Why a job that waits for others waits still, and what would help."""
    missing = [one for one in awaited if not one.satisfied]
    if not awaited:
        return "It waits for jobs that are no longer named. Give it others, or run it by hand."
    if not missing:
        return "All that it waits for has ended as wanted; it starts again when that ends again."
    stuck_first = sorted(missing, key=lambda one: one.status in _LIVE)
    told = "; ".join(map(_missing, stuck_first[:NAMED_AT_MOST]))
    more = len(missing) - NAMED_AT_MOST
    rest = f"; and {more} more" if more > 0 else ""
    return f"It waits for {told}{rest}."


def _missing(one: Dependency) -> str:
    wanted = f"it wants {one.wanted}" if one.wanted != "any" else "any end will do"
    if one.status is None:
        return f"{one.label}, which was deleted: give it another job to wait for, or run it by hand"
    if one.status in _LIVE:
        last = "" if one.last_end is None else f" and last ended {one.last_end}"
        return f"{one.label}, which is {one.status}{last}; {wanted}"
    return (
        f"{one.label}, which ended {one.status}; {wanted}: retry {one.label}, or run this by hand"
    )
