"""Lists of runs: what each condition means, pages, groups by error, and what they read."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from evenbeat.domain.decision import decide
from evenbeat.domain.execution import Outcome
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.retry import RetryPolicy
from evenbeat.domain.states import ExecutionStatus
from evenbeat.errors import InvalidInput
from evenbeat.store import runs as module
from evenbeat.store.runs import RunFilter
from evenbeat.store.store import Store

T0 = datetime(2025, 1, 1, 3, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
HERE, THERE = uuid4(), uuid4()
NO_RETRY = RetryPolicy(max_retries=0)


def failed(code: str, message: str = "no") -> Outcome:
    return Outcome(ExecutionStatus.FAILED, error_code=code, error_message=message)


def ended(store: Store, job: NewJob, at: datetime, outcome: Outcome, worker: UUID = HERE) -> UUID:
    """A run of a new job that began at a moment and ended five minutes later."""
    job_id = store.add(job, now=at).id
    (claimed,) = store.claim(worker, 1, now=at, lease=HOUR)
    assert claimed.id == job_id
    end = at + timedelta(minutes=5)
    store.finish([decide(claimed, outcome, end)], now=end)
    return job_id


@pytest.fixture
def night(store: Store) -> dict[str, UUID]:
    """Six runs, an hour apart from three o'clock on; the last one still runs."""
    spec = JobSpec("sync", queue="shop", retry=NO_RETRY)
    tagged = NewJob(spec, name="Shop sync", metadata={"tags": ["eu", "b"]})
    mail = NewJob(JobSpec("mail", retry=NO_RETRY))
    ours = NewJob(JobSpec("evenbeat:webhook", retry=NO_RETRY))
    jobs = {
        "timeout": ended(store, tagged, T0, failed("timeout", "took 50% too long")),
        "value": ended(store, mail, T0 + HOUR, failed("ValueError")),
        "value 2": ended(store, mail, T0 + 2 * HOUR, failed("ValueError", "x")),
        "good": ended(store, NewJob(spec), T0 + 3 * HOUR, Outcome(), THERE),
        "webhook": ended(store, ours, T0 + 4 * HOUR, failed("http_500")),
        "open": store.add(NewJob(spec), now=T0 + 5 * HOUR).id,
    }
    store.claim(HERE, 1, now=T0 + 5 * HOUR, lease=timedelta(days=9_000))
    return jobs


@pytest.mark.parametrize(
    ("condition", "names"),
    [
        ({}, ["open", "webhook", "good", "value 2", "value", "timeout"]),
        ({"own": True}, ["open", "good", "value 2", "value", "timeout"]),
        ({"statuses": ["failed"], "own": True}, ["value 2", "value", "timeout"]),
        ({"statuses": ["running"]}, ["open"]),
        ({"statuses": ["completed", "running"]}, ["open", "good"]),
        ({"tasks": ["sync"]}, ["open", "good", "timeout"]),
        ({"queues": ["shop"], "statuses": ["failed"]}, ["timeout"]),
        ({"error_codes": ["ValueError"]}, ["value 2", "value"]),
        ({"worker_id": THERE}, ["good"]),
        ({"tag": "eu"}, ["timeout"]),
        ({"search": "50%"}, ["timeout"]),
        ({"search": "shop s"}, ["timeout"]),
        ({"search": "SYN"}, ["open", "good", "timeout"]),
        # By its end: the run of four o'clock ended five minutes later.
        ({"since": T0 + HOUR + timedelta(minutes=4), "until": T0 + 3 * HOUR}, ["value 2", "value"]),
        ({"since": T0 + HOUR + timedelta(minutes=6), "until": T0 + 3 * HOUR}, ["value 2"]),
        ({"until": T0 + timedelta(minutes=5)}, []),
    ],
)  # fmt: skip
def test_conditions(
    store: Store, night: dict[str, UUID], condition: dict[str, Any], names: list[str]
) -> None:
    page = store.runs.page(RunFilter(**condition), 50)
    by_id = {id_: name for name, id_ in night.items()}
    assert [by_id[run.execution.job_id] for run in page.runs] == names
    assert (page.further, page.read_back_to) == (None, None)
    summary = store.runs.summary(RunFilter(**condition))
    assert (summary.total, summary.more) == (len(names), False)
    assert store.runs.job_ids(RunFilter(**condition)) == sorted(night[name] for name in names)


def test_a_deleted_job_leaves_its_run_listed_without_a_name(
    store: Store, night: dict[str, UUID]
) -> None:
    assert store.runs.page(RunFilter(job_id=night["good"]), 5).runs[0].task == "sync"
    with psycopg.connect(store.database.url, autocommit=True) as connection:
        connection.execute("DELETE FROM evenbeat.jobs WHERE id = %s", [night["good"]])
    (run,) = store.runs.page(RunFilter(statuses=["completed"], own=True), 5).runs
    assert (run.name, run.task, run.queue) == (None, None, None)


def test_pages_go_on_before_the_last_run(store: Store, night: dict[str, UUID]) -> None:
    first = store.runs.page(RunFilter(), 4)
    assert first.further == first.runs[-1].execution.id
    rest = store.runs.page(RunFilter(before=first.further), 4)
    assert [run.execution.job_id for run in rest.runs] == [night["value"], night["timeout"]]
    assert rest.further is None
    assert store.runs.page(RunFilter(), 2, 4).runs == rest.runs


def test_errors_are_grouped_by_task(store: Store, night: dict[str, UUID]) -> None:
    groups = store.runs.summary(RunFilter(statuses=["failed"], own=True)).groups
    assert [(one.task, one.error_code, one.runs, one.jobs) for one in groups] == [
        ("mail", "ValueError", 2, 2), ("sync", "timeout", 1, 1),
    ]  # fmt: skip
    assert [one.error_message for one in groups] == ["x", "took 50% too long"]
    five = timedelta(minutes=5)
    assert (groups[0].since, groups[0].until) == (T0 + HOUR + five, T0 + 2 * HOUR + five)


def test_a_list_says_how_far_back_it_looked_and_goes_on_from_there(
    store: Store, night: dict[str, UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOKED_AT", 3)
    rare = RunFilter(search="50%")
    page = store.runs.page(rare, 5)
    assert page.runs == []
    assert page.read_back_to == T0 + 3 * HOUR
    assert store.runs.summary(rare).more
    (run,) = store.runs.page(RunFilter(search="50%", before=page.further), 5).runs
    assert run.execution.job_id == night["timeout"]
    # A period that was looked at whole is not cut off, whatever lies before it.
    assert (
        store.runs.page(
            RunFilter(search="x", since=T0 + 3 * HOUR + timedelta(minutes=1)), 5
        ).read_back_to
        is None
    )
    # Of few jobs, the histories are read themselves.
    few = store.runs.page(RunFilter(tag="eu"), 5)
    assert [run.execution.job_id for run in few.runs] == [night["timeout"]]
    assert few.read_back_to is None


@pytest.mark.parametrize(
    "since", [datetime(2, 1, 1, tzinfo=UTC), datetime(1969, 7, 20, tzinfo=UTC)]
)
def test_since_before_all_time_means_everything(store: Store, since: datetime) -> None:
    ended(store, NewJob(JobSpec("noop")), T0, Outcome())
    assert len(store.runs.page(RunFilter(since=since), 50).runs) == 1


@pytest.mark.parametrize("bad", [{"limit": 0}, {"limit": 1001}, {"limit": 1, "offset": -1}])
def test_a_page_out_of_bounds_is_refused(store: Store, bad: dict[str, int]) -> None:
    with pytest.raises(InvalidInput):
        store.runs.page(RunFilter(), **bad)


# -- what they read ------------------------------------------------------------------------------

_HISTORY = """
INSERT INTO evenbeat.executions (id, job_id, plan_time, started_at, completed_at, worker_id,
                                 execution_number, status, error_code)
SELECT evenbeat.uuid7(at), gen_random_uuid(), at, at, at + interval '1 second', gen_random_uuid(),
       1, CASE WHEN k % 50 = 0 THEN 'failed' ELSE 'completed' END,
       CASE WHEN k % 50 = 0 THEN 'boom' END
FROM (SELECT k, now() - interval '10 days' * (1 - k / 100000.0) AS at
      FROM generate_series(1, 100000) k) runs
"""


def test_lists_read_what_they_show_and_no_index_was_added(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(store.database.url, autocommit=True) as connection:
        connection.execute(_HISTORY)
        connection.execute("VACUUM ANALYZE evenbeat.executions")
        indexes = "SELECT indexname FROM pg_indexes WHERE tablename = 'executions' ORDER BY 1"
        # Each holds only what a run's end leaves as it is, but for the error that few have.
        assert [name for (name,) in connection.execute(indexes)] == [
            "executions_errors", "executions_pkey", "one_run_per_attempt",
        ]  # fmt: skip
    plain = store.database.query
    blocks = []

    def measured(name: str, text: Any, params: Any) -> Any:
        ((plan,),) = plain(name, "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + text, params)
        top = plan[0]["Plan"]
        blocks.append(top["Shared Hit Blocks"] + top["Shared Read Blocks"])
        return plain(name, text, params)

    def read_by(ask: Callable[[], object]) -> int:
        blocks.clear()
        ask()
        return sum(blocks)

    monkeypatch.setattr(store.database, "query", measured)
    day = store.clock() - timedelta(days=1)
    newest = read_by(lambda: store.runs.page(RunFilter(), 50))
    failures = read_by(lambda: store.runs.page(RunFilter(statuses=["failed"]), 50))
    assert newest < 300
    assert failures < 600
    assert read_by(lambda: store.runs.page(RunFilter(statuses=["running"]), 50)) < 50
    counted = read_by(lambda: store.runs.summary(RunFilter(statuses=["failed"], since=day)))
    assert counted < 3_000  # 400 runs (a day before the day is looked at, too) and their jobs
