"""SIGTERM: claim nothing more, let what is short finish, hand the rest back, keep the leases."""

from fleet import FULL, SHORT_LEASE, Fleet, Story, job

from evenbeat.store.store import Store
from waiting import wait_for


def test_stopping_worker_finishes_what_is_short_and_hands_back_the_rest(
    fleet: Fleet, store: Store, story: Story
) -> None:
    # Short jobs outlast a whole lease: without renewal while draining they would be lost.
    short = [store.add(job(task, {"seconds": 3.5})).id for task in ("nap", "doze", "solitude")]
    long = [store.add(job(task, {"seconds": 60})).id for task in ("nap", "doze", "family")]
    stopping = fleet.start(**SHORT_LEASE, stop_seconds=4)
    wait_for(lambda: len(fleet.ledger.entries("start")) == 6, "all run")

    stopping.terminate()
    wait_for(lambda: [w.status for w in store.upkeep.workers()] == ["draining"], "it drains")
    late = store.add(job("nap")).id

    assert stopping.wait() == 0
    assert store.read.job(late).status == "pending", "a stopping worker claimed a job"
    assert store.upkeep.workers() == []
    for id_ in short:
        assert story.executions(id_) == [("completed", None)]
    for id_ in long:
        assert story.executions(id_) == [("cancelled", "released")]
        row = store.read.job(id_)
        assert (row.status, row.current_retry_count) == ("pending", 0)
    fleet.start(**SHORT_LEASE)
    wait_for(lambda: len(fleet.ledger.entries("start")) == 10, "another runs them")
    assert all(len(story.executions(id_)) == 2 for id_ in long)


def test_stop_without_grace_under_load_leaves_no_lease_behind(
    fleet: Fleet, store: Store, story: Story
) -> None:
    """Stopped in the middle of claiming: whatever was claimed is finished or handed back."""
    count, rounds = (6000, 6) if FULL else (2000, 2)
    store.add_many([job("nap", {"seconds": 0.02})] * count)
    for _ in range(rounds):
        before = len(fleet.ledger.entries("start"))
        worker = fleet.start(stop_seconds=0)
        wait_for(lambda b=before: len(fleet.ledger.entries("start")) > b + 100, "jobs flow")
        worker.terminate()
        assert worker.wait() == 0
        assert story.counts().get("running", 0) == 0
        assert story.counts().get("pending", 0) > 0, "stopped too late to prove anything"

    fleet.start()
    wait_for(lambda: story.all_completed(count), "all complete")
    assert "lease_expired" not in story.error_codes()
    assert list(story.completions().values()) == [1] * count
