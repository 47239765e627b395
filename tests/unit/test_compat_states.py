"""The admin API's words for states, and what may be set by hand."""

import pytest

from evenbeat.compat.words import WORD_OF, WORDS, states_of, verb_to
from evenbeat.domain.states import TRANSITIONS, JobStatus
from evenbeat.errors import IllegalTransition, InvalidInput


def test_every_state_has_a_word_and_every_word_a_state():
    assert WORD_OF == {
        JobStatus.PENDING: "queued",
        JobStatus.SCHEDULED: "queued",
        JobStatus.RUNNING: "crawling",
        JobStatus.COMPLETED: "success",
        JobStatus.FAILED: "failed",
        JobStatus.PAUSED: "paused",
        JobStatus.CANCELLED: "cancelled",
    }
    assert {state for states in WORDS.values() for state in states} == set(JobStatus)


@pytest.mark.parametrize("state", JobStatus)
def test_what_a_run_makes_of_a_job_is_not_set_by_hand(state: JobStatus):
    for word in ("crawling", "success", "failed", "running", "completed"):
        if state in WORDS[word]:
            assert verb_to(state, word) is None
            continue
        with pytest.raises(IllegalTransition) as refused:
            verb_to(state, word)
        assert refused.value.allowed
        for allowed in refused.value.allowed:
            assert verb_to(state, allowed) is not None


@pytest.mark.parametrize("state", JobStatus)
def test_every_step_is_one_that_the_table_of_states_has(state: JobStatus):
    for word, states in WORDS.items():
        try:
            verb = verb_to(state, word)
        except IllegalTransition:
            continue
        if verb is not None:
            assert TRANSITIONS[state] & set(states), (state, word)


def test_an_unknown_word_is_refused_with_those_that_there_are():
    with pytest.raises(InvalidInput, match="queued, crawling, success, failed"):
        verb_to(JobStatus.PENDING, "done")
    with pytest.raises(InvalidInput):
        states_of(["queued", ""])
    assert states_of(["queued", "pending"]) == ["pending", "scheduled"]
