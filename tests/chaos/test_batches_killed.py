"""A batch whose workers are killed and whose database goes down: its callback runs once, with all
results."""

import random
import signal
import time

import pytest
from fleet import FULL, PATIENT, SHORT_LEASE, Fleet, Server, Story
from worker_process import part, whole

from evenbeat import Evenbeat
from evenbeat.domain.batch import BatchCounts
from evenbeat.domain.job import NewJob
from evenbeat.store.store import Store
from waiting import wait_for


def numbered(chance: random.Random, jobs: int) -> list[NewJob]:
    task = part.options(retry=PATIENT)
    return [task.job(number, chance.uniform(0, 0.4)) for number in range(jobs)]


def told(fleet: Fleet) -> list[tuple[int, int, list[int]]]:
    """What each run of the callback was handed."""
    entries = fleet.ledger.entries("whole")
    return [(entry["results"], entry["total"], entry["counts"]) for entry in entries]


@pytest.mark.timeout(900)
def test_killed_workers_and_a_killed_database_lose_no_callback_and_no_result(
    server: Server, outage_store: Store, outage_fleet: Fleet
) -> None:
    jobs, kills, outages = (10_000, 20, 2) if FULL else (1200, 5, 1)
    fleet, story, chance = outage_fleet, Story(outage_store), random.Random(19)  # noqa: S311
    with Evenbeat(server.url) as app:
        batch = app.batch(numbered(chance, jobs), then=whole.options(retry=PATIENT))
        options = {**({} if FULL else SHORT_LEASE), "concurrency": 30}
        living = fleet.start_many(3, **options)
        done, step = 0, jobs // (kills + 4)
        for kill in range(1, kills + 1):
            wait_for(lambda k=kill: len(fleet.ledger.entries("part")) > k * step, "work goes on")
            living.pop(chance.randrange(3)).kill()
            living.append(fleet.start(**options))
            if kill % (kills // (outages + 1)) == 0 and done < outages:
                done += 1
                server.go_down(signal.SIGQUIT if done % 2 else signal.SIGKILL)
                time.sleep(1)
                server.come_back()
        assert (done, told(fleet)) == (outages, []), "too late: the kills must hit while jobs flow"

        assert batch.wait("5m") == "completed"
        assert batch.callback is not None
        assert batch.callback.result("1m") == sum(range(jobs))
        assert told(fleet) == [(jobs, sum(range(jobs)), list(BatchCounts(completed=jobs)))]
        assert sorted(batch.results()) == list(range(jobs))
        assert batch.counts() == BatchCounts(completed=jobs)
    assert story.all_completed(jobs + 1)
    assert len(fleet.ledger.entries("part")) > jobs, "no kill hit a running job"
    again = len(fleet.ledger.entries("part")) - jobs
    print(f"{jobs} jobs, {kills} kills, {outages} outages, {again} runs again")  # noqa: T201


@pytest.mark.timeout(120)
def test_a_worker_that_is_killed_before_it_ends_the_batch_loses_nothing(
    fleet: Fleet, store: Store, database_url: str
) -> None:
    """The last job has ended and the worker cannot end the batch, since somebody holds it."""
    with Evenbeat(database_url) as app:
        batch = app.batch([part.job(number) for number in range(3)], then=whole)
        with store.database.transaction() as connection:
            store.batches.hold(batch.id, connection)
            worker = fleet.start(**SHORT_LEASE)
            wait_for(lambda: batch.counts() == BatchCounts(completed=3), "all jobs have ended")
            worker.kill()
            assert batch.status() == "running"
        fleet.start(**SHORT_LEASE)
        wait_for(lambda: told(fleet), "another worker has ended the batch")
        assert batch.callback is not None
        assert batch.callback.result("30s") == 3
    assert told(fleet) == [(3, 3, list(BatchCounts(completed=3)))]
