"""API and dashboard as one ASGI application, to be served or mounted in another."""

import asyncio
from typing import Any
from uuid import UUID

from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from evenbeat import compat, dashboard
from evenbeat.api.app import create
from evenbeat.api.auth.host import HOST_SCOPE, HostAccess, SignIn
from evenbeat.api.auth.signing import TokenKeys
from evenbeat.api.auth.tokens import Access
from evenbeat.api.event_links import sign_link
from evenbeat.app import Evenbeat
from evenbeat.domain.job import DurationLike
from evenbeat.engine.worker import Worker
from evenbeat.store.api_tables import AccessTables


def asgi(app: Evenbeat, *, access: Access, worker: Worker | None = None) -> FastAPI:
    """The whole service for an application: `outer.mount("/evenbeat", asgi(app, access=…))`."""
    api = create(app, access=access, worker=worker)
    compat.install(api)
    dashboard.install(api)
    return api


def event_link(
    app: Evenbeat,
    job_id: UUID,
    name: str,
    base_url: str,
    *,
    payload: Any = None,
    expires: DurationLike = "7d",
) -> str:
    """A link by which a person without an account sends an event to a job, once: for a mail that a
    handler sends before it waits. `base_url` is where people reach the dashboard."""
    path, _until = sign_link(app.settings, job_id, name, payload, expires)
    return base_url.rstrip("/") + path


class LazyService:
    """The service, made at the first request, and its database opened by the first one that needs
    it: the application that mounts it can start while the database is down."""

    def __init__(self, app: Evenbeat, *, auth: bool | SignIn) -> None:
        self._app = app
        self._auth = auth if isinstance(auth, bool) else HostAccess(auth)
        self._service: FastAPI | None = None
        self._creating = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to one request."""
        if scope["type"] == "http" and self._service is None:
            async with self._creating:
                if self._service is None:
                    self._service = await asyncio.to_thread(self._create)
        if self._service is not None:
            if isinstance(self._auth, HostAccess):
                scope = {**scope, HOST_SCOPE: scope}
            await self._service(scope, receive, send)

    def _create(self) -> FastAPI:
        if isinstance(self._auth, HostAccess):
            return asgi(self._app, access=self._auth)
        if not self._auth:
            return asgi(self._app, access=Access.open())
        keys = TokenKeys.load(self._app.settings)
        return asgi(self._app, access=Access(_DeferredTables(self._app), keys))


class _DeferredTables(AccessTables):
    """The access tables of a database that is opened by the first query."""

    def __init__(self, app: Evenbeat) -> None:
        self._app = app

    def __getattr__(self, name: str) -> Any:
        if name == "_database":
            return self._app.store.database
        raise AttributeError(name)
