"""Taking back: jobs are exactly what they were, and what has changed since stays."""

from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.retry import RetryPolicy
from evenbeat.domain.schedule import Interval
from evenbeat.domain.states import CANCEL, PAUSE, RESUME, Verb
from evenbeat.errors import NotFound
from evenbeat.store.store import Store
from evenbeat.store.undo import MOST_UNDONE

HOURLY = JobSpec("sync", schedule=Interval(timedelta(hours=1)))


def done(store: Store, verb: Verb, ids: list[UUID]) -> UUID | None:
    return store.undo.around(ids, lambda: store.control.apply(verb, ids).changed, now=None)


@pytest.mark.parametrize("verb", [PAUSE, RESUME, CANCEL])
def test_a_job_is_what_it_was(store: Store, verb: Verb) -> None:
    job_id = store.add(NewJob(HOURLY, {"a": [1, None]}, name="x", dedup_key="k")).id
    if verb is RESUME:
        store.control.pause([job_id])
    before = store.read.job(job_id)
    undo = done(store, verb, [job_id])
    assert undo is not None
    assert store.undo.take_back(undo).changed_since == 0
    assert store.read.job(job_id)._replace(updated_at=before.updated_at) == before
    with pytest.raises(NotFound):
        store.undo.take_back(undo)


def test_an_edit_is_taken_back_with_payload_and_schedule(store: Store) -> None:
    job_id = store.add(NewJob(HOURLY, {"a": 1}, name="x")).id
    before = store.read.job(job_id)
    spec = JobSpec("other", schedule=Interval(timedelta(hours=2)), retry=RetryPolicy(max_retries=9))

    def edit() -> list[object]:
        return [store.control.update(job_id, lambda _: spec, payload={"b": 2}, name="y")]

    undo = store.undo.around([job_id], edit, now=None)  # type: ignore[arg-type]
    assert store.read.job(job_id).name == "y"
    assert undo is not None
    store.undo.take_back(undo)
    assert store.read.job(job_id)._replace(updated_at=before.updated_at) == before


def test_a_schedule_that_was_ended_during_a_run_goes_on_with_its_next_plan(store: Store) -> None:
    job_id = store.add(NewJob(HOURLY, start=timedelta(0))).id
    once = store.add(NewJob(JobSpec("sync"))).id
    assert len(store.claim(uuid4(), 2, lease=timedelta(minutes=5))) == 2
    undo = done(store, CANCEL, [job_id, once])
    assert undo is not None
    assert [job.id for job in store.undo.take_back(undo).jobs] == [job_id]
    job = store.read.job(job_id)
    assert (job.status, job.lock_token) == ("scheduled", None)
    assert job.next_run_at is not None
    assert job.next_run_at > store.clock()
    assert store.read.job(once).status == "cancelled"


def test_what_runs_or_has_run_is_not_touched(store: Store) -> None:
    job_id = store.add(NewJob(HOURLY, start=timedelta(0))).id
    store.claim(uuid4(), 1, lease=timedelta(minutes=5))
    assert done(store, PAUSE, [job_id]) is None
    assert done(store, PAUSE, [uuid4()]) is None


def test_more_than_a_thousand_jobs_are_not_remembered(store: Store) -> None:
    ids = [one.id for one in store.add_many([NewJob(HOURLY)] * (MOST_UNDONE + 1))]
    assert done(store, PAUSE, ids) is None
    assert done(store, RESUME, ids[1:]) is not None
