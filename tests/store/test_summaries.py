"""At a glance: the next runs, the last outcomes, what needs a person, what there is to run."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import psycopg
import pytest

from evenbeat import Context, Evenbeat
from evenbeat.domain.decision import decide
from evenbeat.domain.execution import Outcome
from evenbeat.domain.job import JobRecord, JobSpec, NewJob
from evenbeat.domain.retry import RetryPolicy
from evenbeat.domain.schedule import Interval
from evenbeat.domain.states import ExecutionStatus
from evenbeat.errors import InvalidInput, NotFound
from evenbeat.observe.alerts import alerts
from evenbeat.observe.explain import explain
from evenbeat.store.store import Store
from evenbeat.store.upkeep import KnownTask, NewWorker

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
WORKER = uuid4()
OK = Outcome(duration_ms=100)
FAILED = Outcome(ExecutionStatus.FAILED, duration_ms=9, error_code="Boom", error_message="no")
LOST = Outcome(ExecutionStatus.FAILED, error_code="lease_expired", error_message="gone")


def run(
    store: Store, now: datetime, outcome: Outcome = OK, ended: datetime | None = None
) -> JobRecord:
    (job,) = store.claim(WORKER, 1, now=now)
    end = ended or now
    store.finish([decide(job, outcome, end)], now=end)
    return job


def hourly(task: str, name: str, phase: int, **options: object) -> NewJob:
    schedule = Interval(HOUR, anchor=T0 + phase * MINUTE)
    spec = JobSpec(task, schedule=schedule, retry=RetryPolicy(0), **options)  # type: ignore[arg-type]
    return NewJob(spec, name=name, start=HOUR + phase * MINUTE)


def beat(store: Store, now: datetime, **options: object) -> None:
    worker = NewWorker(WORKER, "node/x", 7, 0.0, "1", 10, **options)  # type: ignore[arg-type]
    store.upkeep.register_worker(worker, now=now)


# -- the next runs ---------------------------------------------------------------------------------


def test_the_next_runs_come_from_all_lanes_in_order(store):
    for n in range(12):
        spec = JobSpec(f"task{n % 3}", queue=f"q{n % 2}", priority=n % 2)
        store.add(NewJob(spec, name=f"n{(n * 5) % 12}", start=(n * 5 % 12) * MINUTE), now=T0)
    assert [job.name for job in store.read.upcoming(5)] == ["n0", "n1", "n2", "n3", "n4"]
    assert [job.name for job in store.read.upcoming(3, after=T0 + 9 * MINUTE)] == [
        "n9", "n10", "n11",
    ]  # fmt: skip
    assert len(store.read.upcoming(100)) == 12
    paused = store.read.upcoming(1)[0].id
    store.control.pause([paused])
    assert store.read.upcoming(1)[0].name == "n1"
    assert store.read.upcoming(1, after=T0 + HOUR) == []


def test_no_jobs_no_next_runs(store):
    assert store.read.upcoming() == []
    with pytest.raises(InvalidInput, match="limit must be from 1"):
        store.read.upcoming(0)


# -- the last outcomes -----------------------------------------------------------------------------


def test_strips_hold_the_last_outcomes_oldest_first(store):
    often = store.add(hourly("a", "often", 0), now=T0).id
    once = store.add(hourly("a", "once", 5), now=T0).id
    never = uuid4()
    for n in range(1, 5):
        run(store, T0 + n * HOUR, FAILED if n == 3 else OK)
        if n == 1:
            run(store, T0 + HOUR + 5 * MINUTE)
            store.control.pause([once])
    strips = store.read.last_outcomes([often, never, once], n=3)
    assert [mark.status for mark in strips[often]] == ["completed", "failed", "completed"]
    assert [mark.plan_time for mark in strips[often]] == [T0 + n * HOUR for n in (2, 3, 4)]
    assert strips[often][1].error_code == "Boom"
    assert [mark.status for mark in strips[once]] == ["completed"]
    assert strips[never] == []
    assert store.read.last_outcomes([]) == {}


# -- what needs a person ---------------------------------------------------------------------------


def test_a_quiet_system_needs_nobody(store):
    store.add(hourly("a", "fine", 0), now=T0)
    run(store, T0 + HOUR)
    assert store.read.failing_jobs(now=T0 + HOUR) == []
    beat(store, T0 + HOUR)
    assert alerts(store.database.rows, T0 + HOUR) == []


def test_failing_jobs_are_those_whose_last_run_failed(store):
    going_on = store.add(hourly("a", "going on", 0), now=T0).id
    mended = store.add(hourly("b", "mended", 1), now=T0).id
    store.add(NewJob(JobSpec("c", retry=RetryPolicy(0)), name="given up", start=2 * HOUR), now=T0)
    run(store, T0 + HOUR, FAILED)
    run(store, T0 + HOUR + MINUTE, FAILED)
    run(store, T0 + 2 * HOUR, FAILED)
    run(store, T0 + 2 * HOUR, FAILED)
    run(store, T0 + 2 * HOUR + MINUTE)
    failing = store.read.failing_jobs(now=T0 + 3 * HOUR)
    assert {(one.task, one.jobs, one.name) for one in failing} == {
        ("a", 1, "going on"), ("c", 1, "given up"),
    }  # fmt: skip
    assert failing[0].error_message == "no"
    assert store.read.failing_jobs(now=T0 + 48 * HOUR) == []
    store.control.cancel([going_on, mended])
    assert len(store.read.failing_jobs(now=T0 + 3 * HOUR)) == 1


def test_waiting_work_is_late_or_unserved_or_paused_on_purpose(store):
    beat(store, T0 + 10 * MINUTE, queues=["web"], tasks=["crawl", "mail"])
    for queue, task in [("web", "crawl"), ("web", "report"), ("mail", "mail"), ("off", "x")]:
        store.add_many([NewJob(JobSpec(task, queue=queue))] * 2, now=T0)
    store.control.pause_queue("off", now=T0)

    def told(now: datetime) -> set[tuple[str, str, str | None]]:
        broken = alerts(store.database.rows, now)
        return {(one.rule.name, one.jobs["queue"], one.jobs.get("task")) for one in broken}

    assert told(T0 + 10 * MINUTE) == {
        ("late", "web", "crawl"), ("unserved", "web", "report"), ("unserved", "mail", "mail"),
        ("queue_paused", "off", "x"),
    }  # fmt: skip
    assert told(T0 + timedelta(seconds=20)) == set()
    assert ("unserved", "web", None) in told(T0 + HOUR)  # both of its tasks


def test_equal_failures_are_one_line_with_how_many_they_are(store):
    for n in range(12):
        store.add(hourly("a", f"a {n}", 0), now=T0)
    for _ in range(12):
        run(store, T0 + HOUR, FAILED)
    (group,) = store.read.failing_jobs(now=T0 + 2 * HOUR)
    assert (group.task, group.error_code, group.jobs) == ("a", FAILED.error_code, 12)


def test_a_run_far_over_its_usual_time_and_an_endpoint_that_fails_need_a_person(store):
    store.add(hourly("a", "usual", 0), now=T0)
    for n in range(1, 4):
        run(store, T0 + n * HOUR)  # 100 ms each
    store.claim(uuid4(), 1, now=T0 + 4 * HOUR, lease=HOUR)
    store.webhooks.add(url="https://me:pw@hooks.example/x", events=["job.failed"])
    with psycopg.connect(store.database.url) as connection:
        connection.execute("UPDATE evenbeat.webhooks SET failing_since = %s", [T0 + HOUR])

    def told(now: datetime) -> dict[str, str]:
        return {one.rule.name: one.title for one in alerts(store.database.rows, now)}

    assert "over_usual" not in told(T0 + 4 * HOUR + timedelta(seconds=50))
    later = told(T0 + 4 * HOUR + 2 * MINUTE)
    assert later["over_usual"] == "Far over the usual time: 1 run of 'a'"
    assert later["webhooks_failing"] == (
        "Webhook deliveries to hooks.example fail: 0 messages wait"
    )


def test_lost_runs_count_as_lost(store):
    store.add(hourly("a", "loses", 0), now=T0)
    run(store, T0 + HOUR, LOST)
    store.upkeep.count_outcomes(now=T0 + 2 * HOUR)
    assert sum(hour.lost for hour in store.read.hourly(now=T0 + 2 * HOUR)) == 1


# -- the timeline ----------------------------------------------------------------------------------


def test_the_timeline_holds_what_overlaps_the_period(store):
    for phase in range(6):
        store.add(hourly("a", f"r{phase}", phase), now=T0)
    hour = T0 + HOUR
    run(store, hour, ended=hour + 30 * MINUTE)
    run(store, hour + MINUTE, ended=hour + 2 * MINUTE)
    (long,) = store.claim(WORKER, 1, now=hour + 2 * MINUTE)
    run(store, hour + 11 * MINUTE, FAILED)
    (running,) = store.claim(WORKER, 1, now=hour + 12 * MINUTE)
    run(store, hour + 21 * MINUTE)
    bars = store.read.timeline(hour + 10 * MINUTE, hour + 20 * MINUTE)
    assert [(bar.name, bar.status) for bar in bars] == [
        ("r4", "running"), ("r3", "failed"), ("r2", "running"), ("r0", "completed"),
    ]  # fmt: skip
    assert {bars[0].id, bars[2].id} == {running.lock_token, long.lock_token}
    assert len(store.read.timeline(hour, hour + HOUR, limit=2)) == 2


@pytest.mark.parametrize(
    ("since", "until", "message"),
    [
        (T0, T0, "since must be before until"),
        (T0.replace(tzinfo=None), T0, "has no time zone"),
        (T0, (T0 + HOUR).replace(tzinfo=None), "has no time zone"),
    ],
)
def test_a_period_that_is_none_is_refused(store, since, until, message):
    with pytest.raises(InvalidInput, match=message):
        store.read.timeline(since, until)


# -- what there is to run --------------------------------------------------------------------------


def crunch(data: list[float]) -> None: ...


def test_workers_make_known_what_they_can_run(evenbeat_harness):
    app = Evenbeat()

    @app.task(queue="mail")
    async def send(to: str, copies: int = 1, *, ctx: Context) -> None:
        """Send a letter."""

    @app.task
    def count() -> None: ...

    app.task(crunch, isolate=True)
    harness = evenbeat_harness(app)
    now = harness.clock.now()
    harness.worker.registration.register()
    tasks = {task.name: task for task in app.store.read.tasks(now=now)}
    assert {name: (t.queue, t.runner, t.workers_now) for name, t in tasks.items()} == {
        "send": ("mail", "async", 1),
        "count": ("default", "thread", 1),
        "crunch": ("default", "process", 1),
        "evenbeat:webhook": ("webhooks", "async", 1),
    }
    send_schema = tasks["send"].schema
    assert set(send_schema["properties"]) == {"to", "copies"}
    assert send_schema["required"] == ["to"]
    assert send_schema["additionalProperties"] is False
    assert tasks["send"].doc == "Send a letter."
    assert app.store.read.tasks(now=now + HOUR)[0].workers_now == 0


def test_the_newest_word_on_a_task_counts_and_old_ones_go(store):
    old = [KnownTask("a", "x", "thread", {"v": 1}), KnownTask("b", "x", "async", {})]
    store.upkeep.know_tasks(old, now=T0)
    store.upkeep.know_tasks([KnownTask("a", "y", "async", {"v": 2}, "Doc.")], now=T0 + HOUR)
    known = store.read.tasks(now=T0)
    assert [(t.name, t.queue, t.runner, t.schema, t.doc) for t in known] == [
        ("a", "y", "async", {"v": 2}, "Doc."), ("b", "x", "async", {}, ""),
    ]  # fmt: skip
    assert store.upkeep.forget_tasks(older_than=T0 + HOUR) == 1
    assert [t.name for t in store.read.tasks()] == ["a"]
    store.add(NewJob(JobSpec("a")))
    store.upkeep.count_jobs()
    assert store.upkeep.forget_tasks(older_than=T0 + 2 * HOUR) == 0


def test_a_schema_that_json_cannot_hold_does_not_stop_a_worker(store):
    store.upkeep.know_tasks([KnownTask("odd", "x", "async", {"default": float("nan")}, "a\0b")])
    (task,) = store.read.tasks()
    assert (task.schema, task.doc) == ({"type": "object"}, "ab")


# -- why -------------------------------------------------------------------------------------------


def test_a_job_is_explained_from_what_surrounds_it(store):
    with pytest.raises(NotFound):
        explain(store.read.circumstances(uuid4()))
    first = store.add(NewJob(JobSpec("crawl", queue="web", priority=5)), now=T0).id
    job_id = store.add(NewJob(JobSpec("crawl", queue="web")), now=T0).id
    later = T0 + 2 * MINUTE
    assert explain(store.read.circumstances(job_id, now=later)).facts[0].code == "no_worker"
    beat(store, later, queues=["mail"])
    assert "served are: mail" in explain(store.read.circumstances(job_id, now=later)).summary
    beat(store, later, queues=["web"], tasks=["crawl"])
    told = explain(store.read.circumstances(job_id, now=later))
    assert told.facts[0].code == "due_and_late"
    assert "1 due job of its queue" in told.summary
    assert store.read.circumstances(first, now=later).ahead == 0
    store.control.pause_queue("web", now=T0)
    assert explain(store.read.circumstances(job_id, now=later)).facts[0].code == "queue_paused"
    store.control.resume_queue("web")
    run(store, later, FAILED)
    told = explain(store.read.circumstances(first, now=later))
    assert told.facts[0].code == "waits_for_retry"
    assert "because: no" in told.summary
