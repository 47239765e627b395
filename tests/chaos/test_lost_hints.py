"""NOTIFY is a hint and no more: without it jobs run by polling, late by a poll at most."""

import threading
import time
from collections.abc import Iterator

import psycopg
import pytest
from fleet import Fleet, Story, job

from evenbeat.store.store import Store
from waiting import wait_for

LISTENING = "datname = current_database() AND query LIKE 'LISTEN%'"


@pytest.fixture
def no_listening(database_url: str) -> Iterator[list[int]]:
    """Ends every listening connection as soon as it appears; how many is counted."""
    ended: list[int] = []
    over = threading.Event()

    def hunt() -> None:
        with psycopg.connect(database_url, autocommit=True) as connection:
            while not over.wait(0.005):
                rows = connection.execute(
                    f"SELECT pid FROM pg_stat_activity WHERE {LISTENING} "  # noqa: S608
                    "AND pg_terminate_backend(pid)"
                ).fetchall()
                ended.extend(row[0] for row in rows)

    hunter = threading.Thread(target=hunt)
    hunter.start()
    yield ended
    over.set()
    hunter.join()


def test_broken_ears_are_mended_for_ever(
    fleet: Fleet, store: Store, story: Story, no_listening: list[int]
) -> None:
    worker = fleet.start(poll_seconds=1)
    wait_for(lambda: len(no_listening) >= 12, "it has lost its ears a dozen times")
    store.add_many([job("nap"), job("doze")])

    wait_for(lambda: story.all_completed(2), "jobs complete", within=5)
    lost = len(no_listening)
    wait_for(lambda: len(no_listening) > lost, "it still tries to listen", within=5)
    assert worker.alive


def test_jobs_run_by_polling_alone(fleet: Fleet, store: Store, story: Story) -> None:
    worker = fleet.start(poll_seconds=1, environment={"CHAOS_DEAF": "1"})
    wait_for(store.upkeep.workers, "it is at work")
    time.sleep(0.5)  # it looks at its start, and once more when it begins to listen
    waits = []
    for number in range(1, 3):
        begun = time.monotonic()
        store.add(job("nap" if number % 2 else "doze"))
        wait_for(lambda n=number: story.counts().get("completed") == n, "it completes", within=5)
        waits.append(time.monotonic() - begun)
    print(f"by polling each second: {', '.join(f'{wait:.2f}' for wait in waits)} s")  # noqa: T201
    assert max(waits) < 2.5
    assert max(waits) > 0.2, "something woke it: this was not polling"
    assert worker.alive


def test_worker_looks_at_once_when_it_hears_again(
    fleet: Fleet, store: Store, database_url: str
) -> None:
    """With a poll of a minute, a job that came while nobody heard must not wait for it."""
    fleet.start(poll_seconds=60)
    with psycopg.connect(database_url, autocommit=True) as connection:
        listeners = f"SELECT pid FROM pg_stat_activity WHERE {LISTENING}"  # noqa: S608
        old = wait_for(lambda: connection.execute(listeners).fetchall(), "it listens")
        first = store.add(job("nap"))
        wait_for(lambda: store.read.job(first.id).status == "completed", "it is idle")
        with store.database.transaction() as silent:  # added without a hint
            silent.execute(
                "INSERT INTO evenbeat.jobs (id, created_at, updated_at, plan_time, next_run_at, "
                "status, task) VALUES (gen_random_uuid(), now(), now(), now(), now(), 'pending', "
                "'nap')"
            )
        assert len(fleet.ledger.entries("start")) == 1

        connection.execute("SELECT pg_terminate_backend(%s)", old[0])

        wait_for(lambda: len(fleet.ledger.entries("end")) == 2, "the unheard job runs", within=5)
        new = wait_for(lambda: connection.execute(listeners).fetchall(), "it listens again")
        assert new != old
