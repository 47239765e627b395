"""The tables of states and verbs: closed, and agreeing with each other and with every face."""

from typing import get_args

import pytest

from evenbeat.api.bulk import BulkVerb
from evenbeat.cli.job_edit import VERBS as COMMANDS
from evenbeat.domain.states import FINISHED, LIVE, TRANSITIONS, VERBS, JobStatus

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
    assert state not in TRANSITIONS[state]


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_a_verb_goes_only_where_the_table_of_states_allows(verb):
    for state in verb.sources - {verb.leads_to}:
        assert verb.leads_to is None or verb.leads_to in TRANSITIONS[state]


def test_a_run_that_is_to_be_paused_counts_as_paused():
    assert VERBS["pause"].suits("running", is_paused=False)
    assert not VERBS["pause"].suits("running", is_paused=True)
    assert VERBS["resume"].suits("running", is_paused=True)


def test_every_verb_is_offered_by_the_api_and_the_command_line():
    assert {*get_args(BulkVerb), "delete"} == set(VERBS)
    assert {"run", "pause", "resume", "retry", "cancel", "delete"} == set(VERBS)
    assert set(VERBS) - {"delete"} <= set(COMMANDS)
