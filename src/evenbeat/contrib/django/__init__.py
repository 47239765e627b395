"""Django: tasks in applications' `tasks.py`, `manage.py evenbeat worker`, care for connections.

Needs the extra: `pip install 'evenbeat[django]'`, and in the settings

    INSTALLED_APPS = [..., "evenbeat.contrib.django"]
    EVENBEAT = {"name": "shop"}

whose entries are arguments of `Evenbeat`, and `database`, an alias of DATABASES.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import quote, urlencode

from asgiref.sync import sync_to_async
from django.conf import settings as django_settings
from django.db import close_old_connections, connections, reset_queries
from psycopg.pq import Conninfo

from evenbeat.app import Evenbeat
from evenbeat.settings import Settings
from evenbeat.tasks.context import Context, State
from evenbeat.tasks.hooks import ContextManager
from evenbeat.tasks.registry import RunnerKind


class DjangoEvenbeat(Evenbeat):
    """An application on one of Django's databases, unless a URL is set for Evenbeat itself. Which
    one that is, is looked up on first use: Django's test runner changes its name."""

    def __init__(self, *, database: str = "default", **options: Any) -> None:
        super().__init__(**options)
        self.database = database
        self._derived_url: str | None = None

    @property
    def schema(self) -> str:
        """The schema of its tables, known before the database is."""
        return super().settings.db_schema

    @property
    def open_transaction(self) -> Any:
        """Django's connection to the same database while a transaction is open on it."""
        connection, url = connections[self.database], self.settings.database_url
        shared = url is not None and url.get_secret_value() == self._derived_url
        return connection if shared and connection.in_atomic_block else None

    @property
    def settings(self) -> Settings:
        configured = super().settings
        connection = connections[self.database]
        if configured.database_url is not None or connection.vendor != "postgresql":
            return configured
        known = {option.keyword.decode() for option in Conninfo.get_defaults()}
        params = connection.get_connection_params().items()
        parts = {name: value for name, value in params if name in known}
        self._derived_url = f"postgresql:///?{urlencode(parts, quote_via=quote)}"
        self._overrides["database_url"] = self._derived_url
        self._settings = None
        if "destroy_test_db" not in vars(connection.creation):
            # The test runner drops its database without a signal; our pool would be in the way.
            destroy = connection.creation.destroy_test_db

            def close_and_destroy(*args: Any, **kwargs: Any) -> None:
                self.close()
                destroy(*args, **kwargs)

            connection.creation.destroy_test_db = close_and_destroy
        return super().settings


app = DjangoEvenbeat(**getattr(django_settings, "EVENBEAT", {}))
app.registry.hooks.imports.append("evenbeat.contrib.django.service")


@app.around
def connection_care(ctx: Context) -> ContextManager:
    """Like a request, a run begins and ends without connections that are broken or too old; for
    async handlers in the thread where Django keeps theirs."""
    on_loop = app.registry.get(ctx.job.task).runs is RunnerKind.ON_LOOP
    return _cared_for_beside_loop() if on_loop else connections_cared_for()


@app.lifespan
@asynccontextmanager
async def close_connections(_state: State) -> AsyncIterator[None]:
    """That thread outlives the worker, and its connections would too."""
    yield
    await sync_to_async(connections.close_all)()


@contextmanager
def connections_cared_for() -> Iterator[None]:
    """Around what uses Django's database in a thread that serves no request."""
    reset_queries()
    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()


@asynccontextmanager
async def _cared_for_beside_loop() -> AsyncIterator[None]:
    await sync_to_async(reset_queries)()
    await sync_to_async(close_old_connections)()
    try:
        yield
    finally:
        await sync_to_async(close_old_connections)()
