"""The chore that watches deadlines: who missed one, and who has made up for it."""

import logging
from datetime import timedelta

from evenbeat.domain.deadlines import Deadline, missed_deadlines
from evenbeat.domain.job import JobRecord
from evenbeat.engine.clock import Clock
from evenbeat.events import Event, EventBus, EventKind
from evenbeat.store.part import Between, go_on
from evenbeat.store.store import Store

logger = logging.getLogger(__name__)

_WORDS = {
    EventKind.LATE: "Late",
    EventKind.OVERDUE: "Overdue",
    EventKind.RECOVERED: "Made up for what was missed",
}
_KINDS = {Deadline.START: EventKind.LATE, Deadline.SUCCESS: EventKind.OVERDUE}


class WatchDeadlines:
    """Compares what jobs have missed with what is noted. Webhooks are told by the statement that
    notes it, so each is told once, whatever dies; listeners are those of this process."""

    name = "deadlines"
    every = timedelta(seconds=10)

    def __init__(self, store: Store, clock: Clock, events: EventBus) -> None:
        self._store = store
        self._clock = clock
        self._events = events

    def run_once(self, between: Between = go_on, /) -> int:
        """Look at each job with a deadline; returns how many have changed."""
        store, override = self._store.deadlines, self._clock.override()
        moment, changed = self._store.clock(override), store.forget_others()
        for chunk in store.jobs():
            between()
            jobs = {one.job.id: one.job for one in chunk}
            missed = {
                (one.job.id, miss.deadline): miss
                for one in chunk
                for miss in missed_deadlines(one.job, one.runs, moment)
            }
            noted = store.missed(list(jobs))
            news = [(key[0], miss) for key, miss in missed.items() if key not in noted]
            over = [key for key in noted if key not in missed]
            new = store.note(news, now=override) if news else set()
            for job_id, miss in news:
                if (job_id, miss.deadline) in new:
                    self._say(_KINDS[miss.deadline], jobs[job_id], miss.text)
            if over:
                store.forget(over, now=override)
            for job_id, deadline in over:
                self._say(EventKind.RECOVERED, jobs[job_id], noted[job_id, deadline])
            changed += len(news) + len(over)
        return changed

    def _say(self, kind: EventKind, job: JobRecord, text: str) -> None:
        fields = {
            "job_id": str(job.id),
            "task": job.task,
            "job_name": job.name or "",
            "reason": text,
        }
        level = logging.INFO if kind is EventKind.RECOVERED else logging.WARNING
        logger.log(level, "%s: %s", _WORDS[kind], job.name or job.task, extra=fields)
        self._events.emit(Event(kind, job, self._clock.now(), reason=text))
