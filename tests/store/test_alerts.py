"""What needs a person: every rule with real rows on both sides of its threshold, as the doctor and
the dashboard say it, and cheap to look up among many jobs and runs."""

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from evenbeat import Evenbeat
from evenbeat.domain.alerts import RULES
from evenbeat.domain.decision import decide
from evenbeat.domain.execution import Outcome
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.retry import RetryPolicy
from evenbeat.domain.schedule import Interval
from evenbeat.domain.states import ExecutionStatus
from evenbeat.observe import doctor
from evenbeat.observe.alerts import Alert, alerts
from evenbeat.store.database import _COLD_SESSION
from evenbeat.store.statements import load_statements
from evenbeat.store.store import Store
from evenbeat.store.upkeep import NewWorker

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
WORKER = uuid4()
FAILED = Outcome(ExecutionStatus.FAILED, duration_ms=9, error_code="Boom", error_message="no")


def took(seconds: float) -> Outcome:
    return Outcome(duration_ms=seconds * 1000)


def beat(store: Store, now: datetime) -> None:
    store.upkeep.register_worker(NewWorker(WORKER, "node/x", 7, 0.0, "1", 10), now=now)


def found(store: Store, name: str, now: datetime) -> list[Alert]:
    """The broken rules of this name, which the doctor must name in the same words."""
    broken = [one for one in alerts(store.database.rows, now) if one.rule.name == name]
    findings = doctor.check(store.database.url, now=now)
    assert [f[2:] for f in findings if f.code == name] == [one[1:4] for one in broken]
    assert {f.severity for f in findings if f.code == name} <= {RULES[name].severity}
    return broken


def one(store: Store, name: str, now: datetime) -> Alert:
    (alert,) = found(store, name, now)
    return alert


# -- jobs that wait ------------------------------------------------------------------------------


def test_a_queue_is_long_from_the_first_job_beyond_a_thousand(store):
    beat(store, T0)
    store.add_many([NewJob(JobSpec("send", queue="my mail"))] * 1000, now=T0)
    assert found(store, "queue_depth", T0 + MINUTE) == []
    store.add(NewJob(JobSpec("other", queue="my mail", priority=7)), now=T0)
    alert = one(store, "queue_depth", T0 + MINUTE)
    assert alert.title == "Long queue: 1,001 jobs due in 'my mail'"
    assert alert.detail == "More than 1,000; the oldest has been due for 1 min."
    assert "--queue 'my mail'`" in alert.remedy  # to be pasted into a shell
    assert (alert.since, alert.jobs) == (T0, {"queue": "my mail"})
    store.control.pause_queue("my mail", now=T0)
    assert found(store, "queue_depth", T0 + MINUTE) == []
    paused = one(store, "queue_paused", T0 + MINUTE)
    assert paused.detail == (
        "1,001 jobs or more of the tasks 'other' and 'send' due, the oldest for 1 min."
    )
    assert paused.jobs == {"queue": "my mail"}
    assert "evenbeat queue resume 'my mail'" in paused.remedy


def test_jobs_are_late_after_five_minutes_and_unserved_after_half_a_minute(store):
    store.add(NewJob(JobSpec("send")), now=T0)
    assert found(store, "unserved", T0 + 29 * SECOND) == []
    assert one(store, "unserved", T0 + 30 * SECOND).jobs == {"queue": "default", "task": "send"}
    beat(store, T0 + 5 * MINUTE)
    assert found(store, "late", T0 + 5 * MINUTE - SECOND) == []
    late = one(store, "late", T0 + 5 * MINUTE)
    assert late.detail == (
        "1 job of the task 'send' due, the oldest for 5 min. 1 worker can take them."
    )
    assert found(store, "unserved", T0 + 5 * MINUTE) == []


# -- tasks that fail -----------------------------------------------------------------------------


def run_once(store: Store, outcomes: list[Outcome], now: datetime) -> None:
    """One-off jobs of a task that end like this, and are counted."""
    store.add_many([NewJob(JobSpec("send", retry=RetryPolicy(0))) for _ in outcomes], now=now)
    jobs = store.claim(WORKER, len(outcomes), now=now)
    ends = zip(jobs, outcomes, strict=True)
    store.finish([decide(job, outcome, now) for job, outcome in ends], now=now)
    store.upkeep.count_outcomes(now=now + SECOND)


def test_a_task_fails_too_often_beyond_a_tenth_of_its_runs(store):
    run_once(store, [FAILED] * 1 + [took(1)] * 9, T0)
    assert found(store, "failure_rate", T0 + MINUTE) == []
    run_once(store, [FAILED], T0 + MINUTE)
    alert = one(store, "failure_rate", T0 + 20 * MINUTE)
    assert alert.title == "Failing: 18% of the runs of 'send'"
    assert alert.detail == "2 of 11 runs failed within the last 1 h 20 min."
    assert (alert.jobs, alert.job_id) == ({"task": "send"}, None)
    assert one(store, "failure_rate", T0 + 2 * HOUR - SECOND)
    assert found(store, "failure_rate", T0 + 2 * HOUR) == []


def test_a_few_runs_that_failed_are_no_rate(store):
    run_once(store, [FAILED] * 9, T0)
    assert found(store, "failure_rate", T0 + MINUTE) == []
    run_once(store, [FAILED], T0 + MINUTE)
    assert one(store, "failure_rate", T0 + 2 * MINUTE).title.startswith("Failing: 100%")


# -- runs that hang ------------------------------------------------------------------------------


def test_a_run_is_long_after_an_hour_and_twice_the_usual_time(store):
    usual = store.add(NewJob(JobSpec("crawl", schedule=Interval(HOUR)), start=MINUTE), now=T0).id
    (job,) = store.claim(WORKER, 1, now=T0 + MINUTE)
    store.finish([decide(job, took(45 * 60), T0 + 46 * MINUTE)], now=T0 + 46 * MINUTE)
    begun = T0 + HOUR + MINUTE
    (job,) = store.claim(WORKER, 1, now=begun)
    assert job.id == usual
    assert found(store, "running_long", begun + 90 * MINUTE) == []
    alert = one(store, "running_long", begun + 90 * MINUTE + SECOND)
    assert alert.title == "Running for over 1 h: 1 run of 'crawl'"
    assert (alert.job_id, alert.since) == (usual, begun)

    store.add(NewJob(JobSpec("crawl")), now=begun + HOUR)  # nobody knows yet how long it takes
    store.claim(WORKER, 1, now=begun + HOUR)
    assert one(store, "running_long", begun + 2 * HOUR).job_id == usual
    both = one(store, "running_long", begun + 2 * HOUR + SECOND)
    assert both.title.endswith(": 2 runs of 'crawl'")
    assert both.jobs == {"task": "crawl", "status": "running"}
    assert both.job_id is None
    assert "longest for 2 h" in both.detail


# -- windows that were missed --------------------------------------------------------------------


def test_a_run_that_finds_its_window_closed_has_missed_it(evenbeat_harness):
    app = Evenbeat(name="windows")

    @app.cron("0 2 * * *", window="02:00-04:00 UTC")
    async def report() -> None: ...

    harness = evenbeat_harness(app, T0)
    store, clock = app.store, harness.clock
    harness.advance("1m")
    job = store.read.job_by_name("report")

    def missed() -> list[Alert]:
        clock.move_to(clock.now() + SECOND)
        store.upkeep.count_outcomes(now=clock.now())
        broken = alerts(store.database.rows, clock.now())
        return [one for one in broken if one.rule.name == "missed_window"]

    store.control.run_now([job.id], now=clock.now())  # outside of the window: it waits for it
    harness.drain()
    assert store.read.job(job.id).next_run_at == T0 + 14 * HOUR
    assert len(store.read.executions_of(job.id).executions) == 1
    assert missed() == []
    harness.advance("14h")  # in time: it has run at 02:00
    assert store.read.executions_of(job.id).executions[0].status == "completed"
    assert missed() == []
    harness.skip("26h30m")  # no worker from 02:02 until 04:32 of the next day
    harness.drain()
    (alert,) = missed()
    assert alert.title == "Missed the time to start: 1 run of 'report'"
    assert alert.detail.startswith("Within the last 31 min: no worker started them")
    harness.skip("24h")
    harness.worker.registration.register()
    assert len(missed()) == 1
    harness.skip("1h")
    assert missed() == []


# -- single jobs that fail or get slower ---------------------------------------------------------


def recurring(store: Store, name: str, start: datetime = T0) -> UUID:
    spec = JobSpec("sync", schedule=Interval(MINUTE), retry=RetryPolicy(0))
    return store.add(NewJob(spec, name=name, start=MINUTE), now=start).id


def run(store: Store, job_id: UUID, outcomes: list[Outcome]) -> datetime:
    """The job runs at its plans; its runs are counted, and it is judged. Returns when."""
    now = T0
    for outcome in outcomes:
        now = store.read.job(job_id).next_run_at
        (job,) = store.claim(WORKER, 1, now=now)
        assert job.id == job_id
        store.finish([decide(job, outcome, now)], now=now)
        store.upkeep.count_outcomes(now=now + SECOND)
    return now + SECOND


def test_a_job_is_unreliable_below_four_fifths_of_its_latest_runs(store):
    job = recurring(store, "nightly")
    now = run(store, job, [FAILED] * 4)
    assert found(store, "success_rate", now) == []  # four runs are too few
    now = run(store, job, [took(0.1)] * 16)
    assert found(store, "success_rate", now) == []  # 16 of 20
    now = run(store, job, [took(0.1)] * 4 + [FAILED] * 4)
    assert found(store, "success_rate", now) == []
    now = run(store, job, [FAILED])
    alert = one(store, "success_rate", now)
    assert alert.title == "Fewer than 80% of the runs succeed: 1 job of 'sync'"
    assert alert.detail == ("For 4 min. The worst is 'nightly': 75% of its latest runs succeeded.")
    assert (alert.job_id, alert.remedy) == (
        job,
        f"`evenbeat job logs {job}` shows its last errors.",
    )
    now = run(store, job, [took(0.1)])
    assert one(store, "success_rate", now).since == alert.since
    store.control.pause([job], now=now)
    assert found(store, "success_rate", now) == []
    store.control.resume([job], now=now)
    now = run(store, job, [took(0.1)] * 14)
    assert one(store, "success_rate", now)
    now = run(store, job, [took(0.1)])  # of the five failures, one is no longer among the 20
    assert found(store, "success_rate", now) == []


def test_jobs_of_a_task_are_one_finding_with_the_worst_of_them(store, connect):
    jobs, now = [], T0
    for name, outcomes in (("a", [FAILED, took(1)] * 3), ("b", [FAILED] * 5), ("c", [took(1)] * 9)):
        jobs.append(recurring(store, name, now))
        now = run(store, jobs[-1], outcomes)
        store.database.query(
            "later",
            "UPDATE evenbeat.jobs SET next_run_at = %(then)s WHERE id = %(id)s RETURNING id",
            {"then": T0 + 99 * HOUR, "id": jobs[-1]},
        )
    alert = one(store, "success_rate", now)
    assert alert.title.endswith(": 2 jobs of 'sync'")
    assert "The worst is 'b': 0% of" in alert.detail
    assert (alert.job_id, alert.jobs) == (None, {"task": "sync"})
    store.control.delete([jobs[1]])
    assert "'a': 50% of" in one(store, "success_rate", now).detail
    assert store.upkeep.forget_alerts() == 1
    rows = connect().execute("SELECT job_id, rule FROM evenbeat.job_alerts").fetchall()
    assert rows == [(jobs[0], "success_rate")]


@pytest.mark.parametrize(
    ("usual", "then", "slower"), [(2.0, 3.0, False), (2.0, 3.1, True), (0.2, 1.1, False)]
)
def test_a_job_gets_slower_beyond_half_as_long_again_and_a_second(store, usual, then, slower):
    job = recurring(store, "import")
    now = run(store, job, [took(usual)] * 10 + [took(then)] * 5)
    assert bool(found(store, "slower", now)) == slower
    if slower:
        alert = one(store, "slower", now)
        assert alert.title == "Getting slower: 1 job of 'sync'"
        assert "'import': its latest runs took 1.6 times as long" in alert.detail
        assert alert.job_id == job
        now = run(store, job, [took(usual)] * 3)
        assert found(store, "slower", now) == []


def test_slow_runs_are_not_judged_beside_too_few_or_by_one_outlier(store):
    job = recurring(store, "import")
    now = run(store, job, [took(1)] * 9 + [took(9)] * 5)
    assert found(store, "slower", now) == []
    store.control.delete([job])
    other = recurring(store, "other", now)
    now = run(store, other, [took(2)] * 15 + [took(600)])
    assert found(store, "slower", now) == []


def test_a_failed_run_of_a_one_off_job_is_not_judged(store, connect):
    run_once(store, [FAILED] * 20, T0)
    assert connect().execute("SELECT count(*) FROM evenbeat.job_alerts").fetchone() == (0,)


def test_all_well(store):
    beat(store, T0)
    job = recurring(store, "fine")
    now = run(store, job, [took(1)] * 20)
    assert alerts(store.database.rows, now) == []
    codes = {finding.code for finding in doctor.check(store.database.url, now=now)}
    assert {"on_time", "tasks_are_well"} <= codes


def test_the_gravest_come_first_and_the_doctor_names_five_of_each(store):
    beat(store, T0)
    for n in range(7):
        store.add(NewJob(JobSpec("t", queue=f"a{n}")), now=T0)
    store.upkeep.forget_workers([WORKER])
    store.add_many([NewJob(JobSpec("x", queue="b"))] * 1001, now=T0)
    broken = alerts(store.database.rows, T0 + MINUTE)
    assert [one.rule.name for one in broken] == ["unserved"] * 8 + ["queue_depth"]
    codes = [f.code for f in doctor.check(store.database.url, now=T0 + MINUTE)]
    assert (codes.count("unserved"), codes.count("queue_depth")) == (5, 1)


# -- among many ----------------------------------------------------------------------------------

# 200,000 jobs, half of them due, 100 running; 200,000 runs of them.
MANY = """
INSERT INTO evenbeat.jobs (id, created_at, updated_at, plan_time, next_run_at, status, priority,
    queue, task, schedule_kind, interval_seconds, anchor_at, placement)
SELECT evenbeat.uuid7(now() - n * interval '1 second'), now(), now(), due, due, 'scheduled',
       (n % 5) * 20, 'q' || n % 3, 't' || n % 7, 'interval', 3600, now(), 'balanced'
FROM (SELECT n, now() + (n - 100000) * interval '1 second' AS due
      FROM generate_series(1, 200000) n) rows;
UPDATE evenbeat.jobs SET status = 'running', next_run_at = NULL, lock_token = gen_random_uuid(),
    locked_by = gen_random_uuid(), lock_expires_at = now(), started_at = now() - interval '2 hours'
WHERE id IN (SELECT id FROM evenbeat.jobs LIMIT 100);
INSERT INTO evenbeat.executions (id, job_id, plan_time, started_at, completed_at, worker_id,
    execution_number, status, duration_ms, error_code)
SELECT evenbeat.uuid7(now() - run * interval '1 minute'), id, now() - run * interval '1 hour',
       now(), now(), gen_random_uuid(), 1,
       CASE WHEN run % 3 = 0 THEN 'failed' ELSE 'completed' END, 2000,
       CASE WHEN run % 3 = 0 THEN 'Boom' END
FROM (SELECT id FROM evenbeat.jobs LIMIT 8000) j, generate_series(1, 25) run;
INSERT INTO evenbeat.job_alerts
SELECT id, 'success_rate', 0.5, now() FROM evenbeat.jobs OFFSET 1000 LIMIT 500;
INSERT INTO evenbeat.outcomes (hour, task, completed, failed, missed)
SELECT date_trunc('hour', now()) - h * interval '1 hour', 't' || t, 50, 50, 1
FROM generate_series(0, 190) h, generate_series(0, 99) t;
"""


@pytest.fixture(scope="module")
def many(module_database_url: str) -> Iterator[psycopg.Connection[Any]]:
    with closing(psycopg.connect(module_database_url, autocommit=True)) as connection:
        connection.execute(MANY)
        connection.execute("VACUUM ANALYZE")
        yield connection


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


@pytest.mark.scale
@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("name", ["alerts", "judge_jobs"])
def test_no_look_at_the_rules_reads_a_large_table(many, name, mode):
    """Only through indexes, and no more than there is to say: neither all jobs nor all runs."""
    many.execute(_COLD_SESSION.replace("force_custom_plan", mode))
    statement = load_statements("evenbeat")[name]
    ids = [row[0] for row in many.execute("SELECT id FROM evenbeat.jobs LIMIT 50")]
    given = {rule.name: rule.number for rule in RULES.values()} | {"ids": ids, "slower_by_ms": 1000}
    given |= {"least_runs": 5, "runs": 20, "recent": 5, "least_earlier": 10}
    with many.transaction(force_rollback=True):
        many.execute(f"PREPARE measured AS {statement.numbered.decode()}".encode(), prepare=False)
        cursor = psycopg.ClientCursor(many)
        explain = "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) EXECUTE measured"
        values = [given.get(each) for each in statement.names]
        cursor.execute(f"{explain} ({', '.join(['%s'] * len(values))})", values)
        plan = cursor.fetchone()[0][0]["Plan"]
    many.execute("DEALLOCATE measured")
    for node in nodes(plan):
        if node.get("Relation Name") in ("jobs", "executions", "outcomes"):
            assert node["Node Type"] in ("Index Scan", "Bitmap Heap Scan", "Index Only Scan"), node
    touched = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    assert touched < 6000, json.dumps(plan)[:2000]


@pytest.mark.scale
def test_among_many_everything_is_found(many, module_database_url):
    with closing(Store(module_database_url)) as store:
        names = {one.rule.name for one in alerts(store.database.rows, store.clock())}
    assert {"queue_depth", "failure_rate", "running_long", "missed_window", "success_rate"} <= names
