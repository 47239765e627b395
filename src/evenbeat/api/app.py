"""The HTTP service as an ASGI application: routers, errors, limits, put together once."""

import hashlib
import json
import threading
from functools import lru_cache
from typing import Any

from fastapi import FastAPI, Request, Response

from evenbeat import __version__
from evenbeat.api import (
    audit,
    batches,
    bulk,
    capacity,
    executions,
    health,
    jobs,
    live_events,
    placement,
    problems,
    schedules,
    steps,
    tasks,
    templates,
    webhooks,
)
from evenbeat.api.auth import sessions
from evenbeat.api.auth.tokens import Access
from evenbeat.api.dependencies import Service
from evenbeat.api.middleware import RequestGuard
from evenbeat.api.problems import Problem, responses
from evenbeat.app import Evenbeat
from evenbeat.engine.worker import Worker
from evenbeat.plugins import provided

ROUTERS = (
    sessions.router,
    bulk.router,  # before the jobs: "bulk" is not the id of one
    jobs.router,
    batches.router,
    templates.router,
    executions.router,
    steps.router,
    schedules.router,
    capacity.router,
    tasks.router,
    capacity.limits_router,
    health.scheduler_router,
    placement.router,
    webhooks.router,
    live_events.router,
    audit.router,
    health.router,
)
"""In the order of the documentation; those of plugins come after them."""

_DESCRIPTION = """A durable, self-balancing job scheduler.

Errors are RFC 9457 problem documents. Lists page with `limit` and `offset` and give a `total`.
"""
_BY_HEADER = "Send `Authorization: Bearer <token>`; `evenbeat token create` makes one."


def create(app: Evenbeat, *, access: Access, worker: Worker | None = None) -> FastAPI:
    """The service for an application. It can be served as it is, or mounted under any path."""
    api = _Api(
        title="Evenbeat",
        version=__version__,
        description=_DESCRIPTION + (_BY_HEADER if access.has_tokens else f"{access.reason}."),
        responses=responses(400, 413, 422, 429, 500, 503),
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    api.state.service = Service(app, access, worker)
    api.state.broadcaster = live_events.Broadcaster(api.state.service)
    api.add_route("/openapi.json", api.document, include_in_schema=False)
    problems.install(api)
    api.add_middleware(RequestGuard, max_payload=app.settings.max_payload_bytes)
    for router in (*ROUTERS, *provided("router")):
        api.include_router(router)
    return api


class _Api(FastAPI):
    """FastAPI, with problem documents in its OpenAPI document instead of its own error shape, and
    that document written out once, on a thread of its own: it takes a fifth of a second, in which
    the event loop would answer nobody."""

    _rendering = threading.RLock()
    """Held so that many first requests render it once and nobody sees half of it."""

    def document(self, request: Request) -> Response:
        """The OpenAPI document. Who has it already is told so."""
        with self._rendering:
            body, tag = self._written(request.scope.get("root_path", "").rstrip("/"))
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type="application/json")

    @lru_cache(8)  # noqa: B019 - an application lives as long as its process
    def _written(self, root: str) -> tuple[bytes, str]:
        """The document of an application that is mounted there, and its tag."""
        servers = {"servers": [{"url": root}]} if root else {}
        body = json.dumps(self.openapi() | servers, ensure_ascii=False, separators=(",", ":"))
        return body.encode(), f'"{hashlib.sha256(body.encode()).hexdigest()[:32]}"'

    def openapi(self) -> dict[str, Any]:
        with self._rendering:
            if self.openapi_schema is None:
                document = super().openapi()
                schema = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
                document["components"]["schemas"] |= schema.pop("$defs", {}) | {"Problem": schema}
                for path, operations in document["paths"].items():
                    for method, operation in operations.items():
                        statuses = [401, 403] if "security" in operation else []
                        statuses += [404] if "{" in path else []
                        statuses += [409] if method != "get" else []
                        operation["responses"] |= responses(*statuses)
            return super().openapi()
