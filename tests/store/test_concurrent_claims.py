"""Many claimers at once: every job is claimed exactly once, each claimer's in order of priority."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from uuid import uuid4

from evenbeat.domain.decision import Decision, EndKind, RunEnd
from evenbeat.domain.execution import Outcome
from evenbeat.domain.job import JobRecord, JobSpec, NewJob
from evenbeat.domain.states import JobStatus
from evenbeat.store.store import Store

CLAIMERS = 8
JOBS = 10_000
SPECS = [JobSpec("noop", priority=p, queue=q) for p in (0, 10, 55, 100) for q in ("a", "b")]


def test_eight_claimers_share_ten_thousand_jobs(database_url: str):
    stores = [Store(database_url) for _ in range(CLAIMERS)]
    stores[0].add_many([NewJob(SPECS[n % len(SPECS)]) for n in range(JOBS)])
    barrier = Barrier(CLAIMERS)

    def claim_until_empty(store: Store) -> list[JobRecord]:
        barrier.wait()
        worker, claimed = uuid4(), []
        while jobs := store.claim(worker, 50):
            claimed += jobs
        return claimed

    with ThreadPoolExecutor(CLAIMERS) as pool:
        shares = list(pool.map(claim_until_empty, stores))

    counts = Counter(job.id for share in shares for job in share)
    assert len(counts) == JOBS
    assert set(counts.values()) == {1}
    assert sum(1 for share in shares if share) > 1, "the claimers did not really compete"
    for share in shares:
        priorities = [job.priority for job in share]
        assert priorities == sorted(priorities, reverse=True)
    for store in stores:
        store.close()


def test_claiming_and_finishing_at_once_loses_and_doubles_nothing(database_url: str):
    stores = [Store(database_url) for _ in range(4)]
    stores[0].add_many([NewJob(SPECS[n % len(SPECS)]) for n in range(2_000)])

    def work(store: Store) -> int:
        worker, finished = uuid4(), 0
        while jobs := store.claim(worker, 20):
            batch = [
                RunEnd(job, EndKind.COMPLETED, Outcome(), Decision(JobStatus.COMPLETED))
                for job in jobs
            ]
            finished += len(store.finish(batch))
        return finished

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(work, stores)) == 2_000
    assert stores[0].read.counts_by_status() == {"completed": 2_000}
    totals = stores[0].read.execution_totals()
    assert (totals.total, totals.completed) == (2_000, 2_000)
    for store in stores:
        store.close()


def test_one_dedup_key_from_many_threads_makes_one_job(database_url: str):
    store = Store(database_url, pool_size=8)
    jobs = [NewJob(SPECS[0], dedup_key="only") for _ in range(40)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(store.add, jobs))
    assert len({answer.id for answer in answers}) == 1
    assert sum(answer.created for answer in answers) == 1
    store.close()


def test_bulk_adds_with_the_same_keys_in_opposite_orders_do_not_deadlock(database_url: str):
    stores = [Store(database_url) for _ in range(4)]
    keys = [f"k{n}" for n in range(300)]

    def add(pair: tuple[int, Store]) -> int:
        index, store = pair
        order = keys if index % 2 else keys[::-1]
        return sum(
            a.created for a in store.add_many([NewJob(SPECS[0], dedup_key=k) for k in order])
        )

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(add, enumerate(stores))) == len(keys)
    assert stores[0].read.jobs().total == len(keys)
    for store in stores:
        store.close()
