"""API and dashboard as one ASGI application, to be served or mounted in another."""

import asyncio

from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from evenbeat import dashboard
from evenbeat.api.access import Access
from evenbeat.api.app import create
from evenbeat.app import Evenbeat
from evenbeat.engine.worker import Worker


def asgi(app: Evenbeat, *, access: Access, worker: Worker | None = None) -> FastAPI:
    """The whole service for an application: `outer.mount("/evenbeat", asgi(app, access=…))`."""
    api = create(app, access=access, worker=worker)
    dashboard.install(api)
    return api


class LazyService:
    """The service, made at the first request: whoever mounts it can start while the database
    cannot be reached."""

    def __init__(self, app: Evenbeat, *, auth: bool) -> None:
        self._app = app
        self._auth = auth
        self._service: FastAPI | None = None
        self._making = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and self._service is None:
            async with self._making:
                if self._service is None:
                    self._service = await asyncio.to_thread(self._make)
        if self._service is not None:
            await self._service(scope, receive, send)

    def _make(self) -> FastAPI:
        access = Access.of(self._app.settings, self._app.store) if self._auth else Access.open()
        return asgi(self._app, access=access)
