"""Fixtures for pytest, there as soon as Evenbeat is installed."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from evenbeat.app import Evenbeat
    from evenbeat.testing import Harness


@pytest.fixture(scope="session")
def evenbeat_server() -> Iterator[str]:
    """The URL of a private PostgreSQL server for this test session."""
    from evenbeat.testing import temporary_server  # noqa: PLC0415 - only tests that ask pay for it

    with temporary_server() as url:
        yield url


@pytest.fixture
def evenbeat_harness(evenbeat_server: str) -> "Iterator[Callable[..., Harness]]":
    """Makes a `Harness` for an app: an empty database of its own, and time that you move."""
    from evenbeat.testing import DEFAULT_START, Harness, temporary_schema  # noqa: PLC0415

    with ExitStack() as stack:

        def make(app: "Evenbeat", start: datetime = DEFAULT_START) -> "Harness":
            schema = stack.enter_context(temporary_schema(evenbeat_server))
            app.configure(database_url=evenbeat_server, db_schema=schema)
            return stack.enter_context(Harness(app, start))

        yield make
