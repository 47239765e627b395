"""The database server goes down hard in mid-flow and comes back: workers outlast it."""

import signal
import time

import psycopg
import pytest
from fleet import FULL, SHORT_LEASE, Fleet, Server, Story, WorkerProcess, job

from evenbeat.store.store import Store
from waiting import wait_for


def _said_more(workers: list[WorkerProcess], before: list[int]) -> bool:
    counts = [worker.said().count("cannot") for worker in workers]
    return all(now > then for now, then in zip(counts, before, strict=True))


@pytest.mark.timeout(600)
def test_workers_outlast_a_server_that_is_killed(
    server: Server, outage_store: Store, outage_fleet: Fleet
) -> None:
    count, outages = (6000, 3) if FULL else (1200, 1)
    fleet, story = outage_fleet, Story(outage_store)
    outage_store.add_many([job("nap" if n % 4 else "doze", {"seconds": 0.1}) for n in range(count)])
    settings = {} if FULL else SHORT_LEASE
    workers = fleet.start_many(2, **settings, concurrency=20, threads=5)

    for outage in range(outages):
        before = len(fleet.ledger.entries("start"))
        wait_for(lambda b=before: len(fleet.ledger.entries("start")) > b + 150, "jobs flow")
        said = [worker.said().count("cannot") for worker in workers]
        server.go_down(signal.SIGQUIT if outage % 2 else signal.SIGKILL)
        wait_for(lambda s=said: _said_more(workers, s), "both notice")
        server.come_back()
        back = time.monotonic()
        before = len(fleet.ledger.entries("start"))
        wait_for(lambda b=before: len(fleet.ledger.entries("start")) > b, "jobs flow again")
        print(f"outage {outage}: at work again after {time.monotonic() - back:.2f} s")  # noqa: T201
        assert not story.all_completed(count), "the outage must hit while jobs flow"

    wait_for(lambda: story.all_completed(count), "all complete", 200)
    assert [worker.alive for worker in workers] == [True, True]
    assert list(story.completions().values()) == [1] * count
    assert story.overlapping_executions() == 0
    assert fleet.overlaps() == []
    unwritten = story.error_codes().get("lease_expired", 0)
    print(f"{count} jobs, {outages} outages, {unwritten} leases ran out")  # noqa: T201


def test_run_is_given_up_when_its_lease_runs_out_unrenewed(
    server: Server, outage_store: Store, outage_fleet: Fleet
) -> None:
    """While nobody can ask the database, a worker must assume that others may run its jobs soon."""
    fleet = outage_fleet
    for task in ("nap_until_cancelled", "doze_until_cancelled"):
        outage_store.add(job(task))
    worker = fleet.start(**SHORT_LEASE)
    wait_for(lambda: len(fleet.ledger.entries("start")) == 2, "both run")
    server.go_down(signal.SIGKILL)
    down = time.monotonic()

    wait_for(
        lambda: len(fleet.ledger.entries("cancelled")) == 2, "both are told to stop", within=10
    )

    took = max(entry["at"] for entry in fleet.ledger.entries("cancelled")) - down
    print(f"given up {took:.2f} s after the outage began, lease 3 s")  # noqa: T201
    assert took < 3.0, "others may take a job when its lease has run out, and not before"
    server.come_back()
    wait_for(lambda: len(fleet.ledger.entries("start")) == 4, "they run again")
    assert worker.alive


@pytest.mark.skipif(not FULL, reason="takes 20 s: every wait of a stop runs out")
def test_graceful_stop_during_an_outage_ends(
    server: Server, outage_store: Store, outage_fleet: Fleet
) -> None:
    outage_store.add(job("nap", {"seconds": 60}))
    worker = outage_fleet.start(**SHORT_LEASE, stop_seconds=1)
    wait_for(lambda: outage_fleet.ledger.entries("start"), "it runs")
    server.go_down(signal.SIGKILL)
    wait_for(lambda: "cannot" in worker.said(), "it is noticed")

    worker.terminate()

    assert worker.wait() == 0
    server.come_back()
    with psycopg.connect(server.url) as connection:
        row = connection.execute("SELECT status FROM evenbeat.jobs").fetchone()
    assert row == ("running",)  # until its lease is found to have run out
