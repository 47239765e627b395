"""The scheduler as a whole over HTTP: its figures, and what ails it."""

from datetime import datetime

from fastapi import APIRouter
from pydantic import BaseModel, Field

from evenbeat.api.answers import Number
from evenbeat.api.documents import plain
from evenbeat.api.guards import DENIED, Viewer
from evenbeat.api.service import ServiceDep
from evenbeat.domain.states import JobStatus
from evenbeat.observe import doctor

router = APIRouter(prefix="/api/v1/scheduler", tags=["scheduler"], responses=DENIED)


class ExecutionFigures(BaseModel):
    """All executions in figures."""

    total: int
    average_duration_ms: Number | None
    success_rate: Number | None = Field(description="0 to 1; null before the first end.")


class SchedulerMetrics(BaseModel):
    """The scheduler in figures."""

    jobs: dict[str, int] = Field(description="Jobs in each of the seven states.")
    executions: ExecutionFigures
    last_check_at: datetime | None = Field(description="The last sign of life of any worker.")
    last_metrics_update: datetime | None = Field(
        description="When the figures were last counted for all."
    )
    stale_locks_cleared: int


class FindingDocument(BaseModel):
    """One thing that was looked at."""

    code: str
    severity: doctor.Severity
    title: str
    detail: str
    remedy: str


class Findings(BaseModel):
    """Everything that was looked at, and the gravest of it."""

    worst: doctor.Severity
    findings: list[FindingDocument]


@router.get("/metrics", operation_id="get_scheduler_metrics", summary="The scheduler in figures")
def get_scheduler_metrics(service: ServiceDep, _principal: Viewer) -> SchedulerMetrics:
    """Jobs by state, runs and their success. With very many jobs, the counts are those of the last
    half minute; `last_metrics_update` says from when."""
    store = service.app.store
    counts, totals = store.read.counts_by_status(), store.read.execution_totals()
    figures, workers = store.upkeep.figures(), store.upkeep.workers()
    counted = [figures[name].updated_at for name in ("jobs", "executions") if name in figures]
    cleared = figures.get("stale_locks_cleared")
    return SchedulerMetrics(
        jobs={state.value: counts.get(state.value, 0) for state in JobStatus},
        executions=ExecutionFigures(
            total=totals.total,
            average_duration_ms=plain(totals.average_duration_ms),
            success_rate=plain(totals.success_rate),
        ),
        last_check_at=max((worker.heartbeat_at for worker in workers), default=None),
        last_metrics_update=max(counted, default=None),
        stale_locks_cleared=int(cleared.value) if cleared else 0,
    )


@router.get("/doctor", operation_id="get_scheduler_findings", summary="What ails the scheduler?")
def get_scheduler_findings(service: ServiceDep, _principal: Viewer) -> Findings:
    """Look at the database and the workers: what was looked at, what is wrong, and what to do."""
    database = service.app.store.database
    found = doctor.check(database.url, schema=database.schema, now=service.now)
    return Findings(
        worst=doctor.worst(found), findings=[FindingDocument(**one._asdict()) for one in found]
    )
