"""The history of jobs over HTTP: executions, and what they amount to."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Response

from evenbeat.api.dependencies import Operator, ServiceDep, Viewer
from evenbeat.api.idempotency import json_response
from evenbeat.api.queries import ExecutionQuery, RecentQuery, filled
from evenbeat.api.responses import ExecutionDocument, ExecutionList, JobStatsDocument
from evenbeat.store.reads import ExecutionPage

router = APIRouter(prefix="/api/v1", tags=["executions"])


@router.get(
    "/jobs/{job_id:uuid}/executions", summary="List a job's runs", response_model=ExecutionList
)
def list_job_executions(
    job_id: UUID, query: Annotated[ExecutionQuery, Query()], service: ServiceDep, _principal: Viewer
) -> Response:
    """What has become of each plan, newest first, with every retry."""
    page = service.store.read.executions_of(job_id, statuses=query.statuses(), **query.paging)
    if not page.total:
        service.store.read.job(job_id)  # raises when there is no such job
    return json_response(ExecutionList.of(page, **query.paging, total_is_estimate=False))


@router.get("/jobs/{job_id:uuid}/stats", summary="A job's history in figures")
def get_job_stats(job_id: UUID, service: ServiceDep, _principal: Viewer) -> JobStatsDocument:
    """How often it ran, how often well, and how long it takes; of the history that is kept."""
    return JobStatsDocument.of(service.store.read.job_stats(job_id))


@router.get("/executions", summary="List the newest executions", response_model=ExecutionList)
def list_executions(
    query: Annotated[RecentQuery, Query()], service: ServiceDep, _principal: Viewer
) -> Response:
    """Newest first. Where there are more, `total` says only that, as an estimate: nobody counts
    millions of rows for a page."""
    executions = service.store.read.recent_executions(
        statuses=query.statuses(),
        since=query.since,
        first_id=filled(query.id, "0"),
        last_id=filled(query.id, "f"),
        **query.paging,
    )
    more = len(executions) == query.limit
    page = ExecutionPage(executions, query.offset + len(executions) + more)
    is_estimate = more or (not executions and query.offset > 0)
    return json_response(ExecutionList.of(page, **query.paging, total_is_estimate=is_estimate))


@router.get("/executions/{execution_id}", summary="Look at an execution")
def get_execution(execution_id: UUID, service: ServiceDep, _principal: Viewer) -> ExecutionDocument:
    """One attempt at one plan: its times, its result or its error."""
    return ExecutionDocument.of(service.store.read.execution(execution_id))


@router.post("/executions/{execution_id}/cancel", summary="Stop a run")
def cancel_execution(
    execution_id: UUID, service: ServiceDep, _principal: Operator
) -> ExecutionDocument:
    """End one run in progress and throw its result away. Its job goes on with its next plan, if it
    has one; to end the schedule as well, cancel the job."""
    service.store.stop_run(execution_id, now=service.now)
    return get_execution(execution_id, service, _principal)
