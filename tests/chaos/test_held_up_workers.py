"""Workers that are alive but held up: a blocked event loop, a frozen process."""

import time
from collections.abc import Callable

import psycopg
from fleet import FULL, SHORT_LEASE, Fleet, Story, job

from evenbeat.store.store import Store
from waiting import wait_for

LEASE = {} if FULL else SHORT_LEASE
LEASE_SECONDS = 30 if FULL else 3


def test_handler_that_blocks_the_loop_keeps_its_lease(
    fleet: Fleet, store: Store, story: Story
) -> None:
    blocker = store.add(job("block_the_loop", {"seconds": LEASE_SECONDS * 1.3}))
    workers = fleet.start_many(2, **LEASE)
    wait_for(lambda: fleet.ledger.of(blocker.id, "start"), "it runs")
    thread = store.add(job("doze", {"seconds": 0.1}))

    wait_for(lambda: _completed(store, thread.id), "a thread's job completes beside it", within=5)
    assert store.read.job(blocker.id).status == "running"
    wait_for(lambda: _completed(store, blocker.id), "it completes", within=LEASE_SECONDS * 2)

    assert story.executions(blocker.id) == [("completed", None)]
    assert all(worker.alive for worker in workers)


def test_blocked_loop_leaves_its_jobs_to_others(fleet: Fleet, store: Store, story: Story) -> None:
    blocked = fleet.start(queues=["one", "both"], **SHORT_LEASE)
    blocker = store.add(job("block_the_loop", {"seconds": 8}, queue="one"))
    wait_for(lambda: fleet.ledger.of(blocker.id, "start"), "the loop is blocked")
    added = store.add_many([job("nap", {"seconds": 0.1}, queue="both")] * 50)
    fleet.start(queues=["both"], **SHORT_LEASE)

    wait_for(lambda: story.counts().get("completed") == 50, "others run them", within=5)

    assert store.read.job(blocker.id).status == "running", "the loop must have been blocked so far"
    assert {entry["pid"] for entry in fleet.ledger.entries("end")} != {blocked.pid}
    taken = [story.executions(one.id) for one in added]
    # Taken once by the blocked worker, perhaps, and handed back: not again and again.
    assert max(len(executions) for executions in taken) <= 2
    wait_for(lambda: _completed(store, blocker.id), "it goes on by itself", within=15)
    later = store.add(job("nap", queue="one"))
    wait_for(lambda: _completed(store, later.id), "its loop works again", within=5)


def test_blocked_loop_does_not_take_the_same_jobs_again_and_again(
    fleet: Fleet, store: Store, story: Story
) -> None:
    fleet.start(**SHORT_LEASE)
    blocker = store.add(job("block_the_loop", {"seconds": 3}))
    wait_for(lambda: fleet.ledger.of(blocker.id, "start"), "the loop is blocked")
    added = store.add_many([job("nap")] * 20)

    wait_for(lambda: story.all_completed(21), "all complete", within=10)

    assert max(len(story.executions(one.id)) for one in added) <= 2


def test_frozen_worker_finds_its_claims_lost_and_goes_on(
    fleet: Fleet, store: Store, story: Story
) -> None:
    """Frozen past its lease, the job run by another meanwhile: it must write nothing."""
    long, short = LEASE_SECONDS + 2, LEASE_SECONDS + 0.5  # short ones end in the freeze
    frozen = fleet.start(**LEASE)
    # The child process of the first takes longest to start; none may end before the freeze.
    added = [store.add(job("solitude", {"seconds": short}))]
    wait_for(lambda: fleet.ledger.entries("start"), "it runs")
    runs = {"nap": long, "doze": short}
    added += [store.add(job(task, {"seconds": seconds})) for task, seconds in runs.items()]
    wait_for(lambda: len(fleet.ledger.entries("start")) == 3, "all run")
    frozen.freeze()
    began = time.monotonic()
    fleet.start(**LEASE)
    wait_for(
        lambda: len(fleet.ledger.entries("start")) == 6,
        "another takes over",
        within=LEASE_SECONDS + 10,
    )
    print(f"taken over {time.monotonic() - began:.1f} s after the freeze")  # noqa: T201

    frozen.thaw()

    wait_for(lambda: frozen.said().count("Lease lost") == 3, "it notices", within=5)
    other = store.add(job("nap", {"seconds": 0.1}))
    wait_for(lambda: story.all_completed(4), "all complete", within=long + 10)
    assert frozen.alive
    for one in added:
        assert story.executions(one.id) == [("failed", "lease_expired"), ("completed", None)]
    assert story.executions(other.id) == [("completed", None)]
    # It still takes work, now that it is the only one.
    fleet.workers[1].kill()
    last = store.add(job("nap"))
    wait_for(lambda: _completed(store, last.id), "it goes on working")
    assert fleet.ledger.of(last.id, "start")[0]["pid"] == frozen.pid


def _completed(store: Store, job_id: object) -> bool:
    return store.read.job(job_id).status == "completed"  # type: ignore[arg-type]


def test_a_row_that_somebody_has_locked_costs_only_its_own_run(
    fleet: Fleet, store: Store, story: Story, connect: Callable[[], psycopg.Connection]
) -> None:
    """Locked for two leases, while 50 jobs run and need theirs."""
    fleet.start(**LEASE)
    added = store.add_many([job("nap", {"seconds": LEASE_SECONDS * 2})] * 50)
    wait_for(lambda: len(fleet.ledger.entries("start")) == 50, "all run")
    locked = added[20].id
    holder = connect()
    holder.execute("SELECT FROM evenbeat.jobs WHERE id = %s FOR UPDATE", (locked,))
    time.sleep(LEASE_SECONDS * 2)
    wait_for(lambda: story.counts().get("completed") == 49, "the others are written")
    holder.rollback()
    wait_for(lambda: story.all_completed(50), "so is that one", within=LEASE_SECONDS * 4)
    for one in added:
        if one.id != locked:
            assert story.executions(one.id) == [("completed", None)]
