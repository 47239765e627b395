"""The database itself refuses what cannot be, whoever writes it."""

from uuid import uuid4

import psycopg
import pytest

LEASE = "lock_token = gen_random_uuid(), locked_by = gen_random_uuid(), lock_expires_at = now()"
INTERVAL = "schedule_kind = 'interval', interval_seconds = 60, anchor_at = now()"

# Every row starts as a plain pending job; each case changes it into something impossible.
IMPOSSIBLE_JOBS = [
    ("status_is_known", "status = 'sleeping'"),
    ("running_has_lease_and_others_none", "status = 'running'"),
    ("running_has_lease_and_others_none", f"status = 'pending', {LEASE}"),
    ("running_has_lease_and_others_none", f"status = 'completed', {LEASE}"),
    ("running_has_lease_and_others_none", f"status = 'paused', is_paused = true, {LEASE}"),
    ("running_has_lease_and_others_none", f"status = 'running', {LEASE}, lock_expires_at = NULL"),
    ("running_has_lease_and_others_none", f"status = 'running', {LEASE}, locked_by = NULL"),
    ("running_has_lease_and_others_none", "lock_expires_at = now()"),
    ("running_has_lease_and_others_none", "locked_by = gen_random_uuid()"),
    ("only_paused_or_running_is_paused", "status = 'paused'"),
    ("only_paused_or_running_is_paused", "is_paused = true"),
    ("only_paused_or_running_is_paused", "status = 'scheduled', is_paused = true"),
    ("only_paused_or_running_is_paused", "status = 'completed', is_paused = true"),
    ("only_paused_or_running_is_paused", "status = 'cancelled', is_paused = true"),
    (
        "scheduled_has_a_time_and_due_has_a_plan",
        "status = 'scheduled', plan_time = NULL, next_run_at = NULL",
    ),
    ("scheduled_has_a_time_and_due_has_a_plan", "plan_time = NULL"),
    ("schedule_is_complete", f"{INTERVAL}, interval_seconds = NULL"),
    ("schedule_is_complete", f"{INTERVAL}, cron_expression = '@daily'"),
    ("schedule_is_complete", "schedule_kind = 'cron'"),
    (
        "schedule_is_complete",
        "schedule_kind = 'cron', cron_expression = '@daily', interval_seconds = 1",
    ),
    ("schedule_is_complete", "schedule_kind = 'once', cron_expression = '@daily'"),
    ("schedule_is_complete", "schedule_kind = 'once', interval_seconds = 60"),
    ("schedule_is_complete", "schedule_kind = 'after', interval_seconds = 60"),
]

POSSIBLE_JOBS = [
    "status = 'scheduled'",
    f"status = 'running', {LEASE}",
    f"status = 'running', is_paused = true, {LEASE}",
    "status = 'paused', is_paused = true",
    "status = 'completed', plan_time = NULL, next_run_at = NULL",
    "priority = 100, aging_bonus = 100",
    f"{INTERVAL}, placement = 'grid'",
    "schedule_kind = 'cron', cron_expression = '@daily'",
    "schedule_kind = 'after', plan_time = NULL, next_run_at = NULL",
]

IMPOSSIBLE_RUNS = [
    ("status_is_known", "status = 'pending', completed_at = now()"),
    ("ended_when_not_running", "completed_at = now()"),
    ("ended_when_not_running", "status = 'completed'"),
    ("ended_when_not_running", "status = 'failed'"),
    ("ended_when_not_running", "status = 'cancelled'"),
]


def add_job(connection: psycopg.Connection, **columns: object) -> None:
    names = "".join(f", {name}" for name in columns)
    values = ", %s" * len(columns)
    connection.execute(
        f"""INSERT INTO evenbeat.jobs
            (id, created_at, updated_at, plan_time, next_run_at, status, task{names})
            VALUES (gen_random_uuid(), now(), now(), now(), now(), 'pending', 'noop'{values})""",  # noqa: S608
        tuple(columns.values()),
    )


def change(connection: psycopg.Connection, table: str, assignments: str) -> None:
    # A later assignment of a case replaces an earlier one, as in a dict.
    columns = dict(part.split(" = ", 1) for part in assignments.split(", "))
    settings = ", ".join(f"{name} = {value}" for name, value in columns.items())
    connection.execute(f"UPDATE evenbeat.{table} SET {settings}")  # noqa: S608


@pytest.fixture
def connection(connect):
    connection = connect()
    add_job(connection)
    return connection


@pytest.mark.parametrize(("constraint", "assignments"), IMPOSSIBLE_JOBS)
def test_an_impossible_job_is_refused(connection, constraint, assignments):
    with pytest.raises(psycopg.errors.CheckViolation) as caught:
        change(connection, "jobs", assignments)
    assert caught.value.diag.constraint_name == constraint


@pytest.mark.parametrize("assignments", POSSIBLE_JOBS)
def test_a_possible_job_is_accepted(connection, assignments):
    change(connection, "jobs", assignments)


@pytest.mark.parametrize("column", ["status", "task", "queue", "payload", "metadata", "created_at"])
def test_what_a_job_cannot_do_without_must_be_there(connection, column):
    with pytest.raises(psycopg.errors.NotNullViolation):
        change(connection, "jobs", f"{column} = NULL")


def test_every_constraint_of_jobs_has_a_case(connection):
    query = """SELECT conname FROM pg_constraint
               WHERE conrelid = 'evenbeat.jobs'::regclass AND contype = 'c'"""
    names = {name for (name,) in connection.execute(query)}
    assert names == {constraint for constraint, _ in IMPOSSIBLE_JOBS}


# -- uniqueness ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "index"),
    [
        ({"name": "report"}, "jobs_name"),
        ({"dedup_key": "k"}, "jobs_dedup"),
        ({"parent_id": uuid4()}, "jobs_child"),
    ],
)
def test_what_must_be_one_of_a_kind_is(connection, columns, index):
    add_job(connection, **columns)
    with pytest.raises(psycopg.errors.UniqueViolation) as caught:
        add_job(connection, **columns)
    assert caught.value.diag.constraint_name == index


def test_a_name_is_free_in_another_scope(connection):
    add_job(connection, name="report")
    add_job(connection, name="report", scope_kind="tenant")
    add_job(connection, name="report", scope_id="acme")


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_a_dedup_key_is_free_when_its_job_has_ended(connection, status):
    add_job(connection, dedup_key="k")
    change(connection, "jobs", f"status = '{status}'")
    add_job(connection, dedup_key="k")
    with pytest.raises(psycopg.errors.UniqueViolation):
        change(connection, "jobs", "status = 'pending'")


# -- executions ----------------------------------------------------------------------------------


def add_run(connection: psycopg.Connection, attempt: int = 0, release_count: int = 0) -> None:
    connection.execute(
        """INSERT INTO evenbeat.executions (id, job_id, plan_time, started_at, worker_id,
               execution_number, retry_attempt, release_count, status)
           SELECT gen_random_uuid(), id, plan_time, now(), gen_random_uuid(), 1, %s, %s, 'running'
           FROM evenbeat.jobs""",
        (attempt, release_count),
    )


@pytest.mark.parametrize(("constraint", "assignments"), IMPOSSIBLE_RUNS)
def test_an_impossible_execution_is_refused(connection, constraint, assignments):
    add_run(connection)
    with pytest.raises(psycopg.errors.CheckViolation) as caught:
        change(connection, "executions", assignments)
    assert caught.value.diag.constraint_name == constraint


def test_an_occurrence_has_one_run_for_each_attempt(connection):
    for attempt, release_count in [(0, 0), (0, 1), (1, 0)]:
        add_run(connection, attempt, release_count)
    with pytest.raises(psycopg.errors.UniqueViolation) as caught:
        add_run(connection, 1, 0)
    assert caught.value.diag.constraint_name == "one_run_per_attempt"


def test_a_worker_is_active_or_draining(connection):
    with pytest.raises(psycopg.errors.CheckViolation):
        connection.execute(
            """INSERT INTO evenbeat.workers (id, host, pid, process_started_at, version,
                   concurrency, status, started_at, heartbeat_at)
               VALUES (gen_random_uuid(), 'h', 1, 0, '1', 1, 'asleep', now(), now())"""
        )
