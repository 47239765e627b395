"""Workers to be killed, and what to read afterwards."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet import Fleet, Server, Story

from evenbeat.store.store import Store


@pytest.fixture
def fleet(database_url: str, tmp_path: Path) -> Iterator[Fleet]:
    """Worker processes on the test's database; none outlives the test."""
    fleet = Fleet(database_url, tmp_path)
    yield fleet
    fleet.close()


@pytest.fixture
def story(store: Store) -> Story:
    return Story(store)


@pytest.fixture(scope="module")
def open_home() -> Iterator[Path]:
    """A directory that a server under another user can reach, unlike `tmp_path`."""
    home = Path(tempfile.mkdtemp(prefix="eb-chaos-"))
    yield home
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="module")
def server(open_home: Path) -> Iterator[Server]:
    server = Server(open_home / "pg")
    yield server
    server.stop()


@pytest.fixture
def outage_store(server: Server) -> Iterator[Store]:
    store = Store(server.url, timeout=5)
    store.migrate()
    with store.database.transaction() as connection:
        connection.execute(
            "TRUNCATE evenbeat.jobs, evenbeat.executions, evenbeat.workers, evenbeat.batches, "
            "evenbeat.dependencies, evenbeat.chores"
        )
    yield store
    store.close()


@pytest.fixture
def outage_fleet(server: Server, outage_store: Store, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(server.url, tmp_path)
    yield fleet
    fleet.close()
