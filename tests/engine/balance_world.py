"""Shared by the tests of placement: an app that notes its runs, on a clock that the test moves."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from uuid import UUID

from evenbeat import Context, Evenbeat
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.schedule import Interval
from evenbeat.testing import Harness

START = datetime(2030, 1, 1, tzinfo=UTC)
SECOND, MINUTE, HOUR, DAY = (timedelta(seconds=s) for s in (1, 60, 3600, 86_400))


class World:
    """An app whose task notes its runs, and a harness that lets time pass."""

    def __init__(self, make: object, start: datetime = START) -> None:
        self.app = Evenbeat(name="balance")
        self.ran: dict[UUID, list[datetime]] = {}

        @self.app.task
        async def noop(ctx: Context) -> None:
            self.ran.setdefault(ctx.job.id, []).append(self.now)

        self.harness: Harness = make(self.app, start)

    @property
    def now(self) -> datetime:
        return self.harness.clock.now()

    def job(self, every: timedelta, name: str | None = None, **spec: object) -> NewJob:
        schedule = Interval(every, spec.pop("anchor", None))
        return NewJob(JobSpec("noop", schedule=schedule, **spec), name=name)

    def add(self, every: timedelta, name: str | None = None, **spec: object):
        return self.get(self.app.add(self.job(every, name, **spec)).id)

    def get(self, id_: UUID):
        return self.app.store.read.job(id_)

    def bunch(self, count: int, every: timedelta = 6 * HOUR, after: timedelta = 3 * HOUR, **spec):
        """Jobs that all run at the same moment, placed long ago as far as anyone can tell."""
        start = self.now + after
        label = spec.pop("name", "")
        jobs = [
            self.job(every, f"bunched{label}-{n:03}", anchor=start, **spec) for n in range(count)
        ]
        return [added.id for added in self.app.enqueue_many(jobs)]


def spread(times: list[datetime]) -> timedelta:
    """The smallest distance between two of these."""
    return min(later - earlier for earlier, later in pairwise(sorted(times)))
