"""Whether the service lives, whether it can work, and its metrics. The first two need no token:
whoever asks them is a machine that has none. Nor do they queue for the threads in which all other
requests wait for a database that is slow or gone: a restart would not bring it back."""

import asyncio
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, Field

from evenbeat.api.access import Role
from evenbeat.api.guards import DENIED, _Documented, at_least
from evenbeat.api.service import ServiceDep

router = APIRouter(tags=["health"])

_viewer = at_least(Role.VIEWER)


class Alive(BaseModel):
    """The process answers."""

    status: str = "ok"


class Ready(BaseModel):
    """Whether it can work, check by check."""

    status: str = Field(description="ready, or not ready")
    checks: dict[str, str] = Field(
        description="database, schema, and worker where one runs here: ok, or what is wrong."
    )


async def may_scrape(request: Request, service: ServiceDep, documented: _Documented) -> None:
    """Everyone if the setting metrics_public says so, else viewers."""
    if not service.app.settings.metrics_public:
        await _viewer(request, documented)


@router.get("/healthz", summary="Does the process live?")
async def healthz() -> Alive:
    """200 as long as it can answer at all. Restart it when it cannot."""
    return Alive()


@router.get(
    "/readyz",
    summary="Can it work?",
    response_model=Ready,
    responses={503: {"model": Ready, "description": "Not ready; `checks` says why."}},
)
async def readyz(service: ServiceDep) -> JSONResponse:
    """200 if the database answers, its schema fits and the worker in this process, if there is
    one, claims and renews. Send it no requests otherwise; a restart helps little."""
    look = partial(service.app.readiness.report, expects_worker=service.worker is not None)
    report = await asyncio.to_thread(look)
    ready = Ready(status="ready" if report.ready else "not ready", checks=report.checks)
    return JSONResponse(ready.model_dump(), 200 if report.ready else 503)


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=PlainTextResponse,
    dependencies=[Depends(may_scrape)],
    responses=DENIED,
)
def metrics(service: ServiceDep, accept: Annotated[str, Header()] = "") -> Response:
    """Everything in `docs/monitoring.md`, in Prometheus' text format or OpenMetrics. Answers also
    while the database is down: evenbeat_database_up is 0 then."""
    body, content_type = service.app.metrics.render(accept)
    return Response(body, headers={"Content-Type": content_type})
