"""The table of states: closed, and the only judge of what may follow what."""

import pytest

from evenbeat.domain.states import (
    FINISHED,
    LIVE,
    TRANSITIONS,
    JobStatus,
    can_become,
    check_transition,
    sources_of,
)
from evenbeat.errors import Conflict, IllegalTransition

PAIRS = [(state, wanted) for state in JobStatus for wanted in JobStatus]
LEGAL = [pair for pair in PAIRS if pair[1] in TRANSITIONS[pair[0]]]
ILLEGAL = [pair for pair in PAIRS if pair not in LEGAL]

# The table of the design, said once more: a change of the code alone is not enough.
DESIGNED = {
    "pending": "scheduled running paused cancelled",
    "scheduled": "running paused cancelled pending",
    "running": "completed failed scheduled cancelled pending paused",
    "paused": "scheduled pending cancelled",
    "completed": "scheduled pending",
    "failed": "pending",
    "cancelled": "pending",
}


def test_the_table_is_the_one_of_the_design():
    assert {state: set(targets.split()) for state, targets in DESIGNED.items()} == TRANSITIONS


def test_every_state_is_in_the_table_can_be_left_and_can_be_reached():
    assert set(TRANSITIONS) == set(JobStatus)
    assert all(TRANSITIONS.values())
    assert frozenset().union(*TRANSITIONS.values()) == set(JobStatus)


def test_every_state_is_either_live_or_finished():
    assert set(JobStatus) == LIVE | FINISHED
    assert not LIVE & FINISHED


@pytest.mark.parametrize("state", JobStatus)
def test_no_state_follows_itself(state):
    assert not can_become(state, state)


@pytest.mark.parametrize(("state", "wanted"), LEGAL)
def test_a_step_of_the_table_is_allowed(state, wanted):
    assert can_become(state, wanted)
    check_transition(state, wanted)


@pytest.mark.parametrize(("state", "wanted"), ILLEGAL)
def test_any_other_step_is_refused_with_the_states_that_are_allowed(state, wanted):
    assert not can_become(state, wanted)
    with pytest.raises(IllegalTransition) as caught:
        check_transition(state, wanted)
    error = caught.value
    assert isinstance(error, Conflict)
    assert (error.state, error.wanted) == (state, wanted)
    assert error.allowed == tuple(sorted(TRANSITIONS[state]))
    assert f"is {state} cannot become {wanted}" in str(error)
    assert all(allowed in str(error) for allowed in TRANSITIONS[state])


@pytest.mark.parametrize("wanted", JobStatus)
def test_the_sources_of_a_state_are_those_that_lead_to_it(wanted):
    assert sources_of(wanted) == {state for state, target in LEGAL if target is wanted}
