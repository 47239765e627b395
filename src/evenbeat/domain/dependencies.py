"""Jobs that run after others, and what closes a circle."""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

_LIVE = ("pending", "scheduled", "running", "paused", "open")


class Dependency(NamedTuple):
    """One job, or batch of jobs, that is waited for, or a job that waits. Without a status it was
    deleted; `last_end` is how its newest occurrence ended, wanted or not."""

    id: UUID
    name: str | None
    task: str | None
    wanted: str
    satisfied: bool
    status: str | None
    last_end: str | None = None
    last_end_at: datetime | None = None
    scope: str | None = "global/global"
    is_batch: bool = False

    @property
    def label(self) -> str:
        """What people call it."""
        kind = "batch" if self.is_batch else self.task
        return self.name or (f"{kind} {self.id}" if kind else str(self.id))

    @property
    def is_alive(self) -> bool:
        """Whether it may still end by itself."""
        return self.status in _LIVE


def circle(edges: Iterable[tuple[UUID, UUID]], through: Iterable[UUID]) -> list[UUID] | None:
    """A way that leads from one of these jobs back to it, in the order of running, first and last
    alike; None when there is none. An edge is (who waits, for whom)."""
    waits_for: dict[UUID, list[UUID]] = {}
    for job, awaited in edges:
        waits_for.setdefault(job, []).append(awaited)
    for job in through:
        came_from: dict[UUID, UUID] = {}
        waiting = [job]
        while waiting:
            here = waiting.pop()
            for awaited in waits_for.get(here, ()):
                if awaited not in came_from:
                    came_from[awaited] = here
                    waiting.append(awaited)
        if job in came_from:
            way = [job, came_from[job]]
            while way[-1] != job:
                way.append(came_from[way[-1]])
            return way
    return None
