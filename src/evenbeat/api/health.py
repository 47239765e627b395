"""Is the service alive and ready, its metrics, and the scheduler's own figures and diagnosis.

`/healthz` and `/readyz` need no token, since the machines that ask have none. Nor do they wait for
the threads in which all other requests wait for a slow or missing database: a restart would not
bring that back.
"""

import asyncio
from datetime import datetime
from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, Field

from evenbeat.api.auth.tokens import Role
from evenbeat.api.dependencies import DocumentedToken, ServiceDep, Viewer, at_least
from evenbeat.api.fields import Rounded, RowDocument, counts_schema, fields_of
from evenbeat.domain.states import JobStatus
from evenbeat.observe import doctor

router = APIRouter(tags=["health"])
scheduler_router = APIRouter(prefix="/api/v1/scheduler", tags=["scheduler"])


class Alive(BaseModel):
    """That it responds."""

    status: Literal["ok"] = "ok"


class Ready(BaseModel):
    """Whether it can work, check by check."""

    status: str = Field(description="ready, or not ready")
    checks: dict[str, str] = Field(
        description="database, schema, and worker where one runs here: ok, or what is wrong."
    )


class ExecutionFigures(RowDocument):
    """All executions in figures."""

    total: int
    average_duration_ms: Rounded | None
    success_rate: Rounded | None = Field(description="0 to 1; null before the first end.")


class SchedulerMetrics(BaseModel):
    """The scheduler in figures."""

    jobs: Annotated[dict[str, int], counts_schema(JobStatus)] = Field(
        description="Jobs in each of the seven states."
    )
    executions: ExecutionFigures
    last_check_at: datetime | None = Field(
        description="When any worker last looked for due jobs, as of its last heartbeat."
    )
    last_metrics_update: datetime | None = Field(
        description="When the figures were last counted for all."
    )
    stale_locks_cleared: int


@fields_of(doctor.Finding)
class FindingDocument(RowDocument):
    """The result of one check."""


class Findings(BaseModel):
    """The results of all checks, and the gravest of them."""

    worst: doctor.Severity
    findings: list[FindingDocument]


@router.get("/healthz", summary="Is the process alive?")
async def healthz() -> Alive:
    """200 as long as it can respond at all. Restart it when it cannot."""
    return Alive()


@router.get(
    "/readyz",
    summary="Can it work?",
    response_model=Ready,
    responses={503: {"model": Ready, "description": "Not ready; `checks` says why."}},
)
async def readyz(service: ServiceDep) -> JSONResponse:
    """200 if the database responds, its schema fits and the worker in this process, if there is
    one, claims and renews. Send it no requests otherwise; a restart helps little."""
    check = partial(service.app.readiness.report, expects_worker=service.worker is not None)
    report = await asyncio.to_thread(check)
    ready = Ready(status="ready" if report.ready else "not ready", checks=report.checks)
    return JSONResponse(ready.model_dump(), 200 if report.ready else 503)


async def may_scrape(request: Request, service: ServiceDep, documented: DocumentedToken) -> None:
    """Everyone if the setting metrics_public says so, otherwise viewers."""
    if not service.app.settings.metrics_public:
        await at_least(Role.VIEWER)(request, documented)


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=PlainTextResponse,
    dependencies=[Depends(may_scrape)],
)
def metrics(service: ServiceDep, accept: Annotated[str, Header()] = "") -> Response:
    """Everything in `docs/monitoring.md`, in Prometheus' text format, or OpenMetrics if requested.
    It also responds while the database is down: evenbeat_database_up is 0 then."""
    body, content_type = service.app.metrics.render(accept)
    return Response(body, headers={"Content-Type": content_type})


@scheduler_router.get("/metrics", summary="The scheduler in figures")
def get_scheduler_metrics(service: ServiceDep, _principal: Viewer) -> SchedulerMetrics:
    """Jobs by state, runs and their success. With very many jobs, the counts are those of the last
    half minute; `last_metrics_update` says from when."""
    store = service.store
    counts, figures = store.read.counts_by_status(), store.upkeep.figures()
    counted = [figures[name].updated_at for name in ("jobs", "executions") if name in figures]
    cleared = figures.get("stale_locks_cleared")
    return SchedulerMetrics(
        jobs={state.value: counts.get(state.value, 0) for state in JobStatus},
        executions=ExecutionFigures.of(store.read.execution_totals()),
        last_check_at=max((one.checked_at for one in store.upkeep.workers()), default=None),
        last_metrics_update=max(counted, default=None),
        stale_locks_cleared=int(cleared.value) if cleared else 0,
    )


@scheduler_router.get("/doctor", summary="Diagnose the scheduler")
def get_scheduler_findings(service: ServiceDep, _principal: Viewer) -> Findings:
    """Check the database and the workers: what was checked, what is wrong, and what to do."""
    database = service.store.database
    findings = doctor.check(database.url, schema=database.schema, now=service.now)
    documents = [FindingDocument.of(finding) for finding in findings]
    return Findings(worst=doctor.worst(findings), findings=documents)
