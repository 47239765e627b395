"""The history of jobs over HTTP: executions, and what they amount to."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Self
from uuid import UUID

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator

from evenbeat.api.bulk import BulkChanged, RefusedDocument, bulk_changed
from evenbeat.api.dependencies import Operator, Service, ServiceDep, Viewer
from evenbeat.api.fields import MAX_INTEGER, Id, Limit, RowDocument, fields_of
from evenbeat.api.idempotency import json_response
from evenbeat.api.problems import responses
from evenbeat.api.queries import ExecutionQuery, RunFilterFields, RunGroupQuery, RunQuery
from evenbeat.api.requests import MAX_BULK, Request
from evenbeat.api.responses import (
    ExecutionDocument,
    ExecutionList,
    ExecutionState,
    JobDocument,
    JobStatsDocument,
    RunDocument,
    RunGroupDocument,
    RunGroups,
    RunList,
    job_document,
)
from evenbeat.domain.run_log import LogLine
from evenbeat.errors import Conflict, NotFound

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


@router.get("/executions", summary="List the runs of all jobs", response_model=RunList)
def list_executions(
    query: Annotated[RunQuery, Query()], service: ServiceDep, _principal: Viewer
) -> Response:
    """Newest first. Where there are more, `total` says only that, as an estimate: nobody counts
    millions of rows for a page. `further` leads on."""
    page = service.store.runs.page(query.run_filter(), **query.paging)
    executions = [
        RunDocument.of(run.execution, job_name=run.name, task=run.task, queue=run.queue)
        for run in page.runs
    ]
    more = page.further is not None
    document = RunList(
        executions=executions,
        total=query.offset + len(executions) + more,
        total_is_estimate=more or (not executions and query.offset > 0),
        further=page.further,
        read_back_to=page.read_back_to,
        **query.paging,
    )
    return json_response(document)


@router.get("/executions/errors", summary="Runs by task and error")
def group_executions(
    query: Annotated[RunGroupQuery, Query()], service: ServiceDep, _principal: Viewer
) -> RunGroups:
    """How many of the runs that match ended with which error, since when, and the newest of them.
    Without `status`: those that failed or were cancelled."""
    summary = service.store.runs.summary(query.run_filter())
    groups = [RunGroupDocument.of(group) for group in summary.groups]
    return RunGroups(groups=groups, total=summary.total, more=summary.more)


class RunSelection(Request):
    """Which runs are meant: either `ids` or `filter`."""

    ids: Annotated[list[Id], Field(min_length=1, max_length=MAX_BULK)] | None = None
    filter: RunFilterFields | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.ids is None) == (self.filter is None):
            raise ValueError("give either ids or filter")
        if self.filter is not None and not self.filter.model_dump(exclude_none=True):
            raise ValueError("an empty filter would mean every run; give a condition")
        return self

    def jobs(self, service: Service) -> Iterator[list[UUID]]:
        """The jobs of the selected runs, each once, some at a time."""
        if self.filter is not None:
            ids = service.store.runs.job_ids(self.filter.run_filter())
        else:
            runs = map(service.store.read.execution, self.ids or ())
            ids = list(dict.fromkeys(run.job_id for run in runs))
        return (ids[n : n + MAX_BULK] for n in range(0, len(ids), MAX_BULK))


@router.post("/executions/cancel", summary="Stop many runs")
def cancel_executions(body: RunSelection, service: ServiceDep, _principal: Operator) -> BulkChanged:
    """End runs in progress and throw their results away; their jobs go on with their next plans.
    By filter, at most 1000 at a time. What has ended meanwhile is counted as refused."""
    store, ids = service.store, body.ids
    if body.filter is not None:
        running = replace(body.filter.run_filter(), statuses=["running"])
        ids = [run.execution.id for run in store.runs.page(running, MAX_BULK).runs]
    result = BulkChanged(changed=0, refused=[], refused_count=0)
    for execution_id in dict.fromkeys(ids or ()):
        try:
            store.stop_run(execution_id, now=service.now)
            result.changed += 1
        except (Conflict, NotFound) as error:
            result.refused_count += 1
            result.refused.append(RefusedDocument(id=execution_id, reason=str(error)))
    return result


@router.post(
    "/executions/retry",
    summary="Run the jobs of many executions again",
    responses=responses(404),
)
def retry_executions(body: RunSelection, service: ServiceDep, _principal: Operator) -> BulkChanged:
    """Each job behind the selected runs runs once more now, besides its schedule, however many of
    its runs are among them; where one of the ids is of no run, none does. By filter, those of the
    newest 20,000 runs that match. To run past plans one by one, backfill the job."""
    run_now, now = service.store.control.run_now, service.now
    return bulk_changed(run_now(ids, now=now) for ids in body.jobs(service))


@router.post("/executions/{execution_id:uuid}/retry", summary="Run the job of an execution again")
def retry_execution(execution_id: UUID, service: ServiceDep, _principal: Operator) -> JobDocument:
    """Its job runs once more now, with the arguments and settings that it has now."""
    run = service.store.read.execution(execution_id)
    changed = service.store.control.run_now([run.job_id], now=service.now)
    return job_document(changed.only())


@router.get("/executions/{execution_id:uuid}", summary="Look at an execution")
def get_execution(execution_id: UUID, service: ServiceDep, _principal: Viewer) -> ExecutionDocument:
    """One attempt at one plan: its times, its result or its error."""
    return ExecutionDocument.of(service.store.read.execution(execution_id))


class LogQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    after: int = Field(0, ge=0, le=MAX_INTEGER, description="Only lines beyond this number.")
    limit: Limit = 1000


@fields_of(LogLine)
class LogLineDocument(RowDocument):
    """A line that a run has logged. Numbers begin with 1; those that are missing were left out."""


class LogDocument(RowDocument):
    """Lines of a run's log. While `status` is `running` or `has_more` is true, more may follow: ask
    again `after` this number."""

    lines: list[LogLineDocument]
    left_out: int = Field(description="How many lines were not kept, before and between these.")
    after: int
    has_more: bool
    status: ExecutionState


@router.get("/executions/{execution_id:uuid}/log", summary="Read what a run has logged")
def get_log(
    execution_id: UUID, query: Annotated[LogQuery, Query()], service: ServiceDep, _principal: Viewer
) -> LogDocument:
    """The first 32 KiB of its lines and the last 32 KiB, for a few days; lines of a run in progress
    come about four times a second."""
    status = service.store.read.execution(
        execution_id
    ).status  # before the lines: then none is missed
    page = service.store.run_logs.page(execution_id, after=query.after, limit=query.limit)
    return LogDocument.of(page, status=status)


@router.post("/executions/{execution_id:uuid}/cancel", summary="Stop a run")
def cancel_execution(
    execution_id: UUID, service: ServiceDep, _principal: Operator
) -> ExecutionDocument:
    """End one run in progress and throw its result away. Its job goes on with its next plan, if it
    has one; to end the schedule as well, cancel the job."""
    service.store.stop_run(execution_id, now=service.now)
    return get_execution(execution_id, service, _principal)
