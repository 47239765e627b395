"""The pool lends what it has, opens what is missing, and loses nothing whatever goes wrong."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, ClassVar

import psycopg
import pytest

from evenbeat.store.pool import NoConnection, Pool
from evenbeat.store.timed import TimedConnection

NOBODY = "host=127.0.0.1 port=1 dbname=none"


class Counted(TimedConnection):
    """Counts the connections that were opened; `away` many attempts find nobody at home."""

    away = 0
    attempts = 0
    opened: ClassVar[list["Counted"]] = []

    @classmethod
    def connect(cls, conninfo: str = "", **options: Any) -> "Counted":
        cls.attempts += 1
        if cls.away:
            cls.away -= 1
            conninfo = NOBODY
        connection = super().connect(conninfo, **options)
        cls.opened.append(connection)
        return connection


@pytest.fixture
def counted():
    Counted.away = Counted.attempts = 0
    Counted.opened = []
    yield Counted
    Counted.away = 0
    for connection in Counted.opened:
        connection.close()


@pytest.fixture
def make_pool(counted, database_url):
    pools = []

    def make(size: int, url: str = database_url) -> Pool[Counted]:
        options = {"autocommit": True, "prepare_threshold": None}
        pools.append(Pool(url, counted, size, options=options, configure=lambda _: None))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


@pytest.fixture
def pool(make_pool):
    return make_pool(2)


def kill(victim: psycopg.Connection[Any], url: str) -> None:
    with psycopg.connect(url) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (victim.info.backend_pid,))


def test_one_user_needs_one_connection(pool, counted):
    for _ in range(20):
        pool.give(pool.take(10))
    assert len(counted.opened) == 1
    figures = pool.figures()
    assert figures.pop("waited_seconds") < 10  # for the first to be opened
    assert figures == {"open": 1, "most": 2, "idle": 1, "waiting": 0, "failed": 0}


def test_when_all_are_lent_one_waits_and_gets_the_next(pool):
    lent = [pool.take(10), pool.take(10)]
    with ThreadPoolExecutor() as threads:
        waiter = threads.submit(pool.take, 30)
        while not pool.figures()["waiting"]:
            time.sleep(0.005)
        pool.give(lent[0])
        assert waiter.result(timeout=30) is lent[0]


def test_who_waits_in_vain_is_told(pool):
    lent = [pool.take(10), pool.take(10)]
    with pytest.raises(NoConnection, match="None of 2 connections to the database was free"):
        pool.take(0.05)
    assert pool.figures()["failed"] == 1
    pool.give(lent[0])
    assert pool.take(10) is lent[0]


def test_one_that_broke_is_replaced_and_its_fellows_are_not_trusted(make_pool, direct_url):
    pool = make_pool(2, direct_url)
    broken, fellow = pool.take(10), pool.take(10)
    pool.give(fellow)
    kill(broken, direct_url)
    with pytest.raises(psycopg.OperationalError):
        broken.execute("SELECT 1")
    pool.give(broken)
    assert fellow.closed
    fresh = pool.take(10)
    assert fresh not in (broken, fellow)
    assert fresh.execute("SELECT 1").fetchall() == [(1,)]


@pytest.mark.parametrize("statement", ["SELECT 1", "SELECT 1 / 0"])
def test_one_given_back_in_a_transaction_is_lent_without_it(make_pool, statement):
    pool = make_pool(1)
    lent = pool.take(10)
    lent.autocommit = False
    with suppress(psycopg.errors.DivisionByZero):
        lent.execute(statement)
    pool.give(lent)
    again = pool.take(10)
    assert again.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def test_a_database_that_is_away_is_tried_again(pool, counted):
    counted.away = 3
    pool.give(pool.take(30))
    assert counted.attempts >= 4


def test_one_that_stays_away_is_told_with_its_reason_and_costs_no_connection(
    make_pool, counted, database_url
):
    away = make_pool(2, NOBODY)
    for _ in range(3):
        with pytest.raises(NoConnection, match="refused"):
            away.take(0.2)
    assert away.figures()["failed"] == 3
    pool = make_pool(2)
    counted.away = 1
    assert pool.take(30) is not pool.take(30)


def test_closing_wakes_who_waits_and_closes_what_comes_back(pool):
    lent, idle = pool.take(10), pool.take(10)
    with ThreadPoolExecutor() as threads:
        waiter = threads.submit(pool.take, 60)
        while not pool.figures()["waiting"]:
            time.sleep(0.005)
        pool.close()
        with pytest.raises(NoConnection, match="closed"):
            waiter.result(timeout=30)
    for connection in (lent, idle):
        assert not connection.closed
        pool.give(connection)
        assert connection.closed
    with pytest.raises(NoConnection, match="closed"):
        pool.take(1)


def test_closing_ends_an_attempt_to_open(make_pool, counted):
    pool = make_pool(1, NOBODY)
    with ThreadPoolExecutor() as threads:
        opener = threads.submit(pool.take, 60)
        while not counted.attempts:
            time.sleep(0.005)
        pool.close()
        with pytest.raises(NoConnection, match="closed"):
            opener.result(timeout=30)


def test_many_threads_never_have_more_than_there_are(make_pool):
    pool, most, lent, counting = make_pool(3), 0, set[int](), threading.Lock()

    def use(n: int) -> None:
        nonlocal most
        for turn in range(60):
            connection = pool.take(30)
            pid = connection.info.backend_pid
            with counting:
                assert pid not in lent, "two have the same one"
                lent.add(pid)
                most = max(most, len(lent))
            if (n, turn) == (3, 30):
                connection.close()  # one of them breaks
            else:
                connection.execute("SELECT 1")
            with counting:
                lent.discard(pid)
            pool.give(connection)

    with ThreadPoolExecutor(12) as threads:
        list(threads.map(use, range(12)))
    assert most == 3
    assert pool.figures()["waiting"] == 0


def test_a_process_with_many_open_files_still_gets_connections(make_pool):
    """`select` cannot look at what is numbered beyond 1023."""
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    pool = make_pool(1)
    try:
        for _ in range(3):
            connection = pool.take(10)
            assert connection.fileno() > 1023
            pool.give(connection)
    finally:
        for file in files:
            os.close(file)
