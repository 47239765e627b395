"""The table of what runs have logged: fenced, read by pages, and gone first."""

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from evenbeat.domain.job import JobRecord, JobSpec, NewJob
from evenbeat.domain.run_log import LogChunk, LogLine
from evenbeat.domain.schedule import Interval
from evenbeat.engine.clock import DatabaseClock
from evenbeat.engine.maintenance import Retention
from evenbeat.store.store import Store

START = datetime(2030, 1, 1, tzinfo=UTC)
LEASE = timedelta(days=1000)


def running(store: Store, at: datetime = START, **settings: object) -> JobRecord:
    added = store.add(NewJob(JobSpec("talk", **settings)), now=at)  # type: ignore[arg-type]
    store.control.run_now([added.id], now=at)
    (job,) = store.claim(uuid4(), 1, lease=LEASE, now=at)
    return job


def chunk(job: JobRecord, first: int, *texts: str) -> LogChunk:
    assert job.lock_token is not None
    lines = [LogLine(n, START, "INFO", "a", text) for n, text in enumerate(texts, first)]
    return LogChunk(job.id, job.lock_token, first, lines, 0)


def run_of(job: JobRecord) -> UUID:
    assert job.lock_token is not None
    return job.lock_token


def test_lines_are_read_by_pages_and_what_is_left_out_is_counted(store: Store):
    job = running(store)
    run = run_of(job)
    assert store.run_logs.page(run) == ([], 0, 0, False)
    chunks = [chunk(job, 1, "a", "b", "c"), chunk(job, 10, "d", "e"), chunk(job, 20)]
    assert store.run_logs.add(chunks) == 3
    assert store.run_logs.add(chunks) == 0  # the answer was lost
    page = store.run_logs.page(run)
    assert [(one.number, one.text) for one in page.lines] == [
        (1, "a"),
        (2, "b"),
        (3, "c"),
        (10, "d"),
        (11, "e"),
    ]
    assert page[1:] == (6 + 9, 20, False)
    assert page.lines[0] == LogLine(1, START, "INFO", "a", "a")
    after, seen, left_out = 0, [], 0
    while True:
        page = store.run_logs.page(run, after=after, limit=2)
        seen += [one.number for one in page.lines]
        left_out, after = left_out + page.left_out, page.after
        if not page.has_more:
            break
    assert (seen, left_out, after) == ([1, 2, 3, 10, 11], 15, 20)
    assert store.run_logs.page(run, after=20) == ([], 0, 20, False)
    assert store.run_logs.page(run, after=2**31 - 1).lines == []


def test_only_the_holder_of_the_lease_writes(store: Store):
    job = running(store)
    store.control.cancel([job.id], now=START)
    assert store.run_logs.add([chunk(job, 1, "too late")]) == 0
    stolen = running(store)._replace(lock_token=uuid4())
    assert store.run_logs.add([chunk(stolen, 1, "not mine")]) == 0
    assert store.run_logs.page(run_of(stolen)).lines == []


def test_newer_lines_push_older_ones_out(store: Store):
    job, other = running(store), running(store)
    store.run_logs.add([chunk(job, 1, "a"), chunk(job, 2, "b"), chunk(other, 2, "kept")])
    store.run_logs.add([chunk(job, 3, "c")], [(run_of(job), 2)])
    page = store.run_logs.page(run_of(job))
    assert [one.text for one in page.lines] == ["a", "c"]
    assert page.left_out == 1
    assert [one.text for one in store.run_logs.page(run_of(other)).lines] == ["kept"]


def test_logs_go_before_the_history(store: Store):
    old, young, busy = (running(store, START - timedelta(days=d)) for d in (8, 6, 8))
    store.run_logs.add([chunk(job, 1, "a") for job in (old, young, busy)])
    store.stop_run(run_of(old))
    store.stop_run(run_of(young))
    clock = DatabaseClock()
    retention = Retention(store, clock, days=30, executions=100)
    clock.now = lambda: START  # type: ignore[method-assign]
    retention.run_once()
    kept = [len(store.run_logs.page(run_of(job)).lines) for job in (old, young, busy)]
    assert kept == [0, 1, 1]  # what still runs keeps its log
    assert store.read.execution(run_of(old)).status == "cancelled"


@pytest.mark.parametrize("gone", ["deleted", "own rule", "own history"])
def test_a_log_goes_with_its_run(store: Store, gone: str):
    settings: dict[str, object] = {"retention": timedelta(minutes=1)}
    if gone == "own history":
        settings["schedule"] = Interval(timedelta(hours=1))
    job = running(store, **settings)
    store.run_logs.add([chunk(job, 1, "a secret")])
    store.stop_run(run_of(job), now=START)
    later = START + timedelta(hours=5)
    if gone == "deleted":
        store.control.delete([job.id])
    elif gone == "own rule":
        assert store.upkeep.prune_jobs(older_than=later, own_rule=True) == 1
    else:
        assert store.upkeep.prune_executions(older_than=START, keep=0, now=later) == 1
    assert store.run_logs.page(run_of(job)).lines == []
