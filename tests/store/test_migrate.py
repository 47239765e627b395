"""Migrations: applied once, by whoever comes first, and never backwards."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import psycopg
import pytest

from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.errors import DatabaseUnavailable, InvalidInput, SchemaTooNew, StoreError
from evenbeat.store.health import TableQueries
from evenbeat.store.migrate import (
    Migration,
    _apply,
    _lock,
    migrate,
    migrations,
    schema_version,
)
from evenbeat.store.store import Store
from waiting import wait_for

KNOWN = [step.version for step in migrations()]
NEXT = KNOWN[-1] + 1

# Another process: says when it is ready, and migrates when it is told to.
MIGRATOR = """
import sys
from evenbeat.store.migrate import migrate
print("ready", flush=True)
sys.stdin.readline()
print(migrate(sys.argv[1], "evenbeat"), flush=True)
"""


def applied(url: str, schema: str = "evenbeat") -> list[int]:
    with psycopg.connect(url) as connection:
        rows = connection.execute(f'SELECT version FROM "{schema}".migrations ORDER BY version')  # noqa: S608
        return [row[0] for row in rows]


def test_the_migrations_are_numbered_without_gaps():
    assert list(range(1, len(KNOWN) + 1)) == KNOWN


def test_ten_processes_that_start_together_migrate_once(empty_database_url):
    command = [sys.executable, "-W", "error", "-c", MIGRATOR, empty_database_url]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(10)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=60)[0].strip() for process in processes]
    assert [process.returncode for process in processes] == [0] * 10
    assert sorted(number for answer in answers for number in json.loads(answer)) == KNOWN
    assert applied(empty_database_url) == KNOWN


def test_who_waited_for_another_process_sees_what_it_made(empty_database_url, monkeypatch):
    """A transaction that waits for an advisory lock has looked names up before: what it remembers
    of a schema that was not there yet is no answer any more."""
    step = Migration(1, "small", "CREATE FUNCTION evenbeat.small() RETURNS int RETURN 1")
    monkeypatch.setattr("evenbeat.store.migrate.migrations", lambda: [step])
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with (
        psycopg.connect(empty_database_url, autocommit=True) as first,
        ThreadPoolExecutor(1) as second,
    ):
        with first.transaction():
            _lock(first, "evenbeat")
            answer = second.submit(migrate, empty_database_url, "evenbeat")
            wait_for(lambda: first.execute(waiting).fetchone() == (1,), "the second")
            assert _apply(first, "evenbeat", step)
        assert answer.result(timeout=30) == []


def test_a_second_run_applies_nothing(empty_database_url):
    assert migrate(empty_database_url, "evenbeat") == KNOWN
    assert migrate(empty_database_url, "evenbeat") == []
    with psycopg.connect(empty_database_url) as connection:
        assert schema_version(connection, "evenbeat") == KNOWN[-1]
        assert schema_version(connection, "elsewhere") == 0


def test_a_database_of_a_newer_evenbeat_is_refused_with_both_versions(empty_database_url):
    migrate(empty_database_url, "evenbeat")
    with psycopg.connect(empty_database_url) as connection:
        connection.execute("INSERT INTO evenbeat.migrations VALUES (977, 'from_the_future')")
    with pytest.raises(SchemaTooNew, match=rf"at version 977.*up to {KNOWN[-1]}\."):
        migrate(empty_database_url, "evenbeat")


FUTURE = "INSERT INTO evenbeat.migrations (version, name, oldest_code) VALUES (977, 'future', %s)"


def test_a_newer_schema_that_this_code_can_use_is_used(empty_database_url):
    store = Store(empty_database_url, timeout=10)
    tables = TableQueries(store.database)
    store.migrate()
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute(FUTURE, (KNOWN[-1],))
        assert store.migrate() == []
        assert tables.schema_complaint() is None
        connection.execute("UPDATE evenbeat.migrations SET oldest_code = 977 WHERE version = 977")
    with pytest.raises(SchemaTooNew):
        store.migrate()
    assert "upgrade Evenbeat" in tables.schema_complaint()
    store.close()


def test_a_migration_says_which_code_can_go_on(empty_database_url):
    migrate(empty_database_url, "evenbeat")
    with psycopg.connect(empty_database_url) as connection:
        rows = connection.execute("SELECT version, oldest_code FROM evenbeat.migrations").fetchall()
    assert sorted(rows)[:2] == [(1, 1), (2, 1)]
    assert Migration(9, "silent", "SELECT 1").oldest_code == 9


def test_a_schema_that_was_made_with_another_form_of_a_migration_is_not_migrated(behind):
    with psycopg.connect(behind) as connection:
        connection.execute("UPDATE evenbeat.migrations SET fingerprint = 'x' WHERE version = 2")
    with pytest.raises(StoreError, match="its migration 2 is not the one of this Evenbeat"):
        migrate(behind, "evenbeat")


def test_comments_and_spaces_do_not_change_a_migration():
    plain = Migration(1, "a", "SELECT 1, 2;")
    assert Migration(1, "a", "-- why\nSELECT 1,\n    2;  -- two\n").fingerprint == plain.fingerprint
    assert Migration(1, "a", "SELECT 1, 3;").fingerprint != plain.fingerprint


@pytest.fixture
def two_stores(empty_database_url: str, empty_direct_url: str) -> Iterator[tuple[Store, Store]]:
    stores = (
        Store(empty_database_url, schema="evenbeat", timeout=10, listen_url=empty_direct_url),
        Store(empty_database_url, schema="my_app", timeout=10, listen_url=empty_direct_url),
    )
    yield stores
    for store in stores:
        store.close()


def test_two_schemas_of_one_database_know_nothing_of_each_other(two_stores):
    one, other = two_stores
    assert [store.migrate() for store in two_stores] == [KNOWN, KNOWN]
    added = one.add(NewJob(JobSpec("noop"), name="same"))
    assert other.read.jobs().total == 0
    assert other.claim(uuid4(), 9) == []
    with one.listen() as listener:
        again = other.add_many([NewJob(JobSpec("noop"), name="same")])[0]
        assert again.created
        assert listener.wait(0.05) == []
    (job,) = one.claim(uuid4(), 9)
    assert job.id == added.id
    other.control.cancel([again.id, added.id])
    assert one.read.counts_by_status() == {"running": 1}
    assert other.read.counts_by_status() == {"cancelled": 1}


def test_every_object_of_another_schema_lies_in_it(two_stores, empty_database_url):
    _, other = two_stores
    other.migrate()
    with psycopg.connect(empty_database_url) as connection:
        rows = connection.execute(
            """SELECT DISTINCT nspname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
               WHERE nspname !~ '^pg_|^information_schema'
               UNION SELECT nspname FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace
               WHERE nspname !~ '^pg_|^information_schema'"""
        )
        assert rows.fetchall() == [("my_app",)]


@pytest.mark.parametrize("schema", ["evenbeat", "my_app", "Odd Name-2"])
def test_a_schema_that_is_there_already_is_filled(empty_database_url, schema):
    with psycopg.connect(empty_database_url) as connection:
        connection.execute(f'CREATE SCHEMA "{schema}"')
    assert migrate(empty_database_url, schema) == KNOWN
    assert applied(empty_database_url, schema) == KNOWN


def test_a_migration_that_fails_leaves_nothing_behind(empty_database_url):
    with psycopg.connect(empty_database_url) as connection:
        connection.execute("CREATE SCHEMA evenbeat CREATE TABLE chores (mine text)")
    with pytest.raises(psycopg.errors.DuplicateTable):
        migrate(empty_database_url, "evenbeat")
    with psycopg.connect(empty_database_url) as connection:
        assert connection.execute("SELECT to_regclass('evenbeat.jobs')").fetchone() == (None,)
        connection.execute("DROP TABLE evenbeat.chores")
    assert migrate(empty_database_url, "evenbeat") == KNOWN


# -- no database ---------------------------------------------------------------------------------

NOBODY = "postgresql://someone:geheim@127.0.0.1:1/nothing"


@pytest.mark.parametrize(
    "use",
    [
        lambda store: store.migrate(),
        lambda store: store.clock(),
        lambda store: store.read.jobs(),
        lambda store: store.add(NewJob(JobSpec("noop"))),
        lambda store: store.add_many([NewJob(JobSpec("noop"))]),
        lambda store: store.control.resume([uuid4()]),
        lambda store: store.listen(),
    ],
    ids=["migrate", "clock", "read", "add", "add_many", "resume", "listen"],
)
def test_a_server_that_is_not_there_is_named_without_the_password(use, caplog):
    store = Store(NOBODY, timeout=0.2)
    with pytest.raises(DatabaseUnavailable) as caught:
        use(store)
    store.close()
    assert "geheim" not in str(caught.value) + caplog.text


@pytest.mark.parametrize(
    "url",
    [
        "postgresql//me:geheim@host/db",
        "postgresql://me:ge heim@host/db",
        "postgresql://%zz:geheim@h",
    ],
)
def test_a_url_that_cannot_be_read_is_refused_without_the_password(url):
    with pytest.raises(InvalidInput, match="percent-encoded") as caught:
        Store(url)
    assert not re.search("ge ?heim", str(caught.value))
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_a_transaction_that_is_cut_off_says_so(store, connect):
    admin = connect()

    def work(connection: psycopg.Connection) -> None:
        # Asked of the server: behind a pooler, the driver knows another number.
        pid = connection.execute("SELECT pg_backend_pid()", prepare=False).fetchone()
        admin.execute("SELECT pg_terminate_backend(%s)", pid)
        connection.execute("SELECT 1")

    with pytest.raises(DatabaseUnavailable, match="cannot be reached"):
        store.database.atomically(work)
    assert store.clock()


@pytest.fixture
def behind(empty_database_url, monkeypatch) -> str:
    """A database of the version before, which workers of that version may be using."""
    migrate(empty_database_url, "evenbeat")
    tables = ("jobs", "executions")
    text = "".join(f"ALTER TABLE evenbeat.{name} ADD COLUMN x int;" for name in tables)
    newer = [*migrations(), Migration(NEXT, "next", text)]
    monkeypatch.setattr("evenbeat.store.migrate.migrations", lambda: newer)
    monkeypatch.setattr("evenbeat.store.migrate.PAUSE_SECONDS", 0.2)
    return empty_database_url


def wait_for_lock(url: str, table: str) -> None:
    with psycopg.connect(url, autocommit=True) as watcher:
        while not watcher.execute(
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = %s::regclass",
            (f"evenbeat.{table}",),
        ).fetchone()[0]:
            pass


def test_a_deadlock_with_a_worker_costs_a_migration_a_second_try(behind, empty_direct_url):
    with psycopg.connect(empty_direct_url) as worker, ThreadPoolExecutor(1) as pool:
        worker.execute("SET deadlock_timeout = '1h'")  # so that it is the migration that gives way
        worker.execute("LOCK TABLE evenbeat.executions IN ROW EXCLUSIVE MODE")
        migrating = pool.submit(migrate, behind, "evenbeat")
        wait_for_lock(empty_direct_url, "executions")
        worker.execute("LOCK TABLE evenbeat.jobs IN ROW EXCLUSIVE MODE")
        worker.commit()
        assert migrating.result(timeout=30) == [NEXT]
    assert applied(behind) == [*KNOWN, NEXT]


@pytest.mark.parametrize(
    ("table", "work"),
    [
        ("jobs", "UPDATE evenbeat.jobs SET priority = 1"),
        ("migrations", "SELECT max(version) FROM evenbeat.migrations"),
    ],
)
def test_a_migration_that_waits_for_a_dump_does_not_hold_up_the_workers(
    behind, empty_direct_url, monkeypatch, table, work
):
    monkeypatch.setattr("evenbeat.store.migrate.LOCK_SECONDS", 0.3)
    monkeypatch.setattr("evenbeat.store.migrate.ATTEMPTS", 100)
    with (
        psycopg.connect(empty_direct_url) as dump,
        psycopg.connect(empty_direct_url, autocommit=True) as worker,
        ThreadPoolExecutor(1) as pool,
    ):
        dump.execute(f"SELECT count(*) FROM evenbeat.{table}")  # noqa: S608
        worker.execute("SET lock_timeout = '20s'")
        migrating = pool.submit(migrate, behind, "evenbeat")
        wait_for_lock(empty_direct_url, table)
        worker.execute(work)
        assert not migrating.done()
        dump.commit()
        assert migrating.result(timeout=30) == [NEXT]


def test_a_migration_that_finds_no_moment_says_who_may_be_in_its_way(behind, monkeypatch):
    monkeypatch.setattr("evenbeat.store.migrate.LOCK_SECONDS", 0.05)
    monkeypatch.setattr("evenbeat.store.migrate.ATTEMPTS", 2)
    with psycopg.connect(behind) as dump:
        dump.execute("SELECT count(*) FROM evenbeat.jobs")
        with pytest.raises(DatabaseUnavailable, match="long transactions"):
            migrate(behind, "evenbeat")
    assert migrate(behind, "evenbeat") == [NEXT]
