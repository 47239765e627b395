"""Runs that are ended from outside: cancelled, timed out, their process killed."""

from datetime import timedelta
from uuid import UUID

from fleet import Fleet, Story, is_alive, job

from evenbeat.domain.retry import RetryPolicy
from evenbeat.store.store import Store
from waiting import wait_for

NO_RETRY = RetryPolicy(max_retries=0)


def settled(store: Store, job_id: UUID) -> str:
    status = store.read.job(job_id).status
    return "" if status in ("pending", "scheduled", "running") else status


def test_cancelling_ends_every_kind_of_run(fleet: Fleet, store: Store, story: Story) -> None:
    fleet.start()
    tasks = ("nap_until_cancelled", "doze_until_cancelled", "family")
    on_loop, in_thread, alone = (store.add(job(task)).id for task in tasks)
    stubborn = store.add(job("family", {"stubborn": True})).id
    wait_for(lambda: len(fleet.ledger.entries("start")) == 4, "all run")
    pids = [pid for entry in fleet.ledger.entries("start") for pid in entry.get("pids", [])]
    assert len(pids) == 8
    assert all(map(is_alive, pids))

    store.control.cancel([on_loop, in_thread, alone, stubborn])

    wait_for(
        lambda: not any(map(is_alive, pids)), "children and grandchildren are gone", within=1.0
    )
    wait_for(
        lambda: fleet.ledger.of(on_loop, "cancelled"), "the async run is cancelled", within=1.0
    )
    wait_for(lambda: fleet.ledger.of(in_thread, "cancelled"), "the thread sees it", within=1.0)
    later = store.add(job("solitude")).id
    wait_for(lambda: settled(store, later) == "completed", "slots are free again")
    for id_ in (on_loop, in_thread, alone, stubborn):
        assert store.read.job(id_).status == "cancelled"
        assert story.executions(id_) == [("cancelled", "cancelled")]
        assert store.read.executions_of(id_).executions[0].result is None


def test_cancelling_without_a_hint_is_found_by_the_renewal(fleet: Fleet, store: Store) -> None:
    fleet.start(lease_seconds=3, renew_seconds=0.5)
    id_ = store.add(job("nap_until_cancelled")).id
    wait_for(lambda: fleet.ledger.entries("start"), "it runs")
    with store.database.transaction() as connection:  # a cancel whose NOTIFY is lost
        connection.execute(
            "UPDATE evenbeat.jobs SET status = 'cancelled', lock_token = NULL, locked_by = NULL, "
            "lock_acquired_at = NULL, lock_expires_at = NULL WHERE id = %s",
            (id_,),
        )

    wait_for(lambda: fleet.ledger.of(id_, "cancelled"), "the run is stopped", within=3)


def test_timeout_ends_every_kind_of_run(fleet: Fleet, store: Store, story: Story) -> None:
    worker = fleet.start()
    # Long enough for a child process to start on a busy machine.
    options = {"timeout": timedelta(seconds=12), "retry": NO_RETRY}
    tasks = ("nap_until_cancelled", "doze_until_cancelled", "family")
    ids = [store.add(job(task, **options)).id for task in tasks]

    for id_ in ids:
        assert wait_for(lambda i=id_: settled(store, i), "it ends") == "failed"
        assert story.executions(id_) == [("failed", "timeout")]
    pids = fleet.ledger.of(ids[2], "start")[0]["pids"]
    wait_for(lambda: not any(map(is_alive, pids)), "the isolated run left nothing", within=1.0)
    wait_for(lambda: fleet.ledger.of(ids[1], "cancelled"), "the thread is told", within=1.0)
    assert worker.alive


def test_isolated_run_whose_process_dies_is_tried_again(
    fleet: Fleet, store: Store, story: Story
) -> None:
    worker = fleet.start()
    hows = ("sigkill", "exit", "segfault", "fork")
    ids = [store.add(job("die_once", {"how": how})).id for how in hows]

    for id_ in ids:
        assert wait_for(lambda i=id_: settled(store, i), "it ends") == "completed"
        assert story.executions(id_) == [("failed", "process_died"), ("completed", None)]
    assert worker.alive
    left = [pid for entry in fleet.ledger.entries("fork") for pid in entry["pids"]]
    wait_for(lambda: not any(map(is_alive, left)), "what it forked is gone too", within=1.0)


def test_killed_worker_takes_its_isolated_runs_with_it(fleet: Fleet, store: Store) -> None:
    worker = fleet.start()
    for stubborn in (False, True):
        store.add(job("family", {"stubborn": stubborn}))
    wait_for(lambda: len(fleet.ledger.entries("start")) == 2, "both run")
    pids = [pid for entry in fleet.ledger.entries("start") for pid in entry["pids"]]
    assert all(map(is_alive, pids))

    worker.kill()

    wait_for(lambda: not any(map(is_alive, pids)), "all eight are gone", within=2.0)
