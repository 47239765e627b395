"""A database that is away, demoted, restarted or silent: what callers see, and what is logged."""

import logging
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from uuid import uuid4

import pytest

from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.errors import DatabaseUnavailable, StatementTimeout
from evenbeat.store.lists import JobFilter
from evenbeat.store.pool import Availability, NoConnection, connect_options
from evenbeat.store.store import Store
from proxy import Proxy, read_only, terminate_sessions
from waiting import wait_for

JOB = NewJob(JobSpec("noop"))


@pytest.fixture
def proxy(database_url: str) -> Iterator[Proxy]:
    proxy = Proxy(database_url)
    yield proxy
    proxy.close()


def test_connections_lead_to_a_server_that_takes_writes_and_notice_when_it_vanishes():
    options = connect_options("postgresql://host/name")
    assert options["target_session_attrs"] == "read-write"
    assert options["keepalives_idle"] + 3 * options["keepalives_interval"] <= 15
    assert options["tcp_user_timeout"] <= 15_000


def test_the_url_and_the_environment_go_first(monkeypatch):
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "20")
    options = connect_options("postgresql://host/name?target_session_attrs=any&keepalives_idle=60")
    assert {"connect_timeout", "target_session_attrs", "keepalives_idle"}.isdisjoint(options)
    assert "tcp_user_timeout" in options


def test_a_server_that_refuses_writes_is_away_and_changes_nothing(store):
    store.add(JOB)
    with read_only(store.database.url):
        short = Store(store.database.url, timeout=0.5)
        with pytest.raises(NoConnection, match="read-only"):
            short.add(JOB)
        short.close()
    wait_for(lambda: store.add(JOB), "it takes writes again")
    assert len(store.read.ids(JobFilter())) == 2


def test_a_write_waits_for_the_end_of_a_short_read_only_spell(store):
    store.add(JOB)
    with read_only(store.database.url):
        added: list[object] = []
        thread = threading.Thread(target=lambda: added.append(store.add(JOB)))
        thread.start()
        time.sleep(1)
        assert not added
    thread.join(30)
    assert len(added) == 1


def test_the_first_statement_after_a_restart_does_not_fail(store):
    store.add(JOB)
    terminate_sessions(store.database.url)
    assert store.add(JOB).created


def test_a_server_that_says_nothing_is_given_up_and_the_next_connection_works(proxy):
    store = Store(proxy.url, timeout=10, answer_seconds=1.0)
    store.add(JOB)
    proxy.fall_silent()
    begun = time.monotonic()
    with pytest.raises(DatabaseUnavailable, match="no answer for 1 s"):
        store.add(JOB)
    assert time.monotonic() - begun < 5
    assert store.add(JOB).created
    store.close()


@pytest.mark.skipif(
    "EVENBEAT_TEST_POOLER" in os.environ, reason="whom to ask is the pooler's secret"
)
def test_a_read_that_a_dead_connection_swallowed_is_repeated_and_a_slow_one_is_not(proxy):
    store = Store(proxy.url, timeout=10, answer_seconds=1.0)
    id_ = store.add(JOB).id
    assert store.read.ids(JobFilter()) == [id_]
    proxy.fall_silent()
    begun = time.monotonic()
    assert store.read.ids(JobFilter()) == [id_]
    assert time.monotonic() - begun < 30
    assert store.database.query("slow", "SELECT 1 FROM pg_sleep(3)", {}) == [(1,)]
    store.close()


@pytest.mark.parametrize("pooling", ["auto", "transaction"])
def test_a_statement_that_waits_for_a_lock_is_undone_by_the_server(database_url, connect, pooling):
    store = Store(database_url, answer_seconds=1.0, pooling=pooling)
    dedup = NewJob(JobSpec("noop"), dedup_key="same")
    holder = connect()
    store.add(dedup, connection=holder)
    with pytest.raises(StatementTimeout, match="statement timeout"):
        store.add(dedup)
    holder.rollback()
    assert store.add(dedup).created
    store.close()


def test_a_spell_is_known_while_callers_still_wait_for_a_connection(proxy, database_url, caplog):
    """No statement was under way that could have failed."""
    store = Store(proxy.url, timeout=60)
    store.add(JOB)
    proxy.lead_to("postgresql://nobody@127.0.0.1:1/none")
    proxy.break_all()
    thread = threading.Thread(target=store.add, args=[JOB])
    thread.start()
    availability = store.database.availability
    wait_for(lambda: availability.reason, "the outage is known", 30)
    time.sleep(2.1)  # more than a moment
    proxy.lead_to(database_url)
    thread.join(60)
    assert availability.reason is None
    assert availability.seconds_back < 60
    store.close()
    driver = logging.getLogger("psycopg.pool")
    driver.warning("error connecting in %r: %s", "another pool", "gone")
    assert [r.args for r in caplog.records if r.name == driver.name] == [("another pool", "gone")]


def test_a_spell_is_logged_when_it_begins_and_when_it_is_over(caplog):
    now = [0.0]
    availability = Availability(lambda: now[0])
    for _ in range(100):
        availability.failed("The database cannot be reached (gone).")
    assert availability.reason is not None
    now[0] = 12.0
    assert availability.seconds_away == 12
    availability.answered(wrote=False)
    availability.answered(wrote=True)
    now[0] = 15.0
    assert (availability.reason, availability.seconds_away) == (None, 0)
    assert availability.seconds_back == 3
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == [
        "The database cannot be reached (gone). Trying on; what has finished is kept.",
        "The database is back after 12.0 s",
    ]


def test_one_connection_that_broke_is_nothing_to_make_up_for():
    now = [0.0]
    availability = Availability(lambda: now[0])
    availability.failed("The database cannot be reached.")
    now[0] = 0.5
    availability.answered(wrote=True)
    assert availability.seconds_back > 1000


def test_reading_does_not_show_that_writes_are_taken_again():
    availability = Availability()
    availability.failed("The database takes no writes right now.", refuses_writes=True)
    availability.answered(wrote=False)
    assert availability.reason is not None
    availability.answered(wrote=True)
    assert availability.reason is None


def _read_in_child(store: Store, mine: list[str], results: "multiprocessing.Queue[bool]") -> None:
    ids = [store.add(NewJob(JobSpec("noop"), {"n": n})).id for n in mine]
    right = all(store.read.job(i).payload == {"n": n} for i, n in zip(ids, mine, strict=True))
    results.put(right)


def test_forked_processes_do_not_read_each_others_answers(store):
    store.add(JOB)  # the pool is open when the process forks
    assert len(store.read.ids(JobFilter())) == 1
    fork = multiprocessing.get_context("fork")
    results: multiprocessing.Queue[bool] = fork.Queue()
    children = [
        fork.Process(
            target=_read_in_child, args=(store, [uuid4().hex for _ in range(2000)], results)
        )
        for _ in range(4)
    ]
    for child in children:
        child.start()
    _read_in_child(store, [uuid4().hex for _ in range(2000)], results)
    for child in children:
        child.join(60)
    assert [results.get(timeout=10) for _ in range(5)] == [True] * 5
    assert [child.exitcode for child in children] == [0] * 4
    assert store.add(JOB).created
