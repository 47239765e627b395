"""A task's settings survive the way through JSON."""

import json
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from evenbeat.domain.job import JobSpec, OnFailure, settings_of, spec_from_settings
from evenbeat.domain.retry import RetryPolicy

durations = st.integers(1, 10**9).map(lambda n: timedelta(milliseconds=n))
maybe = st.none() | durations
specs = st.builds(
    JobSpec,
    task=st.just("report"),
    queue=st.sampled_from(["default", "slow"]),
    priority=st.integers(0, 100),
    timeout=maybe,
    lease=maybe,
    heartbeat=maybe,
    cost=maybe,
    allow_stale_reentry=st.booleans(),
    on_failure=st.sampled_from(OnFailure),
    retry=st.builds(
        RetryPolicy,
        max_retries=st.integers(0, 50),
        jitter=st.sampled_from([0.0, 0.2, 0.5]),
        delays=st.lists(st.integers(1, 3600).map(lambda n: timedelta(seconds=n)), max_size=4),
    ),
)


@given(specs)
def test_what_was_noted_is_what_jobs_start_from(spec: JobSpec):
    noted = json.loads(json.dumps(settings_of(spec)))
    assert spec_from_settings(spec.task, spec.queue, noted) == spec


def test_a_note_of_an_older_worker_lacks_some_settings():
    assert spec_from_settings("report", "slow", {}) == JobSpec(task="report", queue="slow")
