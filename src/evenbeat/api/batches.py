"""Batches over HTTP: how far they are, and the verbs over a whole one."""

from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import Field

from evenbeat.api.bulk import BulkChanged, bulk_changed
from evenbeat.api.dependencies import Operator, ServiceDep, Viewer
from evenbeat.api.fields import Page, PageQuery, RowDocument, fields_of
from evenbeat.api.queries import Text, Words, words_schema
from evenbeat.domain.batch import BATCH_VERBS, BatchCounts, BatchRecord, BatchStatus

router = APIRouter(prefix="/api/v1/batches", tags=["batches"])

BatchVerb = Literal["pause", "resume", "retry", "cancel"]
BatchState = Literal["open", "running", "completed", "failed", "cancelled"]


@fields_of(BatchCounts)
class CountsDocument(RowDocument):
    """How many jobs of a batch are in each state, and together."""

    total: int
    ended: int


@fields_of(BatchRecord, omit=["counted_at"])
class BatchDocument(RowDocument):
    """A batch as it stands. Of more than 20,000 jobs, the counts are at most a minute old."""

    status: BatchState
    parent_id: UUID | None = Field(description="The batch that it is a part of.")
    callback_id: UUID | None = Field(description="The job that runs when the others have ended.")
    counts: CountsDocument


class BatchList(Page):
    batches: list[BatchDocument]


class BatchQuery(PageQuery):
    name: Text = None
    status: Annotated[Words, words_schema(enum=[*BatchStatus])] = None


@router.get("", summary="List batches")
def list_batches(
    query: Annotated[BatchQuery, Query()], service: ServiceDep, _principal: Viewer
) -> BatchList:
    """A page of the batches that match, newest first."""
    store = service.store.batches
    batches = store.list(name=query.name, statuses=query.status, **query.paging)
    total = store.total(name=query.name, statuses=query.status)
    documents = [document_of(batch) for batch in batches]
    return BatchList(batches=documents, total=total, **query.paging)


@router.get("/{batch_id:uuid}", summary="Look at a batch")
def get_batch(batch_id: UUID, service: ServiceDep, _principal: Viewer) -> BatchDocument:
    """How far it is. Its jobs are listed by GET /api/v1/jobs?batch=…"""
    return document_of(service.store.batches.get(batch_id))


@router.post("/{batch_id:uuid}/close", summary="Close a batch")
def close_batch(batch_id: UUID, service: ServiceDep, _principal: Operator) -> BatchDocument:
    """Let an open batch end as soon as its jobs have."""
    service.store.batches.close(batch_id, now=service.now)
    return document_of(service.store.batches.get(batch_id))


@router.post("/{batch_id:uuid}/{verb}", summary="Pause, resume, retry or cancel a whole batch")
def change_batch(
    batch_id: UUID, verb: BatchVerb, service: ServiceDep, _principal: Operator
) -> BulkChanged:
    """Do it to all of its jobs that are in a state for it, and to those of batches within it. retry
    runs the failed and the cancelled again."""
    return bulk_changed(service.store.batches.apply(BATCH_VERBS[verb], batch_id, now=service.now))


def document_of(batch: BatchRecord) -> BatchDocument:
    """The batch as it is answered."""
    counts = {**batch.counts._asdict(), "total": batch.counts.total, "ended": batch.counts.ended}
    return BatchDocument.of(batch, counts=counts)
