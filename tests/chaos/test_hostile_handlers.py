"""Handlers that raise and return anything: the worker stands, and no other job pays for it."""

from uuid import UUID

import pytest
from fleet import SHORT_LEASE, Fleet, Story, job

from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.retry import RetryPolicy
from evenbeat.store.store import Store
from waiting import wait_for

NO_RETRY = RetryPolicy(max_retries=0)
RUNNERS = ("misbehave_on_loop", "misbehave_in_thread", "misbehave_alone")

RAISED = {
    "system_exit": "SystemExit",
    "keyboard_interrupt": "KeyboardInterrupt",
    "generator_exit": "GeneratorExit",
    "cancelled": "CancelledError",
    "stop_iteration": "StopIteration",
    "base_exception": "Rude",
    "unspeakable": "Unspeakable",
    "nul": "ValueError",
    "surrogate": "ValueError",
    "huge_message": "ValueError",
    "group": "BaseExceptionGroup",
    "bad_retry": "retry",
    "endless_retry": "retry",
    "fail": "fail",
}
RETURNED = (
    "object", "nan", "cycle", "deep", "huge", "bytes", "nul_result", "surrogate_result",
    "long_number", "longer_number",
)  # fmt: skip


def ended(store: Store, job_id: UUID) -> str:
    status = store.read.job(job_id).status
    return "" if status in ("pending", "scheduled", "running") else status


@pytest.mark.parametrize("task", RUNNERS)
def test_whatever_a_handler_does_costs_nobody_else(
    fleet: Fleet, store: Store, story: Story, task: str
) -> None:
    isolated = task == "misbehave_alone"  # each takes a process of its own: a few will do
    raised = list(RAISED)[::6] if isolated else list(RAISED)
    returned = RETURNED[::6] if isolated else RETURNED
    hows = [*raised, *returned, "hostile"]
    innocent = [job("nap"), job("doze")] * 20
    jobs = [job(task, {"how": how}, retry=NO_RETRY) for how in hows]
    added = [one.id for one in store.add_many([*jobs, *innocent])]
    worker = fleet.start(threads=2, concurrency=8)

    wait_for(lambda: all(ended(store, id_) for id_ in added), "everything has ended")

    by_how = dict(zip(hows, added, strict=False))
    for how in raised:
        assert store.read.job(by_how[how]).status == "failed", how
        ((status, code),) = story.executions(by_how[how])
        assert status == "failed"
        # A coroutine may not raise StopIteration: Python makes another error of it.
        on_loop = how == "stop_iteration" and task == "misbehave_on_loop"
        assert code == ("RuntimeError" if on_loop else RAISED[how]), how
    for how in returned:
        assert story.executions(by_how[how]) == [("completed", None)], how
    assert all(ended(store, id_) == "completed" for id_ in added[len(hows) :])
    assert worker.alive
    later = [one.id for one in store.add_many([*innocent, job(task, {"how": "nan"})])]
    wait_for(lambda: all(ended(store, id_) == "completed" for id_ in later), "it goes on")


def test_what_is_kept_of_odd_results(fleet: Fleet, store: Store) -> None:
    fleet.start()

    def result(how: str) -> object:
        id_ = store.add(job("misbehave_on_loop", {"how": how}, retry=NO_RETRY)).id
        wait_for(lambda: ended(store, id_), f"{how} has ended")
        return store.read.executions_of(id_).executions[0].result

    assert result("nul_result") == {"a\ufffd": ["\ufffd", "\\u0000", "\\\ufffd"]}
    assert result("long_number") == 10**4000
    for how in ("object", "nan", "huge", "bytes", "cycle", "deep"):
        kept = result(how)
        assert isinstance(kept, dict)
        assert set(kept) == {"omitted", "type"}, how


def test_exit_in_a_subtask_does_not_stop_the_loop(fleet: Fleet, store: Store, story: Story) -> None:
    worker = fleet.start()
    neighbour = store.add(job("nap", {"seconds": 1.5}))
    wait_for(lambda: fleet.ledger.entries("start"), "the neighbour runs")
    leaver = store.add(job("exit_in_subtask", retry=NO_RETRY))

    assert wait_for(lambda: ended(store, leaver.id), "it has ended", within=5) == "failed"

    assert story.executions(leaver.id) == [("failed", "SystemExit")]
    wait_for(lambda: ended(store, neighbour.id) == "completed", "the neighbour completes", within=5)
    assert story.executions(neighbour.id) == [("completed", None)]
    assert worker.alive


def test_progress_that_cannot_be_stored_costs_no_lease(
    fleet: Fleet, store: Store, story: Story
) -> None:
    ill = store.add(job("ill_progress", {"seconds": 4}))
    neighbour = store.add(job("nap", {"seconds": 4}))
    alone = store.add(job("ill_progress_alone", retry=NO_RETRY))
    counted = store.add(job("too_many", retry=NO_RETRY))
    fleet.start(**SHORT_LEASE)

    wait_for(lambda: story.counts().get("completed") == 3, "both complete")
    wait_for(lambda: ended(store, alone.id), "the isolated one has ended")

    for added in (ill, neighbour):
        assert story.executions(added.id) == [("completed", None)], "its lease was lost"
    assert story.executions(alone.id) == [("failed", "InvalidInput")]
    (execution,) = store.read.executions_of(counted.id).executions
    assert execution.status == "completed"
    assert "cannot be stored" in (execution.error_message or "")
    progress = store.read.executions_of(ill.id).executions[0].progress
    assert progress is not None


def test_unknown_task_is_left_for_others(fleet: Fleet, store: Store) -> None:
    foreign = store.add(NewJob(JobSpec("of_another_application", priority=100)))
    worker = fleet.start()
    own = store.add(job("nap"))

    wait_for(lambda: ended(store, own.id) == "completed", "its own job completes")

    row = store.read.job(foreign.id)
    assert (row.status, row.run_count) == ("pending", 0)
    assert worker.alive


def test_payload_that_no_longer_fits_fails_finally(
    fleet: Fleet, store: Store, story: Story
) -> None:
    fleet.start()
    payloads: list[dict[str, object]] = [{}, {"number": "many"}, {"number": 1, "unit": "kg"}]
    added = [store.add(job("strict", payload)).id for payload in payloads]
    added.append(store.add(job("misbehave_in_thread", {"what": 1})).id)
    added.append(store.add(job("misbehave_alone", {"what": 1})).id)

    for id_ in added:
        assert wait_for(lambda i=id_: ended(store, i), "it has ended") == "failed"
        assert story.executions(id_) == [("failed", "invalid_payload")]
