"""The pool lends what it has, opens what is missing, and loses no permit whatever goes wrong."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psycopg
import pytest

from evenbeat.store import pool as pool_module
from evenbeat.store.pool import NoConnection, Pool, Pooled

NOBODY = "host=127.0.0.1 port=1 dbname=none"


class Doorway:
    """Opens real connections and counts them; `away` many attempts find nobody at home."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.opened: list[Pooled] = []
        self.asked: list[float] = []
        self.away = 0

    def __call__(self, seconds: float) -> Pooled:
        self.asked.append(seconds)
        if self.away:
            self.away -= 1
            return Pooled.connect(NOBODY)
        connection = Pooled.connect(self.url, autocommit=True)
        self.opened.append(connection)
        return connection


@pytest.fixture
def doorway(database_url):
    doorway = Doorway(database_url)
    yield doorway
    for connection in doorway.opened:
        connection.close()


@pytest.fixture
def pool(doorway):
    pool = Pool(doorway, 2)
    yield pool
    pool.close()


def kill(victim: Pooled, url: str) -> None:
    with psycopg.connect(url) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (victim.info.backend_pid,))


def test_the_one_given_back_last_is_lent_first(pool, doorway):
    first, second = pool.take(1), pool.take(1)
    pool.give(first)
    pool.give(second)
    assert pool.take(1) is second
    assert pool.take(1) is first
    assert len(doorway.opened) == 2


def test_one_user_needs_one_connection(pool, doorway):
    for _ in range(20):
        pool.give(pool.take(1))
    assert len(doorway.opened) == 1
    assert pool.figures() == {
        "open": 1,
        "most": 2,
        "idle": 1,
        "waiting": 0,
        "waited_seconds": 0.0,
        "failed": 0,
    }


def test_when_all_are_lent_one_waits_and_gets_the_next(pool):
    lent = [pool.take(1), pool.take(1)]
    with ThreadPoolExecutor() as threads:
        waiter = threads.submit(pool.take, 10)
        while not pool.figures()["waiting"]:
            time.sleep(0.005)
        pool.give(lent[0])
        assert waiter.result(timeout=10) is lent[0]
    assert pool.figures()["waited_seconds"] > 0


def test_who_waits_in_vain_is_told(pool):
    lent = [pool.take(1), pool.take(1)]
    with pytest.raises(NoConnection, match="none of 2 connections was free"):
        pool.take(0.05)
    assert pool.figures()["failed"] == 1
    pool.give(lent[0])
    assert pool.take(1) is lent[0]


def test_one_that_broke_is_replaced_and_its_fellows_are_not_trusted(pool, doorway):
    broken, fellow = pool.take(1), pool.take(1)
    pool.give(fellow)
    kill(broken, doorway.url)
    with pytest.raises(psycopg.OperationalError):
        broken.execute("SELECT 1")
    pool.give(broken)
    assert fellow.closed
    fresh = pool.take(1)
    assert fresh not in (broken, fellow)
    assert fresh.execute("SELECT 1").fetchall() == [(1,)]


@pytest.mark.parametrize("statement", ["SELECT 1", "SELECT 1 / 0"])
def test_one_given_back_in_a_transaction_is_not_lent_again(pool, statement):
    lent = pool.take(1)
    lent.autocommit = False
    with suppress(psycopg.errors.DivisionByZero):
        lent.execute(statement)
    pool.give(lent)
    assert lent.closed
    assert pool.take(1) is not lent


def test_an_old_one_is_replaced(pool, monkeypatch):
    monkeypatch.setattr(pool_module, "LIFETIME_SECONDS", 0.0)
    lent = pool.take(1)
    pool.give(lent)
    assert lent.closed
    assert pool.figures()["open"] == 0


def test_what_nobody_needs_for_long_is_closed(pool):
    needed, spare = pool.take(1), pool.take(1)
    pool.give(spare)
    pool.give(needed)
    spare.given_at -= pool_module.IDLE_SECONDS
    for _ in range(2):
        assert pool.take(1) is needed
        pool.give(needed)
    assert spare.closed
    assert not needed.closed


def test_a_database_that_is_away_is_tried_again(pool, doorway):
    doorway.away = 3
    pool.give(pool.take(10))
    assert len(doorway.asked) == 4
    assert doorway.asked == sorted(doorway.asked, reverse=True)  # each has less time than the last


def test_one_that_stays_away_is_told_with_its_reason_and_costs_no_permit(pool, doorway):
    for _ in range(5):
        doorway.away = 1000
        with pytest.raises(NoConnection, match="refused"):
            pool.take(0.2)
    assert pool.figures()["failed"] == 5
    doorway.away = 0
    assert pool.take(1) is not pool.take(1)


def test_an_error_that_is_no_outage_is_not_tried_again():
    def refused(_seconds: float) -> Pooled:
        raise psycopg.ProgrammingError("no such setting")

    pool: Pool[Pooled] = Pool(refused, 1)
    for _ in range(3):
        with pytest.raises(psycopg.ProgrammingError, match="no such setting"):
            pool.take(10)


def test_closing_wakes_who_waits_and_closes_what_comes_back(pool):
    lent, idle = pool.take(1), pool.take(1)
    with ThreadPoolExecutor() as threads:
        waiter = threads.submit(pool.take, 60)
        while not pool.figures()["waiting"]:
            time.sleep(0.005)
        pool.close()
        with pytest.raises(NoConnection, match="closed"):
            waiter.result(timeout=10)
    for connection in (lent, idle):
        assert not connection.closed
        pool.give(connection)
        assert connection.closed
    with pytest.raises(NoConnection, match="closed"):
        pool.take(1)


def test_closing_ends_an_attempt_to_open(doorway):
    doorway.away = 1000
    pool = Pool(doorway, 1)
    with ThreadPoolExecutor() as threads:
        opener = threads.submit(pool.take, 60)
        while not doorway.asked:
            time.sleep(0.005)
        pool.close()
        with pytest.raises(NoConnection):
            opener.result(timeout=10)


def test_many_threads_never_have_more_than_there_are(doorway):
    pool, most, lent, counting = Pool(doorway, 3), 0, set[int](), threading.Lock()

    def use(n: int) -> None:
        nonlocal most
        for turn in range(60):
            connection = pool.take(30)
            with counting:
                assert connection.info.backend_pid not in lent, "two have the same one"
                lent.add(connection.info.backend_pid)
                most = max(most, len(lent))
            pid = connection.info.backend_pid
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
    assert pool.figures()["open"] == pool.figures()["idle"] <= 3
    assert pool.figures()["waiting"] == 0
    pool.close()
