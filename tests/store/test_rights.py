"""What is said where the database is the wrong one, or does not let its user do what is needed."""

from collections.abc import Callable, Iterator
from urllib.parse import quote, urlencode
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from evenbeat import Evenbeat, Task
from evenbeat.errors import InvalidInput, StoreError
from waiting import wait_for

MakeTask = Callable[..., tuple[Evenbeat, Task]]


def send() -> str:
    return "sent"


@pytest.fixture
def application() -> Iterator[MakeTask]:
    """Makes applications with one task; they are closed for you."""
    made: list[Evenbeat] = []

    def make(url: str) -> tuple[Evenbeat, Task]:
        made.append(Evenbeat(url, database_timeout_seconds=5))
        return made[-1], made[-1].task(send)

    yield make
    for app in made:
        app.close()


@pytest.fixture
def poor_user(direct_url: str) -> Iterator[str]:
    """A user who may connect, and nothing more."""
    name = f"poor_{uuid4().hex[:12]}"
    with psycopg.connect(direct_url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'x'".encode())
        yield name
        connection.execute(f"DROP OWNED BY {name}; DROP ROLE {name}".encode())


def as_user(url: str, user: str) -> str:
    parts = conninfo_to_dict(url) | {"user": user, "password": "x"}
    return f"postgresql:///?{urlencode(parts, quote_via=quote)}"


def test_a_user_who_may_not_make_the_schema_is_told_who_can(
    empty_direct_url, poor_user, application
):
    app, _ = application(as_user(empty_direct_url, poor_user))
    with pytest.raises(StoreError) as caught:
        _ = app.store
    text = str(caught.value)
    assert f"The user {poor_user!r} may not" in text
    assert "`evenbeat migrate`" in text
    grant = text[text.index("GRANT") :].partition(";")[0]
    with psycopg.connect(empty_direct_url) as connection:
        connection.execute(grant.encode())
    assert app.store.read.jobs().total == 0
    with psycopg.connect(empty_direct_url) as connection:
        connection.execute(f"DROP OWNED BY {poor_user}".encode())


def test_a_user_who_may_not_use_the_tables_is_told_what_to_grant_and_that_is_enough(
    direct_url, connect, poor_user, application
):
    app, task = application(as_user(direct_url, poor_user))
    with pytest.raises(StoreError) as caught:
        _ = app.store
    text = str(caught.value)
    assert f"The user {poor_user!r} may not" in text
    with connect() as connection:
        connection.execute(text[text.index("GRANT") : text.rindex(";")].encode())
    added = task.enqueue()
    worker = app.worker()
    worker.start()
    try:
        wait_for(lambda: app.store.read.job(added.id).status == "completed")
    finally:
        worker.stop(grace=0)


def test_a_connection_whose_user_may_not_use_the_tables_is_explained(
    direct_url, poor_user, application
):
    _, task = application(direct_url)
    with (
        psycopg.connect(as_user(direct_url, poor_user)) as connection,
        pytest.raises(StoreError, match=f"The user '{poor_user}' may not"),
    ):
        task.options(connection=connection).enqueue()


def test_a_connection_to_another_database_is_explained(direct_url, empty_direct_url, application):
    app, task = application(direct_url)
    wanted, other = (conninfo_to_dict(url)["dbname"] for url in (direct_url, empty_direct_url))
    for add in (
        lambda connection: task.options(connection=connection).enqueue(),
        lambda connection: app.enqueue_many([task.job()], connection=connection),
        lambda connection: app.enqueue_many([task.options(name="x").job()], connection=connection),
    ):
        with (
            psycopg.connect(empty_direct_url) as connection,
            pytest.raises(InvalidInput) as caught,
        ):
            add(connection)
        assert caught.value.field == "connection"
        assert f"/{other}" in str(caught.value)
        assert f"/{wanted}" in str(caught.value)
    assert app.store.read.jobs().total == 0
