"""How even the schedule is, over HTTP, and making it more even: distribution and rebalances."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from evenbeat.api.answers import Number
from evenbeat.api.dependencies import DENIED, Operator, ServiceDep, Viewer
from evenbeat.api.fields import QueryMoment
from evenbeat.api.problems import responses
from evenbeat.api.schemas import Request

router = APIRouter(prefix="/api/v1/scheduler", tags=["placement"], responses=DENIED)

MOST_MOVES = 10_000_000


# -- requests ------------------------------------------------------------------------------------


class RebalancePreviewRequest(Request):
    """What to look for. The body may be left out."""

    max_moves: Annotated[int, Field(ge=1, le=MOST_MOVES)] | None = Field(
        None, description="So many moves at most; those that gain most come first."
    )


class RebalanceRequest(RebalancePreviewRequest):
    """What to do. The body may be left out."""

    plan_id: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None, description="Of a preview: apply just its moves, as far as they still hold."
    )


# -- answers -------------------------------------------------------------------------------------


class HourDocument(BaseModel):
    """How many jobs start in an hour of the day, in UTC."""

    hour: int
    job_count: int


class DistributionDocument(BaseModel):
    """How even the schedule is. Loads are numbers of runs at once; hours and slots are UTC."""

    window_hours: int
    slot_minutes: int
    total_jobs: int
    hourly_distribution: list[HourDocument]
    distribution_score: Number = Field(description="Mean load by peak load; 1 is perfectly even.")
    peak_hour: int
    peak_count: int
    suggestion: str
    starts_per_slot: list[int] = Field(description="For each quarter of an hour of the day.")
    load_per_slot: list[Number] = Field(description="For each quarter of an hour of the day.")
    week_load: list[Number] = Field(description="The mean of each slot, from Monday midnight.")
    week_peak: list[Number] = Field(description="The highest of each slot.")
    expected_peak: Number = Field(description="How many run at once at most.")
    expected_mean: Number
    workers_needed: int


class ProposedMove(BaseModel):
    """A job that would move."""

    job_id: UUID
    name: str | None
    current_time: datetime
    proposed_time: datetime
    reason: str


class MoveDocument(BaseModel):
    """A job that was moved."""

    job_id: UUID
    name: str | None
    old_time: datetime
    new_time: datetime
    reason: str


class StayDocument(BaseModel):
    """A job that stays, and the rule that holds it."""

    job_id: UUID
    name: str | None
    reason: str


class RebalancePreview(BaseModel):
    """What a rebalance would do."""

    plan_id: str | None
    would_move: int
    would_skip: int
    current_score: Number
    projected_score: Number
    preview: list[ProposedMove]
    skipped: list[StayDocument]
    before: DistributionDocument
    after: DistributionDocument


class RebalanceDocument(BaseModel):
    """What a rebalance did."""

    id: UUID
    moved: list[MoveDocument]
    skipped: list[StayDocument]
    old_distribution_score: Number
    new_distribution_score: Number
    before: DistributionDocument
    after: DistributionDocument


class UndoDocument(BaseModel):
    """What an undo put back, and what has moved on since."""

    id: UUID
    undone_at: datetime
    restored: list[UUID]
    left_alone: list[StayDocument]


class PastRebalance(BaseModel):
    """A rebalance as it is remembered."""

    id: UUID
    created_at: datetime
    created_by: str | None
    moved: int
    skipped: dict[str, int] = Field(description="How many jobs stayed, by reason.")
    old_score: Number
    new_score: Number
    old_peak: Number
    new_peak: Number
    undone_at: datetime | None
    undone_by: str | None
    restored: int | None


class RebalanceList(BaseModel):
    """The newest rebalances."""

    rebalances: list[PastRebalance]


class PointDocument(BaseModel):
    """How even the schedule was at a moment."""

    at: datetime
    score: Number
    peak_load: Number
    mean_load: Number
    total_jobs: int


class HistoryDocument(BaseModel):
    """How even the schedule was, oldest first."""

    points: list[PointDocument]


# -- how even it is ------------------------------------------------------------------------------


@router.get(
    "/distribution",
    operation_id="get_distribution",
    summary="How even is the schedule?",
    response_model=DistributionDocument,
)
def get_distribution(service: ServiceDep, _principal: Viewer) -> Any:
    """Starts by hour, expected load by slot, the score, and what to do about it in words."""
    return _documents().distribution_document(service.app.balancer.distribution())


@router.get(
    "/distribution/history",
    operation_id="get_distribution_history",
    summary="How even was it?",
)
def get_distribution_history(
    service: ServiceDep,
    _principal: Viewer,
    since: Annotated[QueryMoment | None, Query(description="Only points since then.")] = None,
) -> HistoryDocument:
    """A point every five minutes, for thirty days."""
    points = service.app.balancer.history(since)
    return HistoryDocument(points=[PointDocument(**point._asdict()) for point in points])


# -- making it more even -------------------------------------------------------------------------


@router.post(
    "/rebalance/preview",
    operation_id="preview_rebalance",
    summary="What would a rebalance do?",
    response_model=RebalancePreview,
)
def preview_rebalance(
    service: ServiceDep, _principal: Viewer, body: RebalancePreviewRequest | None = None
) -> Any:
    """The fewest moves that lower the peak, each with its reason. Changes nothing."""
    preview = service.app.balancer.preview(None if body is None else body.max_moves)
    return _documents().preview_document(preview.plan, preview.plan_id)


@router.post(
    "/rebalance",
    operation_id="rebalance",
    summary="Rebalance",
    response_model=RebalanceDocument,
    responses=responses(409),
)
def rebalance(
    service: ServiceDep, principal: Operator, body: RebalanceRequest | None = None
) -> Any:
    """Move jobs so that fewer run at once, none by more than half its interval. A job that runs,
    is about to, was moved of late, is pinned or goes by cron stays where it is."""
    done = service.app.balancer.rebalance(
        None if body is None else body.max_moves,
        by=principal.subject,
        plan_id=None if body is None else body.plan_id,
    )
    return _documents().rebalance_document(
        done.id, done.moved, done.skipped, done.before, done.after
    )


@router.get("/rebalances", operation_id="list_rebalances", summary="List rebalances")
def list_rebalances(
    service: ServiceDep,
    _principal: Viewer,
    limit: Annotated[int, Query(ge=1, le=1000, description="How many at most.")] = 20,
) -> RebalanceList:
    """The newest first."""
    records = service.app.balancer.rebalances(limit)
    return RebalanceList(rebalances=[PastRebalance(**record._asdict()) for record in records])


@router.post(
    "/rebalance/{rebalance_id}/undo",
    operation_id="undo_rebalance",
    summary="Undo a rebalance",
    response_model=UndoDocument,
    responses=responses(404, 409),
)
def undo_rebalance(rebalance_id: UUID, service: ServiceDep, principal: Operator) -> Any:
    """Put back every job that is still where the rebalance put it. Once only."""
    undone = service.app.balancer.undo(rebalance_id, by=principal.subject)
    document = _documents().undo_document(undone.id, undone.restored, undone.left_alone)
    return document | {"undone_at": undone.undone_at}


def _documents() -> Any:
    """How answers are made: NumPy comes with it, and most who load the API ask for none."""
    from evenbeat.placement import documents  # noqa: PLC0415

    return documents
