"""Figures without a database: counting, keeping answers, and the table of all metrics."""

import re
import threading
import time
from datetime import datetime
from pathlib import Path
from uuid import uuid4

import pytest

from evenbeat.domain.decision import Decision
from evenbeat.domain.execution import Outcome
from evenbeat.domain.states import ExecutionStatus, JobStatus
from evenbeat.engine.finisher import Settled
from evenbeat.engine.worker_status import endings
from evenbeat.observe.collectors import Guarded, family
from evenbeat.observe.counters import EngineCounters, Histogram
from evenbeat.observe.database_snapshot import QueueFigures, queue_figures
from evenbeat.observe.metric_definitions import METRICS
from evenbeat.observe.readiness import Readiness
from evenbeat.observe.single_flight import SingleFlight
from evenbeat.observe.telemetry import NO_TELEMETRY, Ended, Ending, Telemetry, WorkerStatus
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


def test_endings_are_sorted_into_their_counters():
    counters = EngineCounters()
    counters.ended([
        Ending("a", Ended.COMPLETED, 1.0, 0.1),
        Ending("a", Ended.FAILED, 2.0, 0.1, retried=True, timed_out=True),
        Ending("b", Ended.FAILED, 3.0, None, skipped=4),
        Ending("b", Ended.CANCELLED),
        Ending("b", Ended.LOST),
        Ending("b", Ended.RELEASED),
    ])  # fmt: skip
    assert counters.counters() == {
        "evenbeat_executions_total": {
            ("a", "completed"): 1, ("a", "failed"): 1, ("b", "failed"): 1, ("b", "cancelled"): 1,
        },
        "evenbeat_retries_total": {("a",): 1},
        "evenbeat_timeouts_total": {("a",): 1},
        "evenbeat_plans_skipped_total": {("b",): 4},
        "evenbeat_leases_lost_total": {("b",): 1},
        "evenbeat_executions_released_total": {("b",): 1},
    }  # fmt: skip
    waits = counters.histograms()["evenbeat_pickup_delay_seconds"]
    assert {labels: sum(found.counts) for labels, found in waits.items()} == {("a",): 2}


def test_threads_lose_no_count():
    counters = EngineCounters()
    batch = [Ending("a", Ended.COMPLETED, 0.01, 0.01)] * 10

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


def test_no_telemetry_has_every_verb_of_the_protocol():
    verbs = {name for name in vars(Telemetry) if not name.startswith("_")}
    assert verbs <= {name for name in dir(NO_TELEMETRY) if not name.startswith("_")}
    assert verbs <= {name for name in dir(EngineCounters) if not name.startswith("_")}


class FakeJob:
    """The few fields of a job that matter to its ending."""

    task, next_run_at, started_at = "t", None, None


class FakeRun:
    def __init__(self) -> None:
        self.job, self.token = FakeJob(), uuid4()


def test_a_settled_run_becomes_an_ending():
    run = FakeRun()
    again = Decision(JobStatus.SCHEDULED, None, None, 1)
    next_plan = Decision(JobStatus.SCHEDULED, None, None, 0, 0, 3)
    late = Outcome(ExecutionStatus.FAILED, duration_ms=2500.0, error_code="timeout")
    done = Outcome(duration_ms=10.0)
    settled = [
        Settled(run, done, Decision(JobStatus.COMPLETED), kept=True),
        Settled(run, late, again, kept=True),
        Settled(run, late, next_plan, kept=True),
        Settled(run, None, None, kept=True),
        Settled(run, done, Decision(JobStatus.COMPLETED), kept=False),
    ]
    assert endings(settled, set()) == [
        Ending("t", Ended.COMPLETED, 0.01),
        Ending("t", Ended.FAILED, 2.5, retried=True, timed_out=True),
        Ending("t", Ended.FAILED, 2.5, timed_out=True, skipped=3),
        Ending("t", Ended.RELEASED),
        Ending("t", Ended.LOST),
    ]
    assert endings(settled[-1:], {run.token}) == [Ending("t", Ended.CANCELLED)]


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
    assert cache.refresh() == cache.get().value


# -- readiness -----------------------------------------------------------------------------------


def well(trouble: str | None = None) -> WorkerStatus:
    return WorkerStatus([], leases=0, backlog=0, claim_age=0.0, beat_age=0.0, trouble=trouble)


def test_one_worker_in_trouble_is_enough_to_be_not_ready():
    def no_store():
        raise ConnectionError("host=10.0.0.1 user=admin")

    counters = EngineCounters()
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


def test_a_collector_that_fails_costs_its_own_families_only(caplog):
    class Broken(Guarded):
        def families(self):
            yield family("evenbeat_leases", 1)
            raise RuntimeError("no")

    assert [found.name for found in Broken().collect()] == ["evenbeat_leases"]
    assert "Some metrics could not be collected" in caplog.text


def test_queues_beyond_the_most_are_shown_as_one():
    now = datetime.fromisoformat("2030-01-01T00:00:00+00:00")
    long_ago = datetime.fromisoformat("2029-12-31T23:00:00+00:00")
    depths = [QueueDepth(f"q{n}", 1000 - n, 1, long_ago, None) for n in range(102)]
    found = queue_figures(depths, now)
    assert len(found) == 101
    assert found["q0"] == QueueFigures(1000, 1, 3600.0, False)
    assert found["(others)"] == QueueFigures(900 + 899, 2, 3600.0, False)
