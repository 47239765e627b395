"""Applying an operator's verb to jobs, and saying what became of them."""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from evenbeat import humanize
from evenbeat.api.dependencies import Service
from evenbeat.domain.states import VERBS, Verb
from evenbeat.errors import InvalidInput
from evenbeat.store.filters import JobFilter


class Result(NamedTuple):
    """How many jobs a verb changed and left alone, and why it left the first one alone."""

    changed: int
    refused: int
    reason: str = ""

    def sentence(self, verb: Verb) -> str:
        """What happened, in words."""
        done = f"{verb.notice} {humanize.count(self.changed, 'job')}"
        if not self.refused:
            return f"{done}."
        alone = humanize.count(self.refused, "job was", "jobs were")
        if not self.changed:
            return self.reason if self.refused == 1 and self.reason else f"{alone} left alone."
        return f"{done}; {alone} left alone. {self.reason}"


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
    control, now = service.app.store.control, service.now
    if isinstance(over, JobFilter):
        return Result(*control.everywhere(over, lambda ids: control.apply(verb, ids, now=now)))
    changes = control.apply(verb, over, now=now)
    reason = str(changes.refused[0].error()) if changes.refused else ""
    return Result(len(changes.changed), len(changes.refused), reason)
