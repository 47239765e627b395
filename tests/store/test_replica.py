"""Reads from a standby: a real one, which streams from its primary and can be held up."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from starlette.testclient import TestClient

from evenbeat import Evenbeat, embedded
from evenbeat.api.auth.tokens import Access, Role
from evenbeat.api.dependencies import COOKIE
from evenbeat.asgi import asgi
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.embedded.cluster import DATABASE, SUPERUSER, Cluster
from evenbeat.errors import InvalidInput
from evenbeat.store.lists import JobFilter
from evenbeat.store.migrate import migrate
from evenbeat.store.replica import old_reads_accepted
from evenbeat.store.store import Store
from loopback import SECRET
from waiting import wait_for


class Standby:
    """A second server beside the embedded one of a test."""

    def __init__(self, primary: Cluster, home: Path) -> None:
        home.mkdir(mode=0o700)
        if primary.account:
            os.chown(home, *primary.account)
        self.cluster = Cluster(home, primary.binaries, primary.account)
        done = self.cluster._run(
            "pg_basebackup",
            *("-D", "pgdata", "-R", "-c", "fast", "-X", "stream", "-U", SUPERUSER),
            *("-h", str(primary._socket_dir()), "-p", "5432"),
        )
        assert done.returncode == 0, done.stdout
        self.start()
        host = quote(str(self.cluster._socket_dir()), safe="")
        self.url = f"postgresql://{SUPERUSER}@/{DATABASE}?host={host}&port=5432"

    def start(self) -> None:
        self.cluster._launch(time.monotonic() + 60)

    def stop(self) -> None:
        self.cluster.stop()

    def execute(self, text: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(text.encode())


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[str, Standby]]:
    home = Path(f"/tmp/evenbeat-replica-{os.getpid()}")  # noqa: S108 - short enough for a socket
    home.mkdir(mode=0o755)
    try:
        with embedded.start(home / "a") as primary:
            migrate(primary.url, "evenbeat")
            standby = Standby(primary._cluster, home / "b")
            try:
                yield primary.url, standby
            finally:
                standby.stop()
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def store(pair) -> Iterator[Store]:
    url, standby = pair
    store = Store(url, read_url=standby.url, timeout=10)
    yield store
    store.close()


def jobs(store: Store) -> int:
    return store.read.jobs(JobFilter()).total


def add_and_wait(store: Store) -> int:
    """A job that the replica has, and how many there are."""
    store.add(NewJob(JobSpec("noop")))
    total = jobs(store)
    with old_reads_accepted():
        wait_for(lambda: jobs(store) == total, "the replica has it")
    return total


@pytest.fixture
def hold_up(pair) -> Iterator[Callable[[], None]]:
    """Makes the replica receive, but show nothing new."""
    yield lambda: pair[1].execute("SELECT pg_wal_replay_pause()")
    pair[1].execute("SELECT pg_wal_replay_resume()")


def test_reports_come_from_the_replica_where_old_reads_are_accepted(store, hold_up):
    total = add_and_wait(store)
    hold_up()
    store.add(NewJob(JobSpec("noop")))
    assert jobs(store) == total + 1
    with old_reads_accepted():
        assert jobs(store) == total
    assert store.database.replica.lag is not None


def test_a_replica_that_is_far_behind_is_not_asked(store, hold_up, monkeypatch):
    total = add_and_wait(store)
    hold_up()
    monkeypatch.setattr("evenbeat.store.replica.MOST_LAG_SECONDS", 0.5)
    monkeypatch.setattr("evenbeat.store.replica.LOOK_SECONDS", 0.0)
    store.add(NewJob(JobSpec("noop")))
    with old_reads_accepted():
        wait_for(lambda: jobs(store) == total + 1, "the primary is asked")
    assert store.database.replica.lag is None


def test_a_replica_that_is_gone_is_noticed_once_and_asked_again_when_it_is_back(
    store, pair, monkeypatch, caplog
):
    monkeypatch.setattr("evenbeat.store.replica.PAUSE_SECONDS", 0.5)
    total = add_and_wait(store)
    pair[1].stop()
    try:
        with old_reads_accepted():
            assert [jobs(store) for _ in range(3)] == [total] * 3
            time.sleep(0.6)
            assert jobs(store) == total
    finally:
        pair[1].start()
    assert store.database.replica.lag is None
    lines = [r for r in caplog.records if "the replica is not asked" in r.getMessage()]
    assert len(lines) == 1
    with old_reads_accepted():
        wait_for(lambda: jobs(store) and store.database.replica.lag is not None, "asked again")
    assert store.database.availability.reason is None, "the database itself was never away"


def test_a_wrong_value_is_the_callers_fault_and_not_the_replicas(store):
    add_and_wait(store)
    with old_reads_accepted(), pytest.raises(InvalidInput, match="cannot hold this value"):
        store.read.jobs(JobFilter(name="\0"))
    assert store.database.replica.lag is not None


def test_the_dashboard_and_lists_are_read_from_it_and_one_job_is_not(pair, store, hold_up):
    url, standby = pair
    add_and_wait(store)
    app = Evenbeat(url, read_url=standby.url, auth_secret=SECRET)
    access = Access.of(app.settings, app.store)
    with app, TestClient(asgi(app, access=access)) as client:
        token = access.issue(Role.ADMIN, timedelta(hours=1), subject="an admin").token
        client.cookies.set(COOKIE, token)
        client.headers["Authorization"] = f"Bearer {token}"
        before = client.get("/api/v1/jobs").json()["total"]
        hold_up()
        added = client.post("/api/v1/jobs", json={"task": "noop"}).json()
        assert client.get("/api/v1/jobs").json()["total"] == before
        assert client.get(f"/api/v1/jobs/{added['id']}").json()["status"] == "pending"
        page = client.get("/jobs").text
        assert "Read from a replica" in page
        assert added["id"] not in page
        assert "evenbeat_replica_lag_seconds" in client.get("/metrics").text
        client.cookies.set("evenbeat_notice", "W10=")
        page = client.get("/jobs").text
        assert added["id"] in page
        assert "Read from a replica" not in page
