"""The admin API's words for the states of a job, and what setting one by hand means; pure.

    queued    pending or scheduled      crawling  running
    success   completed                 failed    failed

The seven words of /api/v1 are accepted as well. `paused` and `cancelled` have no other name.

Nobody writes a state: setting one means a verb that leads there. Only a run makes a job `running`,
`completed` or `failed`; a job that is to end without a run is cancelled.
"""

from collections.abc import Sequence

from evenbeat.domain.states import VERBS, JobStatus, Verb
from evenbeat.errors import IllegalTransition, InvalidInput

_S = JobStatus

WORDS: dict[str, tuple[JobStatus, ...]] = {
    "queued": (_S.PENDING, _S.SCHEDULED),
    "crawling": (_S.RUNNING,),
    "success": (_S.COMPLETED,),
    "failed": (_S.FAILED,),
} | {state.value: (state,) for state in _S if state is not _S.FAILED}
"""Every word that is accepted, with the states it means."""

WORD_OF: dict[JobStatus, str] = {
    state: next(word for word, states in WORDS.items() if state in states) for state in _S
}
"""The word that responses have for each state."""


def verb_to(state: JobStatus, word: str) -> Verb | None:
    """The verb that leads from a state to the one that the word names; None where the job is there
    already. Raises `IllegalTransition`, which lists the words that can be set from here."""
    if state in states_of([word]):
        return None
    verbs: dict[str, Verb] = {}
    # Several verbs may lead there: the one for fewer states is meant, such as retry before run.
    for verb in sorted(VERBS.values(), key=lambda verb: -len(verb.sources)):
        if state in verb.sources:
            words = (name for name, states in WORDS.items() if state not in states)
            verbs |= {name: verb for name in words if verb.leads_to in WORDS[name]}
    if word not in verbs:
        raise IllegalTransition(WORD_OF[state], word, verbs)
    return verbs[word]


def states_of(words: Sequence[str]) -> list[str]:
    """The states that any of the words means, or `InvalidInput` that lists the known words."""
    for word in words:
        if word not in WORDS:
            raise InvalidInput(
                f"status must be one of {', '.join(WORDS)}, got {word!r}.", field="status"
            )
    return list(dict.fromkeys(state.value for word in words for state in WORDS[word]))
