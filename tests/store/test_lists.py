"""Lists find the same jobs whichever way they are read, and say when a total is not exact."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.schedule import Interval
from evenbeat.errors import InvalidInput
from evenbeat.store import lists
from evenbeat.store.lists import MAX_OFFSET, JobFilter
from evenbeat.store.store import Store

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)

FILTERS = [
    JobFilter(),
    JobFilter(statuses=["pending", "scheduled"]),
    JobFilter(statuses=["completed", "running", "paused"]),
    JobFilter(statuses=["nonsense"]),
    JobFilter(statuses=[]),
    JobFilter(queues=["a"]),
    JobFilter(tasks=["sync"], kinds=["interval"]),
    JobFilter(queues=["a", "b"], tasks=["mail"], statuses=["scheduled"]),
    JobFilter(search="SYN"),
    JobFilter(search="job-1"),
    JobFilter(search="job-1", queues=["b"]),
    JobFilter(search="mail", tasks=["mail", "sync"]),
    JobFilter(search="mail", tasks=["sync"]),
    JobFilter(search="nothing"),
    JobFilter(search=""),
    JobFilter(tag="odd"),
    JobFilter(tag="even", queues=["a"]),
    JobFilter(metadata={"tags": ["odd"]}),
    JobFilter(is_paused=True),
]


@pytest.fixture(scope="module")
def filled(module_database_url: str) -> Iterator[Store]:
    """Sixty jobs in every state, in two queues and three tasks, half of them named."""
    store = Store(module_database_url)
    for n in range(60):
        spec = JobSpec(
            ("sync", "mail", "crawl")[n % 3],
            queue="ab"[n % 2],
            priority=n % 4,
            schedule=Interval((n % 7 + 1) * HOUR, anchor=T0 + n * MINUTE),
        )
        once = JobSpec("sync", queue="b")
        name = f"job-{n}" if n % 4 < 2 else None
        tags = {"tags": ["odd" if n % 2 else "even"]}
        store.add(NewJob(spec if n % 5 else once, name=name, metadata=tags), now=T0 + n * MINUTE)
    ids = store.read.ids(JobFilter())
    store.control.pause(ids[::7], now=T0 + HOUR)
    store.control.cancel(ids[1::9], now=T0 + HOUR)
    store.claim(uuid4(), 8, now=T0 + HOUR)
    store.upkeep.count_jobs(now=T0 + HOUR)
    yield store
    store.close()


@pytest.fixture
def as_if_large(monkeypatch) -> None:
    """Every way that is for large tables only is taken."""
    monkeypatch.setattr(lists, "CHEAP", 0)
    monkeypatch.setattr(lists, "DEAR", 0)
    monkeypatch.setattr(lists, "NEAR", 15)


@pytest.fixture(params=["few", "many"])
def counted(request, monkeypatch) -> None:
    monkeypatch.setattr(lists, "FEW", 10**9 if request.param == "few" else -1)


@pytest.mark.parametrize("chosen", FILTERS, ids=range(len(FILTERS)))
@pytest.mark.usefixtures("as_if_large", "counted")
def test_the_same_jobs_come_in_the_same_order_whichever_way(filled, chosen, monkeypatch):
    for sort in ("-created_at", "next_run_at", "-next_run_at", "name", "-name", "priority"):
        for limit, offset in [(5, 0), (7, 5)]:
            read = (chosen, sort, limit, offset)
            large = filled.read._lists.page(*read)
            with monkeypatch.context() as small:
                small.setattr(lists, "CHEAP", 10**12)
                small.setattr(lists, "DEAR", 10**12)
                plain = filled.read._lists.page(*read)
            assert [job.id for job in large.jobs] == [job.id for job in plain.jobs], read
            assert not plain.total_is_estimate


@pytest.mark.usefixtures("as_if_large")
def test_a_total_from_the_kept_counts_says_so_and_when(filled):
    page = filled.read.jobs(JobFilter(queues=["a"]), limit=3)
    exact = sum(1 for job in filled.read.each(JobFilter()) if job.queue == "a")
    assert (page.total, page.total_is_estimate, page.as_of) == (exact, True, T0 + HOUR)


@pytest.mark.usefixtures("as_if_large")
def test_a_total_that_nobody_counted_is_the_planners_guess(filled):
    page = filled.read.jobs(JobFilter(tag="odd"), limit=3)
    assert page.total_is_estimate
    assert page.as_of is None
    assert page.total >= 3


def test_a_count_goes_so_far_and_no_further(filled, monkeypatch):
    monkeypatch.setattr(lists, "EXACT_ROWS", 10**6)
    exact = filled.read.jobs(JobFilter(tag="odd"), limit=3)
    assert (exact.total, exact.total_is_estimate) == (30, False)
    monkeypatch.setattr(lists, "EXACT_ROWS", 5)
    page = filled.read.jobs(JobFilter(tag="odd"), limit=3)
    assert page.total_is_estimate
    assert page.total >= 6


@pytest.mark.usefixtures("as_if_large")
def test_the_last_page_knows_its_total_exactly(filled):
    page = filled.read.jobs(JobFilter(queues=["a"]), limit=20, offset=20)
    assert 0 < len(page.jobs) < 20
    assert (page.total, page.total_is_estimate) == (20 + len(page.jobs), False)


@pytest.mark.usefixtures("as_if_large")
def test_a_search_that_matches_names_without_number_reads_on(filled, monkeypatch):
    monkeypatch.setattr(lists, "MOST_NAMES", 3)
    page = filled.read.jobs(JobFilter(search="JOB-"), limit=4)
    assert len(page.jobs) == 4
    assert all("job-" in (job.name or "") for job in page.jobs)


def test_a_page_that_is_too_far_away_is_refused_with_a_way_out(filled):
    with pytest.raises(InvalidInput, match="narrow the list by a filter") as caught:
        filled.read.jobs(offset=MAX_OFFSET + 1)
    assert caught.value.field == "offset"


def test_counts_by_status_come_from_the_count_where_there_are_many(filled, monkeypatch):
    exact = filled.read.counts_by_status()
    assert sum(exact.values()) == 60
    filled.upkeep.save_figure("jobs", {"pending": 99_999})
    assert filled.read.counts_by_status() == {"pending": 99_999}
    filled.upkeep.count_jobs(now=T0 + HOUR)
    assert filled.read.counts_by_status() == exact


def test_the_kept_counts_follow_what_there_is(filled):
    counts, as_of = filled.read.job_counts()
    assert as_of == T0 + HOUR
    assert sum(count.jobs for count in counts) == 60
    kinds = {(c.status, c.queue, c.task, c.schedule_kind) for c in counts}
    assert kinds == {
        (j.status, j.queue, j.task, j.schedule_kind) for j in filled.read.each(JobFilter())
    }
