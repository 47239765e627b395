"""What an operator can do to jobs: one list of verbs for buttons, confirmations and notices."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from evenbeat import humanize
from evenbeat.api.dependencies import Service
from evenbeat.domain.job import Job
from evenbeat.domain.states import FINISHED, JobStatus
from evenbeat.errors import InvalidInput
from evenbeat.store.control import Changes, RefusedJob
from evenbeat.store.filters import JobFilter

_S = JobStatus


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb: its words, its icon, the states it is for, and what it does beyond the obvious."""

    name: str
    label: str
    done: str
    icon: str
    sources: frozenset[JobStatus]
    effect: str = ""
    always_ask: bool = False

    def suits(self, job: Job) -> bool:
        """Whether a button for it belongs beside this job."""
        state = _S.PAUSED if job.is_paused else _S(job.status)
        return state in self.sources


VERBS = {
    verb.name: verb
    for verb in (
        Verb("run", "Run now", "Started", "run", frozenset({_S.PENDING, _S.SCHEDULED}) | FINISHED),
        Verb(
            "pause", "Pause", "Paused", "pause", frozenset({_S.PENDING, _S.SCHEDULED, _S.RUNNING})
        ),
        Verb("resume", "Resume", "Resumed", "resume", frozenset({_S.PAUSED})),
        Verb("retry", "Retry", "Retried", "retry", frozenset({_S.FAILED, _S.CANCELLED})),
        Verb(
            "cancel",
            "Cancel",
            "Cancelled",
            "cancel",
            frozenset({_S.PENDING, _S.SCHEDULED, _S.RUNNING, _S.PAUSED}),
            "A run in progress is stopped and its result is discarded. A cancelled job "
            "stays listed and can be retried.",
            always_ask=True,
        ),
        Verb(
            "delete",
            "Delete",
            "Deleted",
            "delete",
            frozenset(_S),
            "This also deletes its history and cannot be undone.",
            always_ask=True,
        ),
    )
}


class Result(NamedTuple):
    """How many jobs a verb changed and left alone, and why it left the first one alone."""

    changed: int
    refused: int
    reason: str = ""

    def sentence(self, verb: Verb) -> str:
        """What happened, in words."""
        done = f"{verb.done} {humanize.count(self.changed, 'job')}"
        if not self.refused:
            return f"{done}."
        left = humanize.count(self.refused, "job was", "jobs were")
        if not self.changed:
            return self.reason if self.refused == 1 and self.reason else f"{left} left alone."
        return (
            f"{verb.done} {humanize.count(self.changed, 'job')}; {left} left alone. {self.reason}"
        )


def verb_named(name: str) -> Verb:
    """The verb of this name."""
    try:
        return VERBS[name]
    except KeyError:
        raise InvalidInput(
            f"There is no verb {name[:40]!r}; there are: {', '.join(VERBS)}.", field="verb"
        ) from None


def apply(service: Service, verb: Verb, over: Sequence[UUID] | JobFilter) -> Result:
    """Do it, to some jobs or to all that match."""
    if isinstance(over, JobFilter):
        tally = service.app.store.control.everywhere(over, lambda ids: _act(service, verb, ids))
        return Result(tally.changed, tally.refused)
    done = _act(service, verb, over)
    return Result(len(done.changed), len(done.refused), _reason(done.refused))


def _act(service: Service, verb: Verb, ids: Sequence[UUID]) -> Changes:
    control, now = service.app.store.control, service.now
    match verb.name:
        case "run":
            return control.run_now(ids, now=now)
        case "pause":
            return control.pause(ids, now=now)
        case "resume":
            return control.resume(ids, now=now)
        case "retry":
            return control.retry(ids, now=now)
        case "cancel":
            return control.cancel(ids, now=now)
        case _:
            return control.delete(ids)


def _reason(refused: Sequence[RefusedJob]) -> str:
    return str(refused[0].error()) if refused else ""
