"""Runs that are ended from outside: cancelled, timed out, their process killed."""

from datetime import timedelta
from uuid import UUID

from fleet import Fleet, Story, is_alive, job, until

from evenbeat.domain.retry import RetryPolicy
from evenbeat.store.store import Store

NO_RETRY = RetryPolicy(max_retries=0)


def settled(store: Store, job_id: UUID) -> str:
    status = store.read.job(job_id).status
    return "" if status in ("pending", "scheduled", "running") else status


def test_cancelling_ends_every_kind_of_run(fleet: Fleet, store: Store, story: Story) -> None:
    fleet.start()
    tasks = ("nap_until_cancelled", "doze_until_cancelled", "family")
    on_loop, in_thread, alone = (store.add(job(task)).id for task in tasks)
    stubborn = store.add(job("family", {"stubborn": True})).id
    until("all run", lambda: len(fleet.ledger.entries("start")) == 4)
    pids = [pid for entry in fleet.ledger.entries("start") for pid in entry.get("pids", [])]
    assert len(pids) == 6
    assert all(map(is_alive, pids))

    store.control.cancel([on_loop, in_thread, alone, stubborn])

    until("children and grandchildren are gone", lambda: not any(map(is_alive, pids)), 1.0)
    until("the async run is cancelled", lambda: fleet.ledger.of(on_loop, "cancelled"), 1.0)
    until("the thread sees it", lambda: fleet.ledger.of(in_thread, "cancelled"), 1.0)
    later = store.add(job("solitude")).id
    until("slots are free again", lambda: settled(store, later) == "completed")
    for id_ in (on_loop, in_thread, alone, stubborn):
        assert store.read.job(id_).status == "cancelled"
        assert story.executions(id_) == [("cancelled", "cancelled")]
        assert store.read.executions_of(id_).executions[0].result is None


def test_cancelling_without_a_hint_is_found_by_the_renewal(fleet: Fleet, store: Store) -> None:
    fleet.start(lease_seconds=3, renew_seconds=0.5)
    id_ = store.add(job("nap_until_cancelled")).id
    until("it runs", lambda: fleet.ledger.entries("start"))
    with store.database.transaction() as connection:  # a cancel whose NOTIFY is lost
        connection.execute(
            "UPDATE evenbeat.jobs SET status = 'cancelled', lock_token = NULL, locked_by = NULL, "
            "lock_acquired_at = NULL, lock_expires_at = NULL WHERE id = %s",
            (id_,),
        )

    until("the run is stopped", lambda: fleet.ledger.of(id_, "cancelled"), 3)


def test_timeout_ends_every_kind_of_run(fleet: Fleet, store: Store, story: Story) -> None:
    worker = fleet.start()
    options = {"timeout": timedelta(seconds=1.5), "retry": NO_RETRY}
    tasks = ("nap_until_cancelled", "doze_until_cancelled", "family")
    ids = [store.add(job(task, **options)).id for task in tasks]

    for id_ in ids:
        assert until("it ends", lambda i=id_: settled(store, i)) == "failed"
        assert story.executions(id_) == [("failed", "timeout")]
    pids = fleet.ledger.of(ids[2], "start")[0]["pids"]
    until("the isolated run left nothing", lambda: not any(map(is_alive, pids)), 1.0)
    until("the thread is told", lambda: fleet.ledger.of(ids[1], "cancelled"), 1.0)
    assert worker.alive


def test_isolated_run_whose_process_dies_is_tried_again(
    fleet: Fleet, store: Store, story: Story
) -> None:
    worker = fleet.start()
    hows = ("sigkill", "exit", "segfault", "fork")
    ids = [store.add(job("die_once", {"how": how})).id for how in hows]

    for id_ in ids:
        assert until("it ends", lambda i=id_: settled(store, i)) == "completed"
        assert story.executions(id_) == [("failed", "process_died"), ("completed", None)]
    assert worker.alive
    left = [pid for entry in fleet.ledger.entries("fork") for pid in entry["pids"]]
    until("what it forked is gone too", lambda: not any(map(is_alive, left)), 1.0)


def test_killed_worker_takes_its_isolated_runs_with_it(fleet: Fleet, store: Store) -> None:
    worker = fleet.start()
    for stubborn in (False, True):
        store.add(job("family", {"stubborn": stubborn}))
    until("both run", lambda: len(fleet.ledger.entries("start")) == 2)
    pids = [pid for entry in fleet.ledger.entries("start") for pid in entry["pids"]]
    assert all(map(is_alive, pids))

    worker.kill()

    until("all six are gone", lambda: not any(map(is_alive, pids)), 2.0)
