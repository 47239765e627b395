"""How even the schedule is, over HTTP, and making it more even: distribution and rebalances."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from evenbeat.api.dependencies import DENIED, Operator, ServiceDep, Viewer
from evenbeat.api.field_types import QueryMoment
from evenbeat.api.models import fields_of
from evenbeat.api.problems import responses
from evenbeat.api.requests import Request
from evenbeat.api.responses import Number
from evenbeat.store.placement import DistributionPoint, LeftAlone, RebalanceRecord, UndoResult

if TYPE_CHECKING:  # NumPy comes with it, and most processes that load the API never need it
    from evenbeat.placement import Distribution

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


# -- responses -----------------------------------------------------------------------------------


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


@fields_of(LeftAlone)
class StayDocument(BaseModel):
    """A job that stays, and the rule that holds it."""


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


@fields_of(UndoResult)
class UndoDocument(BaseModel):
    """What an undo put back, and what has moved on since."""

    left_alone: list[StayDocument]


@fields_of(RebalanceRecord)
class PastRebalance(BaseModel):
    """A rebalance as it is remembered."""

    skipped: dict[str, int] = Field(description="How many jobs stayed, by reason.")


class RebalanceList(BaseModel):
    """The newest rebalances."""

    rebalances: list[PastRebalance]


@fields_of(DistributionPoint)
class PointDocument(BaseModel):
    """How even the schedule was at a moment."""


class HistoryDocument(BaseModel):
    """How even the schedule was, oldest first."""

    points: list[PointDocument]


def _distribution(current: "Distribution") -> dict[str, Any]:
    return {
        "window_hours": 24,
        "slot_minutes": 15,
        "total_jobs": current.total_jobs,
        "hourly_distribution": [
            {"hour": hour, "job_count": jobs} for hour, jobs in enumerate(current.jobs_per_hour)
        ],
        "distribution_score": round(current.score, 4),
        "peak_hour": current.peak_hour,
        "peak_count": current.peak_count,
        "suggestion": current.suggestion,
        "starts_per_slot": current.starts_per_slot,
        "load_per_slot": [round(load, 3) for load in current.load_per_slot],
        "week_load": [round(load, 3) for load in current.week_load],
        "week_peak": [round(load, 3) for load in current.week_peak],
        "expected_peak": round(current.peak_load, 3),
        "expected_mean": round(current.mean_load, 3),
        "workers_needed": current.workers_needed,
    }


# -- how even it is ------------------------------------------------------------------------------


@router.get(
    "/distribution",
    operation_id="get_distribution",
    summary="How even is the schedule?",
    response_model=DistributionDocument,
)
def get_distribution(service: ServiceDep, _principal: Viewer) -> Any:
    """Starts by hour, expected load by slot, the score, and what to do about it in words."""
    return _distribution(service.app.balancer.distribution())


@router.get(
    "/distribution/history",
    operation_id="get_distribution_history",
    summary="How even was it?",
    response_model=HistoryDocument,
)
def get_distribution_history(
    service: ServiceDep,
    _principal: Viewer,
    since: Annotated[QueryMoment | None, Query(description="Only points since then.")] = None,
) -> Any:
    """A point every five minutes, for thirty days."""
    return {"points": service.app.balancer.history(since)}


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
    plan_id, _, plan = service.app.balancer.preview(None if body is None else body.max_moves)
    return {
        "plan_id": plan_id,
        "would_move": len(plan.moves),
        "would_skip": len(plan.skipped),
        "current_score": round(plan.before.score, 4),
        "projected_score": round(plan.after.score, 4),
        "preview": [
            {
                "job_id": move.job_id,
                "name": move.name,
                "current_time": move.old_time,
                "proposed_time": move.new_time,
                "reason": move.reason,
            }
            for move in plan.moves
        ],
        "skipped": plan.skipped,
        "before": _distribution(plan.before),
        "after": _distribution(plan.after),
    }


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
    """Move jobs so that fewer run at once, none by more than half its interval. A job that is
    running or about to run, was moved recently, is pinned or goes by cron stays where it is."""
    done = service.app.balancer.rebalance(
        None if body is None else body.max_moves,
        by=principal.subject,
        plan_id=None if body is None else body.plan_id,
    )
    return {
        "id": done.id,
        "moved": done.moved,
        "skipped": done.skipped,
        "old_distribution_score": round(done.old_score, 4),
        "new_distribution_score": round(done.new_score, 4),
        "before": _distribution(done.before),
        "after": _distribution(done.after),
    }


@router.get(
    "/rebalances",
    operation_id="list_rebalances",
    summary="List rebalances",
    response_model=RebalanceList,
)
def list_rebalances(
    service: ServiceDep,
    _principal: Viewer,
    limit: Annotated[int, Query(ge=1, le=1000, description="How many at most.")] = 20,
) -> Any:
    """The newest first."""
    return {"rebalances": service.app.balancer.rebalances(limit)}


@router.post(
    "/rebalance/{rebalance_id}/undo",
    operation_id="undo_rebalance",
    summary="Undo a rebalance",
    response_model=UndoDocument,
    responses=responses(404, 409),
)
def undo_rebalance(rebalance_id: UUID, service: ServiceDep, principal: Operator) -> Any:
    """Put back every job that is still where the rebalance put it. Once only."""
    return service.app.balancer.undo(rebalance_id, by=principal.subject)
