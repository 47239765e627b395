"""Behind PgBouncer and Pgpool: work is done, and other applications notice nothing."""

import os
import threading
import time
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from evenbeat import Evenbeat
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.errors import DatabaseUnavailable
from evenbeat.observe import doctor
from evenbeat.store.store import Store
from pooler import PGBOUNCER, PGPOOL, Pooler, pooler, settings_of_foreign_sessions
from waiting import wait_for

pytestmark = pytest.mark.skipif("EVENBEAT_TEST_POOLER" in os.environ, reason="one is enough")
_NO_PGBOUNCER = pytest.mark.skipif(
    PGBOUNCER is None, reason="PgBouncer is not installed (make pgbouncer)"
)
_NO_PGPOOL = pytest.mark.skipif(PGPOOL is None, reason="Pgpool is not installed (make pgpool)")
_PGBOUNCER = [pytest.param(mode, marks=_NO_PGBOUNCER) for mode in ("transaction", "session")]
_PGPOOL = [pytest.param("pgpool", marks=_NO_PGPOOL)]
pgbouncer_only = pytest.mark.parametrize("pooled", _PGBOUNCER, indirect=True)
pgpool_only = pytest.mark.parametrize("pooled", _PGPOOL, indirect=True)


@pytest.fixture(params=_PGBOUNCER + _PGPOOL)
def pooled(request, server_url: str) -> Iterator[Pooler]:
    with pooler(server_url, request.param) as started:
        yield started


def name_of(url: str) -> str:
    return str(conninfo_to_dict(url)["dbname"])


@pytest.mark.parametrize("pooling", ["auto", "transaction"])
def test_workers_work_and_other_applications_are_untouched(pooled, database_url, store, pooling):
    url = pooled.url(name_of(database_url))
    before = settings_of_foreign_sessions(url)
    app = Evenbeat(url, pooling=pooling)
    ran: list[int] = []

    @app.task(concurrency_key="all", concurrency_limit=5)
    def limited(n: int) -> None:
        ran.append(n)

    @app.task
    async def free(n: int) -> None:
        ran.append(n)

    worker = app.worker()
    worker.start()
    for n in range(50):
        free.enqueue(n)
        limited.enqueue(n)
    app.enqueue_many([free.job(n) for n in range(500)])
    wait_for(lambda: len(ran) == 600, "all ran")
    wait_for(lambda: store.read.counts_by_status()["completed"] == 600, "all are written")
    worker.stop(grace=5)
    app.close()
    assert settings_of_foreign_sessions(url) == before


def picks_up_quickly(app: Evenbeat) -> float:
    """Whether an idle worker runs a job within seconds; how often it polls."""
    ran = threading.Event()

    @app.task
    def note() -> None:
        ran.set()

    worker = app.worker()
    worker.start()
    time.sleep(2)
    poll_seconds = worker.claimer._poll_seconds
    note.enqueue()
    wait_for(ran.is_set, "it ran", within=5)
    worker.stop(grace=5)
    app.close()
    return poll_seconds


@pgbouncer_only
def test_without_notifications_a_worker_looks_for_jobs_every_second(pooled, database_url):
    app = Evenbeat(pooled.url(name_of(database_url)), poll_seconds=60)
    assert picks_up_quickly(app) == 1


@pytest.mark.parametrize("pooling", ["auto", "transaction"])
def test_a_listen_url_brings_notifications(pooled, database_url, pooling):
    url = pooled.url(name_of(database_url))
    app = Evenbeat(url, pooling=pooling, listen_url=database_url, poll_seconds=600)
    assert picks_up_quickly(app) == 600


@pgbouncer_only
def test_the_doctor_names_the_pooler_and_leaves_its_sessions_alone(pooled, database_url):
    url = pooled.url(name_of(database_url))
    before = settings_of_foreign_sessions(url)
    assert "pooler" in {finding.code for finding in doctor.check(url)}
    assert "pooler" not in {finding.code for finding in doctor.check(database_url)}
    assert settings_of_foreign_sessions(url) == before


@pgpool_only
def test_notifications_pass_pgpool(pooled, database_url):
    app = Evenbeat(pooled.url(name_of(database_url)), poll_seconds=600)
    assert picks_up_quickly(app) == 600


@pgpool_only
def test_pgpool_lends_whole_sessions_and_the_next_client_finds_them_clean(pooled, database_url):
    """Each client prepares statements of the same names in sessions that others have used."""
    url = pooled.url(name_of(database_url))
    sessions: list[int] = []
    for n in range(40):  # twice as many as Pgpool has
        store = Store(url)
        with store.database.transaction(hot=True) as connection:
            assert connection.prepare_threshold is not None
            sessions.append(connection.info.backend_pid)
        job = NewJob(JobSpec("noop"), dedup_key="once")
        assert store.add(job).created == (n == 0)
        store.close()
    assert len(set(sessions)) <= 20
    assert "pooler" not in {finding.code for finding in doctor.check(url)}


@pgpool_only
def test_a_session_that_ends_behind_pgpool_is_an_outage_and_replaced(pooled, database_url):
    store = Store(pooled.url(name_of(database_url)))
    store.add(NewJob(JobSpec("noop")))
    with psycopg.connect(database_url, autocommit=True) as direct:
        direct.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    with pytest.raises(DatabaseUnavailable):  # it may have been done
        store.add(NewJob(JobSpec("noop")))
    store.add(NewJob(JobSpec("noop")))
    store.close()


def test_migrating_through_a_pooler_leaves_no_lock_behind(pooled, empty_database_url):
    store = Store(pooled.url(name_of(empty_database_url)))
    assert store.migrate()
    assert store.migrate() == []
    store.add(NewJob(JobSpec("noop")))
    store.close()
    with psycopg.connect(empty_database_url) as direct:
        locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
        assert direct.execute(locks).fetchone() == (0,)
