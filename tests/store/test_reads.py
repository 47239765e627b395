"""Lists with filters, pages and totals; one thing at a time; figures about many."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from evenbeat.domain.decision import decide
from evenbeat.domain.execution import Outcome
from evenbeat.domain.ids import uuid7_many
from evenbeat.domain.job import JobRecord, JobSpec, NewJob
from evenbeat.domain.schedule import Cron, Interval
from evenbeat.domain.scope import Scope
from evenbeat.domain.states import ExecutionStatus
from evenbeat.errors import InvalidInput, NotFound
from evenbeat.store.lists import MAX_OFFSET, SORT_FIELDS, JobFilter
from evenbeat.store.reads import JobStats, QueueDepth
from evenbeat.store.rows import Release
from evenbeat.store.store import Store
from evenbeat.store.summaries import ExecutionTotals

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
WORKER, PARENT, BATCH = uuid4(), uuid4(), uuid4()
NOOP = JobSpec("noop")
FAILED = Outcome(
    ExecutionStatus.FAILED, duration_ms=900, error_code="ValueError", error_message="no"
)


def run(store: Store, now: datetime, outcome: Outcome | None = None) -> JobRecord:
    """Claim one job, end its run at the same moment, and give it as it was claimed."""
    outcome = outcome or Outcome(duration_ms=100)
    (job,) = store.claim(WORKER, 1, now=now)
    store.finish([decide(job, outcome, now)], now=now)
    return job


# -- one thing -----------------------------------------------------------------------------------


def test_what_is_not_there_is_not_found(store):
    unknown = uuid4()
    for read in (store.read.job, store.read.execution, store.read.job_stats):
        with pytest.raises(NotFound, match=str(unknown)):
            read(unknown)
    assert store.read.job_by_name("nobody") is None
    assert store.read.executions_of(unknown) == ([], 0)


def test_a_name_belongs_to_its_scope(store):
    here = store.add(NewJob(NOOP, name="sync"))
    there = store.add(NewJob(NOOP, name="sync", scope=Scope("tenant", "acme")))
    assert store.read.job_by_name("sync").id == here.id
    assert store.read.job_by_name("sync", Scope("tenant", "acme")).id == there.id
    assert store.read.job_by_name("sync", Scope("tenant", "other")) is None


# -- filters -------------------------------------------------------------------------------------


@pytest.fixture
def jobs(store: Store) -> dict[str, UUID]:
    """Four jobs that differ in everything a filter can ask for."""
    hourly = JobSpec("crawl", queue="web", schedule=Interval(HOUR, anchor=T0))
    daily = JobSpec("mail", queue="mail", schedule=Cron("@daily"))
    new = {
        "hourly": NewJob(
            hourly, name="Shop crawl", metadata={"team": "shop", "n": [1, 2], "tags": ["a b", "ü"]}
        ),
        "daily": NewJob(daily, name="digest", scope=Scope("tenant", "acme"), created_by="ann"),
        "child": NewJob(NOOP, parent_id=PARENT, metadata={"team": "ops", "tags": "ü"}),
        "done": NewJob(NOOP, scope=Scope("tenant", "b"), batch_id=BATCH),
    }
    ids = dict(zip(new, uuid7_many(len(new)), strict=True))
    for n, (word, job) in enumerate(new.items()):
        store.add(replace(job, id=ids[word]), now=T0 + n * MINUTE)
    store.control.cancel([ids["done"]], now=T0 + HOUR)
    store.control.pause([ids["daily"]], now=T0 + HOUR)
    return ids


CASES: list[tuple[JobFilter, str]] = [
    (JobFilter(), "hourly daily child done"),
    (JobFilter(statuses=["paused", "cancelled"]), "daily done"),
    (JobFilter(statuses=[]), ""),
    (JobFilter(queues=["web", "mail"]), "hourly daily"),
    (JobFilter(tasks=["noop"]), "child done"),
    (JobFilter(kinds=["interval"]), "hourly"),
    (JobFilter(kinds=["once", "cron"]), "daily child done"),
    (JobFilter(name="digest"), "daily"),
    (JobFilter(name="Digest"), ""),
    (JobFilter(scope_kind="tenant"), "daily done"),
    (JobFilter(scope_id="acme"), "daily"),
    (JobFilter(search="CRAWL"), "hourly"),
    (JobFilter(search="i"), "daily"),
    (JobFilter(search=""), "hourly daily child done"),
    (JobFilter(parent_id=PARENT), "child"),
    (JobFilter(batch=BATCH), "done"),
    (JobFilter(is_paused=True), "daily"),
    (JobFilter(is_paused=False), "hourly child done"),
    (JobFilter(due_before=T0 + HOUR), "child"),
    (JobFilter(due_before=T0 + HOUR + MINUTE), "hourly child"),
    (JobFilter(created_after=T0 + 2 * MINUTE), "child done"),
    (JobFilter(created_before=T0 + 2 * MINUTE), "hourly daily"),
    (JobFilter(created_by="ann"), "daily"),
    (JobFilter(metadata={"team": "shop"}), "hourly"),
    (JobFilter(metadata={"n": [2]}), "hourly"),
    (JobFilter(metadata={}), "hourly daily child done"),
    (JobFilter(first_id=UUID(int=0)), "hourly daily child done"),
    (JobFilter(last_id=UUID(int=0)), ""),
    (JobFilter(tag="a b"), "hourly"),
    (JobFilter(tag="a"), ""),
    (JobFilter(tag="ü", queues=["web"]), "hourly"),
    (JobFilter(statuses=["pending"], tasks=["noop"], metadata={"team": "ops"}), "child"),
    (JobFilter(scope_kind="tenant", is_paused=True, search="mail", kinds=["cron"]), "daily"),
    (JobFilter(queues=["web"], tasks=["mail"]), ""),
    (
        JobFilter(
            statuses=["scheduled"], queues=["web"], tasks=["crawl"], kinds=["interval"],
            name="Shop crawl", scope_kind="global", scope_id="global", search="shop",
            is_paused=False, due_before=T0 + 2 * HOUR, created_after=T0,
            created_before=T0 + MINUTE, metadata={"team": "shop"},
        ),
        "hourly",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("chosen", "expected"), CASES)
def test_a_filter_finds_what_it_describes(store, jobs, chosen, expected):
    words = {id_: word for word, id_ in jobs.items()}
    page = store.read.jobs(chosen, sort="created_at")
    assert [words[job.id] for job in page.jobs] == expected.split()
    assert page.total == len(expected.split())
    assert [words[id_] for id_ in store.read.ids(chosen)] == expected.split()


def test_every_field_of_the_filter_has_a_case():
    asked = {
        name for case, _ in CASES for name in JobFilter.__slots__ if getattr(case, name) is not None
    }
    assert asked == set(JobFilter.__slots__)


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("50%", ["50% off"]),
        ("%", ["50% off"]),
        ("a_b", ["a_b"]),
        ("_", ["a_b"]),
        ("\\", ["c\\d"]),
        ("'; --", []),
        ("größe", ["Größe"]),
        ("報", ["報告"]),
    ],
)
def test_a_search_is_taken_literally(store, search, found):
    for name in ["50% off", "a_b", "axb", "c\\d", "Größe", "報告", "über"]:
        store.add(NewJob(NOOP, name=name))
    page = store.read.jobs(JobFilter(search=search))
    assert [job.name for job in page.jobs] == found


def test_a_search_knows_large_and_small_letters_as_the_database_does(store, connect):
    added = store.add(NewJob(NOOP, name="Über Größen"))
    (knows,) = connect().execute("SELECT 'über' ILIKE 'ÜBER'").fetchone()
    found = store.read.ids(JobFilter(search="ÜBER GRÖßEN"))
    assert found == ([added.id] if knows else [])


def test_a_search_for_what_no_text_can_hold_is_refused(store):
    with pytest.raises(InvalidInput, match="cannot hold this value"):
        store.read.jobs(JobFilter(search="\0"))


# -- sorting and paging --------------------------------------------------------------------------


def shown(page: Sequence[JobRecord], field: str) -> list[object]:
    return [getattr(job, field) for job in page]


@pytest.mark.parametrize("field", SORT_FIELDS)
def test_a_list_can_be_sorted_both_ways_with_nothing_last(store, jobs, field):
    store.control.set_priority([jobs["daily"]], 50, now=T0 + 2 * HOUR)
    up = shown(store.read.jobs(sort=field).jobs, field)
    down = shown(store.read.jobs(sort="-" + field).jobs, field)
    known = [value for value in up if value is not None]
    missing = [None] * (len(up) - len(known))
    assert known == sorted(known)
    assert up == known + missing
    assert down == sorted(known, reverse=True) + missing
    assert len(set(up)) > 1


def test_equals_come_in_the_order_of_their_creation(store):
    ids = [added.id for added in store.add_many([NewJob(NOOP) for _ in range(5)], now=T0)]
    for sort in ("priority", "-priority", "name", "-name"):
        assert [job.id for job in store.read.jobs(sort=sort).jobs] == ids


@pytest.mark.parametrize("sort", ["payload", "", "-", "--name", "name desc", "id; DROP TABLE jobs"])
def test_an_unknown_sort_is_refused_with_the_known_ones(store, sort):
    with pytest.raises(InvalidInput, match="created_at, updated_at, next_run_at") as caught:
        store.read.jobs(sort=sort)
    assert caught.value.field == "sort"


def test_pages_together_are_the_whole_list(store):
    ids = [added.id for added in store.add_many([NewJob(NOOP) for _ in range(7)])]
    pages = [store.read.jobs(limit=3, offset=offset) for offset in (0, 3, 6, 9)]
    assert [len(page.jobs) for page in pages] == [3, 3, 1, 0]
    assert [job.id for page in pages for job in page.jobs] == ids[::-1]
    assert {page.total for page in pages} == {7}


@pytest.mark.parametrize("bad", [{"limit": 0}, {"limit": 1001}, {"offset": -1}, {"offset": 2**31}])
@pytest.mark.parametrize("what", ["jobs", "executions_of"])
def test_a_page_out_of_bounds_is_refused(store, what, bad):
    read = getattr(store.read, what)
    arguments = [uuid4()] if what == "executions_of" else []
    (field,) = bad
    with pytest.raises(InvalidInput, match=f"{field} must be from") as caught:
        read(*arguments, **bad)
    assert caught.value.field == field
    read(*arguments, limit=1000, offset=MAX_OFFSET if what == "jobs" else 2**31 - 1)


def test_ids_walk_on_from_where_they_were(store):
    ids = [added.id for added in store.add_many([NewJob(NOOP) for _ in range(5)])]
    first = store.read.ids(JobFilter(), limit=2)
    assert first == ids[:2]
    assert store.read.ids(JobFilter(), after=first[-1]) == ids[2:]


# -- history and figures -------------------------------------------------------------------------


def test_a_history_comes_newest_plan_first(store):
    spec = JobSpec("noop", schedule=Interval(10 * MINUTE, anchor=T0))
    job_id = store.add(NewJob(spec, name="tick"), now=T0).id
    run(store, T0 + 10 * MINUTE, FAILED)
    (handed,) = store.claim(WORKER, 1, now=T0 + 12 * MINUTE)
    store.release([Release(handed)], now=T0 + 12 * MINUTE)
    run(store, T0 + 13 * MINUTE)
    run(store, T0 + 20 * MINUTE)
    page = store.read.executions_of(job_id)
    told = [
        (
            (e.plan_time - T0) // MINUTE,
            e.retry_attempt,
            e.release_count,
            e.status,
            e.execution_number,
        )
        for e in page.executions
    ]
    assert told == [
        (20, 0, 0, "completed", 4),
        (10, 1, 1, "completed", 3),
        (10, 1, 0, "cancelled", 2),
        (10, 0, 0, "failed", 1),
    ]
    assert page.total == 4
    some = store.read.executions_of(job_id, statuses=["failed", "cancelled"], limit=1, offset=1)
    assert ([e.status for e in some.executions], some.total) == (["failed"], 2)


def test_a_jobs_history_in_figures(store):
    spec = JobSpec("noop", schedule=Interval(HOUR, anchor=T0))
    job_id = store.add(NewJob(spec, name="tick"), now=T0).id
    assert store.read.job_stats(job_id) == JobStats(0, 0, 0, None, None, T0 + HOUR, None)
    for n, outcome in enumerate([None, FAILED, Outcome(duration_ms=300), Outcome(duration_ms=200)]):
        run(store, T0 + (n + 1) * HOUR, outcome)
    (handed,) = store.claim(WORKER, 1, now=T0 + 5 * HOUR)
    running = store.read.job_stats(job_id)
    assert (running.total_executions, running.next_scheduled_at) == (5, None)
    store.release([Release(handed)], now=T0 + 5 * HOUR)
    assert store.read.job_stats(job_id) == JobStats(
        5, 3, 1, 200.0, T0 + 5 * HOUR, handed.next_run_at, 0.75
    )
    store.control.pause([job_id], now=T0)
    assert store.read.job_stats(job_id).next_scheduled_at is None


def test_counts_by_status_know_the_states_that_occur(store, jobs):
    expected = {"scheduled": 1, "paused": 1, "pending": 1, "cancelled": 1}
    assert store.read.counts_by_status() == expected


def test_totals_of_all_executions(store):
    assert store.read.execution_totals() == ExecutionTotals(0, 0, 0, None, None)
    store.add_many([NewJob(NOOP) for _ in range(4)], now=T0)
    run(store, T0, Outcome(duration_ms=500))
    run(store, T0 + HOUR, FAILED)
    run(store, T0 + HOUR, Outcome(duration_ms=100))
    store.claim(WORKER, 1, now=T0 + HOUR)
    assert store.read.execution_totals() == ExecutionTotals(4, 2, 1, 300.0, 2 / 3)


def test_queues_tell_what_is_due_what_runs_and_since_when(store):
    for queue, minutes in [("a", 0), ("a", 5), ("a", 5), ("a", 90), ("b", 90), ("c", 3)]:
        start = T0 + minutes * MINUTE
        store.add(NewJob(JobSpec("noop", queue=queue), start=start), now=T0)
    store.claim(WORKER, 1, queues=["a"], now=T0)
    paused = store.claim(WORKER, 1, queues=["c"], now=T0 + 5 * MINUTE)
    store.release([Release(paused[0])], now=T0 + 5 * MINUTE)
    store.control.pause([paused[0].id])
    store.control.pause_queue("z", now=T0)
    store.control.pause_queue("a", now=T0)
    assert store.read.queues(now=T0 + HOUR) == [
        QueueDepth("a", 2, 1, T0 + 5 * MINUTE, T0),
        QueueDepth("z", 0, 0, None, T0),
    ]
    store.control.resume_queue("a")
    later = store.read.queues(now=T0 + 90 * MINUTE)
    assert later[:2] == [
        QueueDepth("a", 3, 1, T0 + 5 * MINUTE, None),
        QueueDepth("b", 1, 0, T0 + 90 * MINUTE, None),
    ]


def test_the_load_snapshot_holds_every_job_that_will_run_again(store):
    hourly = JobSpec("noop", schedule=Interval(HOUR, anchor=T0))
    known = JobSpec("noop", schedule=Cron("@daily", "Europe/Berlin"), cost=timedelta(seconds=9))
    one, two, cancelled = (
        store.add(NewJob(spec, name=name), now=T0).id
        for spec, name in [(hourly, "one"), (known, "two"), (hourly, "gone")]
    )
    store.add(NewJob(NOOP), now=T0)
    store.control.cancel([cancelled])
    store.control.pause([two])
    run(store, T0)  # the one-off job
    before = {entry.id: entry for entry in store.placement.load_snapshot()}
    assert set(before) == {one, two}
    assert (before[one].status, before[one].cost_ms) == ("scheduled", None)
    assert (before[two].status, before[two].cost_ms) == ("paused", 9000)
    assert (before[two].cron_expression, before[two].timezone) == ("@daily", "Europe/Berlin")
    run(store, T0 + HOUR, Outcome(duration_ms=400))
    (entry,) = [entry for entry in store.placement.load_snapshot() if entry.id == one]
    assert (entry.interval_seconds, entry.anchor_at, entry.cost_ms) == (3600, T0, 400)
    assert (entry.plan_time, entry.next_run_at) == (T0 + 2 * HOUR, T0 + 2 * HOUR)
    assert entry.placement == "balanced"
