"""Hints as they arrive: at once, alike ones once, and silence is never a broken connection."""

import contextlib
import resource
import sys
import threading
import time
from contextlib import closing
from uuid import uuid4

import psycopg
import pytest

from evenbeat.errors import DatabaseUnavailable
from evenbeat.store.listener import Listener
from evenbeat.store.store import Store
from proxy import Proxy


def terminate(listener: Listener, url: str) -> None:
    """End the listener's backend from outside."""
    pid = listener.connection.info.backend_pid
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])


def test_what_came_together_and_is_alike_is_told_once_in_its_order(store):
    with store.listen() as listener:
        store.notify(*["due:mail"] * 3, "cancel:x:y", "due:ünï", "due:mail")
        store.notify("due:mail")
        time.sleep(0.2)
        assert listener.wait(60) == [("due", "mail"), ("cancel", "x:y"), ("due", "ünï")]
        assert listener.wait(0) == []
        store.notify("due:mail")
        assert listener.wait(60) == [("due", "mail")]


def test_a_hint_that_comes_with_the_answer_to_a_statement_is_heard(store):
    with store.listen() as listener:
        store.notify("due:mail")
        time.sleep(0.2)
        listener.connection.execute("SELECT 1")
        assert listener.wait(0) == [("due", "mail")]
        store.notify("due:post")
        time.sleep(0.2)
        assert store.claim(uuid4(), 1, connection=listener.connection) == []
        assert listener.wait(0) == [("due", "post")]


def test_it_returns_as_soon_as_there_is_one(store):
    with store.listen() as listener:
        timer = threading.Timer(0.2, store.notify, ["due:mail"])
        timer.start()
        begun = time.monotonic()
        assert listener.wait(60) == [("due", "mail")]
        assert time.monotonic() - begun < 20
        timer.join()


@pytest.mark.skipif(sys.platform != "linux", reason="counts the switches of a thread")
def test_a_quiet_wait_sleeps_through(store):
    with store.listen() as listener:
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        assert listener.wait(1) == []
        assert resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before <= 5


def test_a_connection_that_breaks_is_no_silence(store, database_url):
    with store.listen() as listener:
        timer = threading.Timer(0.2, terminate, [listener, database_url])
        timer.start()
        with contextlib.suppress(DatabaseUnavailable):
            listener.wait(60)  # the server's last words
        with pytest.raises(DatabaseUnavailable, match=r"cannot be reached|is closed"):
            listener.wait(60)
        timer.join()


def test_nor_is_one_that_a_statement_found_broken(store, database_url):
    with store.listen() as listener:
        terminate(listener, database_url)
        with contextlib.suppress(psycopg.OperationalError):
            listener.connection.execute("SELECT 1")
        with pytest.raises(DatabaseUnavailable, match="listening connection is closed"):
            listener.wait(60)


def test_nor_is_one_that_has_died_without_a_word(direct_url, monkeypatch):
    monkeypatch.setattr("evenbeat.store.listener.QUIET_SECONDS", 0.5)
    with (
        closing(Proxy(direct_url)) as proxy,
        closing(Store(proxy.url, answer_seconds=1)) as store,
        store.listen() as listener,
    ):
        time.sleep(0.6)
        assert listener.wait(0.1) == []  # it lives: it was asked
        proxy.fall_silent()
        time.sleep(0.6)
        with pytest.raises(DatabaseUnavailable, match="no answer for 1 s"):
            listener.wait(0.1)
