"""The doctor finds each ailment on a real database that has it, and a healthy one healthy."""

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.observe import doctor
from evenbeat.observe.doctor import (
    OLDEST_SERVER,
    CheckContext,
    Finding,
    check,
    clock_skew,
    replication_slots,
    server,
    worst,
)
from evenbeat.store.migrate import migrations
from evenbeat.store.store import Store
from evenbeat.store.upkeep import NewWorker
from waiting import wait_for

MINUTE = timedelta(minutes=1)
NEWEST = migrations()[-1].version
Connect = Callable[[], psycopg.Connection]


def found(url: str, code: str, **options: object) -> list[Finding]:
    return [f for f in check(url, **options) if f.code == code]  # type: ignore[arg-type]


def one(url: str, code: str, **options: object) -> Finding:
    (finding,) = found(url, code, **options)
    return finding


def work(store: Store, **options: object) -> None:
    """A worker that has just said it lives, and chores that were just done."""
    store.upkeep.register_worker(NewWorker(uuid4(), "host/x", 42, 0.0, "1", 10, **options))  # type: ignore[arg-type]
    for name in ("figures", "aging", "retention"):
        with store.upkeep.chore(name, uuid4(), every=MINUTE):
            pass


def test_a_healthy_database_has_nothing_but_ok(store, database_url):
    work(store)
    findings = check(database_url)
    assert [f for f in findings if f.severity != "ok"] == []
    assert worst(findings) == "ok"
    codes = {f.code for f in findings}
    assert {"database_reachable", "server_version", "schema_version", "clock_skew"} <= codes
    assert {"connections", "long_transaction", "dead_rows", "size", "workers"} <= codes
    assert {"on_time", "leases", "chores"} <= codes


def test_no_workers_and_neglected_chores(database_url):
    assert one(database_url, "no_workers").severity == "error"
    assert "evenbeat worker" in one(database_url, "no_workers").remedy
    assert "figures, aging, retention" in one(database_url, "chores_neglected").title
    assert worst(check(database_url)) == "error"


def test_a_silent_worker(store, database_url):
    work(store)
    later = store.clock() + 10 * MINUTE
    finding = one(database_url, "silent_worker", now=later)
    assert "No heartbeat from host (pid 42) for" in finding.title
    assert one(database_url, "no_workers", now=later)


@pytest.mark.parametrize(
    ("queues", "tasks", "served"),
    [
        (None, None, True),
        (["mail"], None, False),
        (["web"], ["other"], False),
        (["web"], ["crawl"], True),
    ],
)
def test_due_jobs_that_no_worker_takes(store, database_url, queues, tasks, served):
    work(store, queues=queues, tasks=tasks)
    store.add_many([NewJob(JobSpec("crawl", queue="web"))] * 3, now=store.clock() - MINUTE)
    unserved = found(database_url, "unserved")
    if served:
        assert not unserved
        return
    assert "'crawl' from the queue 'web'" in unserved[0].title
    assert unserved[0].detail.startswith("3 jobs due, the oldest for 1 m")


def test_late_jobs_and_paused_queues(store, database_url):
    work(store)
    store.add(NewJob(JobSpec("crawl")), now=store.clock() - 6 * MINUTE)
    assert one(database_url, "late").severity == "warning"
    store.control.pause_queue("default")
    assert not found(database_url, "late")
    assert "'default' is paused" in one(database_url, "queue_paused").title


def test_expired_leases_that_nobody_reaped(store, database_url):
    store.add(NewJob(JobSpec("crawl")), now=store.clock() - 10 * MINUTE)
    store.claim(uuid4(), 1, now=store.clock() - 5 * MINUTE)
    finding = one(database_url, "stale_leases")
    assert finding.title.startswith("1 run lost the worker")
    assert finding.severity == "error"


def test_a_transaction_held_open(database_url, connect: Connect, monkeypatch):
    holder = connect()
    holder.execute("CREATE TEMPORARY TABLE mine (n int)")
    assert one(database_url, "long_transaction").severity == "ok"
    monkeypatch.setattr(doctor, "LONG_TRANSACTION", timedelta(0))
    finding = one(database_url, "long_transaction")
    assert finding.severity == "error"
    assert f"pg_terminate_backend({holder.info.backend_pid})" in finding.remedy
    assert "keeps vacuum" in finding.detail
    holder.commit()
    assert one(database_url, "long_transaction").severity == "ok"


def test_a_prepared_transaction(database_url, connect: Connect, monkeypatch):
    holder = connect()
    (allowed,) = holder.execute("SELECT current_setting('max_prepared_transactions')").fetchone()
    holder.rollback()
    if allowed == "0":
        assert not found(database_url, "prepared_transaction")
        return
    holder.tpc_begin("left-behind")
    holder.tpc_prepare()
    monkeypatch.setattr(doctor, "LONG_TRANSACTION", timedelta(0))
    assert found(database_url, "prepared_transaction")
    holder.tpc_rollback()


def test_a_replication_slot_that_falls_behind():
    class Known:
        schema = "evenbeat"

        def slots(self) -> list[tuple[str, bool, int]]:
            return [("near", True, 10), ("far", False, 2_000_000)]

    (finding,) = replication_slots(CheckContext(Known(), None, None, timedelta(0)))  # type: ignore[arg-type]
    assert "pg_drop_replication_slot('far')" in finding.remedy


def test_dead_rows(store, database_url, connect: Connect, monkeypatch):
    store.add_many([NewJob(JobSpec("crawl"))] * 50)
    connection = connect()
    connection.autocommit = True
    connection.execute("UPDATE evenbeat.jobs SET updated_at = now()")
    connection.execute("DELETE FROM evenbeat.jobs")
    connection.close()  # what a session has done is told when it ends
    assert {f.severity for f in found(database_url, "dead_rows")} == {"ok"}
    monkeypatch.setattr(doctor, "DEAD_ROWS", 10)

    def warning() -> Finding | None:  # sessions that a pooler keeps tell a little later
        jobs = [f for f in found(database_url, "dead_rows") if f.title[:4] == "jobs"]
        return next((f for f in jobs if f.severity == "warning"), None)

    assert 'VACUUM "evenbeat".jobs' in wait_for(warning, "the warning").remedy


def test_connections_that_run_out(database_url, monkeypatch):
    monkeypatch.setattr(doctor, "CONNECTIONS_SHARE", 0.0)
    finding = one(database_url, "connections")
    assert finding.severity == "warning"
    assert "pool_size" in finding.remedy


@pytest.mark.parametrize(("ahead", "words"), [(90, "1 min 30 s ahead of"), (-3, "3 s behind")])
def test_a_clock_that_is_off(ahead, words):
    (finding,) = clock_skew(CheckContext(None, None, None, timedelta(seconds=-ahead)))  # type: ignore[arg-type]
    assert finding.severity == "warning"
    assert words in finding.title


# -- the schema: missing, old, new -----------------------------------------------------------------


def test_a_database_in_which_evenbeat_has_never_been(empty_database_url):
    finding = one(empty_database_url, "schema_missing")
    assert "evenbeat migrate" in finding.remedy
    codes = {f.code for f in check(empty_database_url)}
    assert not codes & {"no_workers", "check_failed"}
    assert one(empty_database_url, "schema_missing", schema="other")


@pytest.mark.parametrize(
    ("change", "code", "remedy"),
    [
        ("UPDATE evenbeat.migrations SET version = %s - 1000 WHERE version = %s", "schema_behind",
         "evenbeat migrate"),
        ("UPDATE evenbeat.migrations SET version = %s + 1000, oldest_code = 99 WHERE version = %s",
         "schema_newer", "Upgrade the package"),
    ],
)  # fmt: skip
def test_a_schema_of_another_version(empty_database_url, change, code, remedy):
    store = Store(empty_database_url)
    store.migrate()
    store.close()
    with psycopg.connect(empty_database_url) as connection:
        connection.execute(change.encode(), (NEWEST,) * change.count("%s"))
    finding = one(empty_database_url, code)
    assert finding.severity == "error"
    assert remedy in finding.remedy
    assert not found(empty_database_url, "schema_version")


def test_a_server_that_is_too_old(database_url):
    class Old:
        version_number = OLDEST_SERVER - 1
        version = "13.9"
        is_standby = False

    _, finding = server(CheckContext(None, Old(), None, timedelta(0)))  # type: ignore[arg-type]
    assert (finding.code, finding.severity) == ("server_too_old", "error")


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("postgresql://u:secret@127.0.0.1:1/x?connect_timeout=1", "database_unreachable"),
        ("postgresql://u:sec%ret@h/x", "database_url"),
        ("nonsense secret", "database_url"),
    ],
)
def test_a_database_that_cannot_be_had_is_one_finding_without_the_password(url, code):
    (finding,) = check(url)
    assert (finding.code, finding.severity) == (code, "error")
    assert "secret" not in str(finding)


def test_every_finding_has_its_words_and_every_word_a_finding():
    source = Path(doctor.__file__).read_text()
    assert [name for name in doctor.texts() if f'"{name}"' not in source] == []
    used = set(re.findall(r'_finding\(\s*"(\w+)"', source))
    assert used <= doctor.texts().keys()
