"""Figures without a database: counting, keeping answers, and the table of all metrics."""

import re
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from evenbeat.domain.decision import Decision, EndKind, RunEnd
from evenbeat.domain.execution import Outcome
from evenbeat.domain.states import ExecutionStatus, JobStatus
from evenbeat.observe.metrics import METRICS, Metrics, QueueFigures, queue_figures
from evenbeat.observe.readiness import Readiness
from evenbeat.observe.single_flight import SingleFlight
from evenbeat.observe.telemetry import Histogram, Telemetry, WorkerStatus
from evenbeat.store.reads import QueueDepth
from waiting import PATIENCE, wait_for

MONITORING = (Path(__file__).parents[2] / "docs" / "monitoring.md").read_text()


# -- counting ------------------------------------------------------------------------------------


def test_a_histogram_counts_up_to_and_with_each_bound():
    histogram = Histogram((1.0, 2.0))
    histogram.add([0.5, 1.0, 1.5, 2.0, 99.0])
    histogram.add([])
    assert histogram.cumulative() == [(1.0, 2), (2.0, 4), (float("inf"), 5)]
    assert histogram.total == 104.0


class FakeJob:
    """The few fields of a job that matter to the counters."""

    started_at = datetime(2026, 3, 1, tzinfo=UTC)

    def __init__(self, task: str, wait: float | None = None, retries: int = 0) -> None:
        self.task = task
        self.current_retry_count = retries
        self.next_run_at = wait and self.started_at - timedelta(seconds=wait)


def failed(seconds: float, code: str = "error") -> Outcome:
    return Outcome(ExecutionStatus.FAILED, duration_ms=seconds * 1000, error_code=code)


DONE = Decision(JobStatus.COMPLETED)
AGAIN = Decision(JobStatus.SCHEDULED, None, None, 1)
NEXT_PLAN = Decision(JobStatus.SCHEDULED, None, None, 0, 0, 4)


def test_ends_of_runs_are_sorted_into_their_counters():
    counters = Telemetry()
    counters.ended([
        RunEnd(FakeJob("a", 0.1), EndKind.COMPLETED, Outcome(duration_ms=1000), DONE),
        RunEnd(FakeJob("a", 0.1), EndKind.RETRYING, failed(2.0, "timeout"), AGAIN),
        RunEnd(FakeJob("a", 0.1, retries=1), EndKind.COMPLETED, Outcome(duration_ms=0), DONE),
        RunEnd(FakeJob("b", retries=3), EndKind.FAILED, failed(3.0), NEXT_PLAN),
        RunEnd(FakeJob("b"), EndKind.CANCELLED),
        RunEnd(FakeJob("b"), EndKind.LOST),
        RunEnd(FakeJob("b"), EndKind.RELEASED),
    ])  # fmt: skip
    assert counters.counters() == {
        "evenbeat_executions_total": {
            ("a", "completed"): 2, ("a", "failed"): 1, ("b", "failed"): 1, ("b", "cancelled"): 1,
        },
        "evenbeat_retry_ends_total": {("a", "completed"): 1, ("b", "failed"): 1},
        "evenbeat_retries_total": {("a",): 1},
        "evenbeat_timeouts_total": {("a",): 1},
        "evenbeat_plans_skipped_total": {("b",): 4},
        "evenbeat_leases_lost_total": {("b",): 1},
        "evenbeat_executions_released_total": {("b",): 1},
    }  # fmt: skip
    histograms = counters.histograms()
    waits = histograms["evenbeat_pickup_delay_seconds"]
    assert {labels: sum(wait.counts) for labels, wait in waits.items()} == {("a",): 3}
    durations = histograms["evenbeat_execution_duration_seconds"]
    assert {labels: took.total for labels, took in durations.items()} == {
        ("a", "completed"): 1.0, ("a", "failed"): 2.0, ("b", "failed"): 3.0,
    }  # fmt: skip


def test_threads_lose_no_count():
    counters = Telemetry()
    end = RunEnd(FakeJob("a", 0.01), EndKind.COMPLETED, Outcome(duration_ms=10), DONE)
    batch = [end] * 10

    def tell() -> None:
        for _ in range(200):
            counters.ended(batch)
            counters.claimed(10, 0.001)

    threads = [threading.Thread(target=tell) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        counters.histograms(), counters.counters()
    for thread in threads:
        thread.join()
    assert counters.counters()["evenbeat_executions_total"] == {("a", "completed"): 8000}
    sizes = counters.histograms()["evenbeat_claim_batch_size"][()]
    assert (sum(sizes.counts), sizes.total) == (800, 8000.0)


# -- the cache of slow queries -------------------------------------------------------------------


def test_an_answer_is_asked_for_once_and_cached():
    asked = []
    cache = SingleFlight(lambda: asked.append(1) or len(asked), fresh_seconds=60)
    assert [cache.get().value for _ in range(3)] == [1, 1, 1]
    assert cache.get().error is None


def test_a_question_without_an_answer_holds_nobody_up_and_is_not_asked_twice():
    answer, asked = threading.Event(), []

    def ask() -> str:
        asked.append(1)
        answer.wait(20)
        return "here"

    cache = SingleFlight(ask, fresh_seconds=60, wait_seconds=0.05)
    begun = time.monotonic()
    first = [cache.get() for _ in range(5)]
    assert time.monotonic() - begun < 10
    assert all(isinstance(found.error, TimeoutError) for found in first)
    assert [found.value for found in first] == [None] * 5
    assert asked == [1]
    answer.set()
    wait_for(lambda: cache.get().value, "the value")
    assert cache.get()[::2] == ("here", None)


def test_an_error_is_told_beside_the_last_value():
    answers = iter(["old"])
    cache = SingleFlight(lambda: next(answers), fresh_seconds=0.0)
    assert cache.get().value == "old"
    failed = cache.get()
    assert (failed.value, type(failed.error)) == ("old", StopIteration)


def test_a_cache_may_give_its_old_value_while_the_next_is_on_its_way():
    go_on, calls = threading.Event(), []

    def query() -> int:
        calls.append(1)
        if len(calls) > 1:
            go_on.wait(PATIENCE)
        return len(calls)

    cache = SingleFlight(query, fresh_seconds=0.0, wait_seconds=PATIENCE, wait_for_fresh=False)
    assert cache.get().value == 1
    assert [cache.get().value for _ in range(3)] == [1, 1, 1]
    go_on.set()
    wait_for(lambda: cache.get().value != 1, "the next value")
    assert cache.refresh() <= cache.get().value


def test_a_slow_query_does_not_replace_the_value_of_one_that_began_later():
    go_on, began, values = threading.Event(), threading.Event(), iter(["slow", "refreshed"])

    def query() -> str:
        value = next(values)
        if value == "slow":
            began.set()
            go_on.wait(PATIENCE)
        return value

    cache = SingleFlight(query, fresh_seconds=60, wait_seconds=0)
    cache.get()
    assert began.wait(PATIENCE)
    done = cache._done
    assert cache.refresh() == "refreshed"
    go_on.set()
    assert done.wait(PATIENCE)
    assert cache.get().value == "refreshed"


# -- readiness -----------------------------------------------------------------------------------


def well(trouble: str | None = None) -> WorkerStatus:
    return WorkerStatus([], leases=0, backlog=0, claim_age=0.0, beat_age=0.0, trouble=trouble)


def test_one_worker_in_trouble_is_enough_to_be_not_ready():
    def no_store():
        raise ConnectionError("host=10.0.0.1 user=admin")

    counters = Telemetry()
    readiness = Readiness(no_store, counters)
    assert "worker" not in readiness.report().checks
    assert readiness.report(expects_worker=True).checks["worker"].startswith("The worker has not")
    one, two = uuid4(), uuid4()
    counters.watch(one, well)
    assert readiness.report().checks["worker"] == "ok"
    counters.watch(two, lambda: well("It hangs."))
    report = readiness.report()
    assert report.checks["worker"] == "It hangs."
    assert not report.ready
    assert "10.0.0.1" not in str(report)
    counters.unwatch(two)
    assert readiness.report().checks["worker"] == "ok"


# -- the table of metrics ------------------------------------------------------------------------


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_is_documented_with_its_kind_and_labels(name: str):
    row = next((line for line in MONITORING.splitlines() if line.startswith(f"| `{name}`")), None)
    assert row is not None, f"docs/monitoring.md has no row for {name}"
    _, _, kind, labels, *_ = (cell.strip() for cell in row.split("|"))
    assert kind == METRICS[name].kind
    assert tuple(re.findall(r"`(\w+)`", labels)) == METRICS[name].labels


def test_the_documentation_names_no_metric_that_does_not_exist():
    plain = {re.sub(r"_(bucket|count|sum)$", "", name) for name in _named(MONITORING)}
    unknown = {name for name in plain if name not in METRICS and f"{name}_count" not in METRICS}
    assert {name for name in unknown if not name.startswith("evenbeat_process_")} == set()


def _named(text: str) -> set[str]:
    return set(re.findall(r"\b((?:evenbeat|scheduler)_[a-z_]+)\b", text)) & {
        word for word in re.findall(r"[a-z_]+", text) if not word.endswith("_")
    }


@pytest.mark.parametrize("name", METRICS)
def test_names_follow_the_conventions(name: str):
    kind = METRICS[name].kind
    assert re.fullmatch(r"(evenbeat|scheduler)_[a-z_]+", name)
    assert name.endswith("_total") == (kind == "counter")
    assert not re.search(r"_(ms|milliseconds|kb|mb|percent)\b", name)
    assert METRICS[name].help.endswith(".")


def test_a_source_that_fails_costs_its_own_families_only(caplog):
    class Broken(Metrics):
        def engine(self):
            yield "evenbeat_leases_renewed_total", 1
            raise RuntimeError("no")

    def away():
        raise ConnectionError("no")

    metrics = Broken(Telemetry(), store=away, tasks=list, balancer=away)
    names = [family.name for family in metrics.collect()]
    assert names[:2] == ["evenbeat_leases_renewed", "evenbeat_info"]
    assert names[-1] == "evenbeat_database_up"
    assert "Some metrics could not be collected" in caplog.text


def test_queues_beyond_the_most_are_shown_as_one():
    now = datetime.fromisoformat("2030-01-01T00:00:00+00:00")
    long_ago = datetime.fromisoformat("2029-12-31T23:00:00+00:00")
    depths = [QueueDepth(f"q{n}", 1000 - n, 1, long_ago, None) for n in range(102)]
    found = queue_figures(depths, now)
    assert len(found) == 101
    assert found["q0"] == QueueFigures(1000, 1, 3600.0, False)
    assert found["(others)"] == QueueFigures(900 + 899, 2, 3600.0, False)
