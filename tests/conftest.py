"""What every test can ask for: a real, migrated, empty database."""

import os
import signal
from collections.abc import Callable, Generator, Iterator
from urllib.parse import quote, urlencode
from uuid import uuid4

import psycopg
import pytest
from hypothesis import settings
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from evenbeat.store.store import Store
from evenbeat.testing import temporary_server
from pooler import pooler

# How long an example takes tells of the machine, not of the code.
settings.register_profile("evenbeat", deadline=None)
settings.load_profile("evenbeat")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what it runs in the background like this, and children inherit it: Ctrl-C would
    # end none of the processes that tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What was captured goes to the process that reports as UTF-8, and some tests log otherwise."""
    report = yield
    report.sections = [
        (name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections
    ]
    return report


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """A PostgreSQL server: the one that EVENBEAT_TEST_DATABASE_URL names, or a private one."""
    if url := os.environ.get("EVENBEAT_TEST_DATABASE_URL"):
        yield url
        return
    with temporary_server() as url:
        yield url


@pytest.fixture(scope="session")
def evenbeat_server(server_url: str) -> str:
    """Our own tests of the plugin share the suite's server."""
    return server_url


@pytest.fixture(scope="session")
def through_pooler(server_url: str) -> Iterator[Callable[[str], str]]:
    """Turns the URL of a database into the one that tests use: with EVENBEAT_TEST_POOLER, through a
    PgBouncer in transaction mode."""
    if "EVENBEAT_TEST_POOLER" not in os.environ:
        yield lambda url: url
        return
    with pooler(server_url) as started:
        yield lambda url: started.url(str(conninfo_to_dict(url)["dbname"]))


@pytest.fixture(scope="session")
def template(server_url: str) -> Iterator[str]:
    """The name of a database with the schema in it and nothing else."""
    with _temporary_database(server_url) as (name, url):
        store = Store(url)
        store.migrate()
        store.close()
        yield name


@pytest.fixture(scope="session")
def shared_database_url(server_url: str, template: str) -> Iterator[str]:
    with _temporary_database(server_url, template) as (_, url):
        yield url


@pytest.fixture
def database_url(shared_database_url: str, through_pooler: Callable[[str], str]) -> str:
    """A migrated, empty database. Emptying one takes a tenth of the time of cloning one."""
    with psycopg.connect(shared_database_url, autocommit=True) as connection:
        connection.execute(_END_OTHER_SESSIONS)
        connection.execute(
            "TRUNCATE evenbeat.jobs, evenbeat.executions, evenbeat.workers, evenbeat.queues, "
            "evenbeat.chores, evenbeat.figures, evenbeat.rebalances, evenbeat.rebalance_moves, "
            "evenbeat.distribution_history, evenbeat.outcomes, evenbeat.uncounted, "
            "evenbeat.job_counts, evenbeat.tasks, evenbeat.tokens, evenbeat.login_codes, "
            "evenbeat.sources, evenbeat.documents, evenbeat.idempotency_keys, evenbeat.limits, "
            "evenbeat.audit_entries, evenbeat.undos, evenbeat.missed_deadlines, "
            "evenbeat.alerts_told, evenbeat.fleet_pause, "
            "evenbeat.dependencies, evenbeat.steps, evenbeat.batches, "
            "evenbeat.templates, evenbeat.job_alerts, "
            "evenbeat.webhooks, evenbeat.webhook_messages, "
            "evenbeat.webhook_deliveries"
        )
    return through_pooler(shared_database_url)


@pytest.fixture
def direct_url(database_url: str, shared_database_url: str) -> str:
    """The database of `database_url`, never through a pooler: for what needs its own session."""
    return shared_database_url


@pytest.fixture
def empty_direct_url(server_url: str) -> Iterator[str]:
    """The database of `empty_database_url`, never through a pooler."""
    with _temporary_database(server_url) as (_, url):
        yield url


@pytest.fixture
def empty_database_url(empty_direct_url: str, through_pooler: Callable[[str], str]) -> str:
    """A database in which Evenbeat has never been."""
    return through_pooler(empty_direct_url)


@pytest.fixture(scope="module")
def module_database_url(
    server_url: str, template: str, through_pooler: Callable[[str], str]
) -> Iterator[str]:
    """A migrated database that the tests of one module share, for data that is slow to make."""
    with _temporary_database(server_url, template) as (_, url):
        yield through_pooler(url)


@pytest.fixture
def store(database_url: str, direct_url: str) -> Iterator[Store]:
    """A store on a database of its own. Behind a pooler it listens on a direct connection."""
    listen_url = None if database_url == direct_url else direct_url
    store = Store(database_url, timeout=10, listen_url=listen_url)
    yield store
    store.close()


@pytest.fixture
def connect(direct_url: str) -> Iterator[Callable[[], psycopg.Connection]]:
    """Makes plain connections to the test's database; they are closed for you. They are direct: a
    test holds locks, names sessions and looks at the server with them."""
    made: list[psycopg.Connection] = []

    def make() -> psycopg.Connection:
        made.append(psycopg.connect(direct_url))
        return made[-1]

    yield make
    for connection in made:
        connection.close()


_END_OTHER_SESSIONS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()"""


class _temporary_database:  # noqa: N801 - reads as the verb it is
    def __init__(self, server_url: str, template: str = "template0") -> None:
        self._server_url = server_url
        self._template = template
        self._name = f"eb_{uuid4().hex[:16]}"

    def __enter__(self) -> tuple[str, str]:
        self._execute("CREATE DATABASE {} TEMPLATE {}", self._name, self._template)
        parts = conninfo_to_dict(self._server_url) | {"dbname": self._name}
        return self._name, f"postgresql:///?{urlencode(parts, quote_via=quote)}"

    def __exit__(self, *_: object) -> None:
        self._execute("DROP DATABASE IF EXISTS {} WITH (FORCE)", self._name)

    def _execute(self, text: str, *names: str) -> None:
        with psycopg.connect(self._server_url, autocommit=True) as connection:
            connection.execute(sql.SQL(text).format(*map(sql.Identifier, names)))
