"""The admin API's words for the states of a job, and what setting one by hand means; pure.

    queued    pending or scheduled      crawling  running
    success   completed                 failed    failed

Our own seven words are understood as well. `paused` and `cancelled` have no other name, and are
answered as they are.

A person does not write a state: they do something that leads to it. `running`, `completed` and
`failed` are what a run makes of a job, so no hand sets them. A job that is to end without a run is
cancelled, which is what happened to it.
"""

from collections.abc import Sequence
from enum import StrEnum

from evenbeat.domain.states import JobStatus
from evenbeat.errors import IllegalTransition, InvalidInput

_S = JobStatus

WORDS: dict[str, tuple[JobStatus, ...]] = {
    "queued": (_S.PENDING, _S.SCHEDULED),
    "crawling": (_S.RUNNING,),
    "success": (_S.COMPLETED,),
    "failed": (_S.FAILED,),
} | {state.value: (state,) for state in _S if state is not _S.FAILED}
"""Every word that is understood, with the states it means."""

SPOKEN: dict[JobStatus, str] = {
    state: next(word for word, states in WORDS.items() if state in states) for state in _S
}
"""How each state is answered."""


class Step(StrEnum):
    """What to do to a job so that it gets to the state that was asked for."""

    STAY = "stay"
    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    RETRY = "retry"
    RUN_NOW = "run now"


_LEAVING = {"paused": Step.PAUSE, "cancelled": Step.CANCEL}
_AGAIN = {"queued": Step.RETRY, "pending": Step.RETRY}

_STEPS: dict[JobStatus, dict[str, Step]] = {
    _S.PENDING: _LEAVING,
    _S.SCHEDULED: _LEAVING | {"pending": Step.RUN_NOW},
    _S.RUNNING: _LEAVING,
    _S.PAUSED: {"queued": Step.RESUME, "scheduled": Step.RESUME, "cancelled": Step.CANCEL},
    _S.COMPLETED: {"queued": Step.RUN_NOW, "pending": Step.RUN_NOW},
    _S.FAILED: _AGAIN,
    _S.CANCELLED: _AGAIN,
}


def step_to(state: JobStatus, word: str) -> Step:
    """What leads from a state to the one that the word names; nothing to do where the job is there
    already. Raises `IllegalTransition`, which lists the words that can be set from here."""
    if state in states_of(word):
        return Step.STAY
    step = _STEPS[state].get(word)
    if step is None:
        raise IllegalTransition(SPOKEN[state], word, _STEPS[state])
    return step


def states_of(word: str, field: str = "status") -> tuple[JobStatus, ...]:
    """The states that a word means, or `InvalidInput` with the words that there are."""
    states = WORDS.get(word)
    if states is None:
        raise InvalidInput(f"{field} must be one of {', '.join(WORDS)}, got {word!r}.", field=field)
    return states


def states_of_all(words: Sequence[str] | None) -> list[str] | None:
    """The states that any of the words means; None for all."""
    if words is None:
        return None
    return list(dict.fromkeys(state.value for word in words for state in states_of(word)))
