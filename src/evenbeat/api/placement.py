"""How even the schedule is, over HTTP, and making it more even: distribution and rebalances."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from evenbeat.api.dependencies import Operator, ServiceDep, Viewer
from evenbeat.api.fields import Limit, Moment, Number, fields_of
from evenbeat.api.requests import Request
from evenbeat.placement.advice import IntervalAdvice
from evenbeat.store.placement import DistributionPoint, LeftAlone, RebalanceRecord, UndoResult

router = APIRouter(prefix="/api/v1/scheduler", tags=["placement"])

Load = Annotated[Number, AfterValidator(lambda load: round(load, 3))]
Score = Annotated[Number, AfterValidator(lambda score: round(score, 4))]


class HourDocument(BaseModel):
    """How many jobs start in an hour of the day, in UTC."""

    hour: int
    job_count: int


def _by_hour(counts: Sequence[int]) -> list[dict[str, int]]:
    return [{"hour": hour, "job_count": count} for hour, count in enumerate(counts)]


@fields_of(IntervalAdvice)
class AdviceDocument(BaseModel):
    """An interval in seconds whose runs meet others wherever they start, so many times a day, and a
    neighbour with which that is rare."""

    text: str


class DistributionDocument(BaseModel):
    """How even the schedule is. Loads are numbers of runs at once; hours and slots are UTC."""

    window_hours: int = 24
    slot_minutes: int = 15
    total_jobs: int
    hourly_distribution: Annotated[list[HourDocument], BeforeValidator(_by_hour)] = Field(
        validation_alias="jobs_per_hour"
    )
    distribution_score: Score = Field(
        validation_alias="score",
        description="The part of the needed workers that would suffice; 1 is as even as can be.",
    )
    peak_hour: int
    peak_count: int
    suggestion: str
    starts_per_slot: list[int] = Field(description="For each quarter of an hour of the day.")
    load_per_slot: list[Load] = Field(description="For each quarter of an hour of the day.")
    week_load: list[Load] = Field(description="The mean of each slot, from Monday midnight.")
    week_peak: list[Load] = Field(description="The highest of each slot.")
    expected_peak: Load = Field(
        validation_alias="peak_load", description="How many run at once at most."
    )
    expected_mean: Load = Field(validation_alias="mean_load")
    workers_needed: int = Field(description="How many slots workers need for nothing to wait.")
    workers_sufficient: int = Field(
        description="How many no schedule of these jobs could do without."
    )
    advice: list[AdviceDocument] = Field(description="Intervals that would be better another.")


@fields_of(DistributionPoint)
class PointDocument(BaseModel):
    """How even the schedule was at a moment."""


class HistoryDocument(BaseModel):
    """How even the schedule was, oldest first."""

    points: list[PointDocument]


@router.get(
    "/distribution", summary="How even is the schedule?", response_model=DistributionDocument
)
def get_distribution(service: ServiceDep, _principal: Viewer) -> Any:
    """Starts by hour, expected load by slot, the score, and what to do about it in words."""
    return service.app.balancer.distribution()


@router.get("/distribution/history", summary="How even was it?", response_model=HistoryDocument)
def get_distribution_history(
    service: ServiceDep,
    _principal: Viewer,
    since: Annotated[Moment | None, Query(description="Only points since then.")] = None,
) -> Any:
    """A point every five minutes, for thirty days."""
    return {"points": service.app.balancer.history(since)}


class RebalancePreviewRequest(Request):
    """What to look for. The body may be left out."""

    max_moves: Annotated[int, Field(ge=1, le=10_000_000)] | None = Field(
        None, description="So many moves at most; those that gain most come first."
    )


class RebalanceRequest(RebalancePreviewRequest):
    """What to do. The body may be left out."""

    plan_id: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None, description="Of a preview: apply just its moves, as far as they still hold."
    )


class ProposedMove(BaseModel):
    """A job that would move."""

    job_id: UUID
    name: str | None
    current_time: datetime = Field(validation_alias="old_time")
    proposed_time: datetime = Field(validation_alias="new_time")
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
    current_score: Score
    projected_score: Score
    preview: list[ProposedMove]
    skipped: list[StayDocument]
    before: DistributionDocument
    after: DistributionDocument


class RebalanceDocument(BaseModel):
    """What a rebalance did."""

    id: UUID
    moved: list[MoveDocument]
    skipped: list[StayDocument]
    old_distribution_score: Score = Field(validation_alias="old_score")
    new_distribution_score: Score = Field(validation_alias="new_score")
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
    rebalances: list[PastRebalance]


@router.post(
    "/rebalance/preview", summary="What would a rebalance do?", response_model=RebalancePreview
)
def preview_rebalance(
    service: ServiceDep, _principal: Viewer, body: RebalancePreviewRequest | None = None
) -> Any:
    """The fewest moves that lower the peak, each with its reason. Changes nothing."""
    plan = service.app.balancer.preview(None if body is None else body.max_moves)
    return {
        "would_move": len(plan.moves),
        "would_skip": len(plan.skipped),
        "current_score": plan.before.score,
        "projected_score": plan.after.score,
        "preview": plan.moves,
        **plan._asdict(),
    }


@router.post("/rebalance", summary="Rebalance", response_model=RebalanceDocument)
def rebalance(
    service: ServiceDep, principal: Operator, body: RebalanceRequest | None = None
) -> Any:
    """Move jobs so that fewer run at once, none by more than half its interval. A job that is
    running or about to run, was moved recently, is pinned or goes by cron stays where it is."""
    fields = {} if body is None else body.model_dump()
    return service.app.balancer.rebalance(**fields, by=principal.subject)


@router.get("/rebalances", summary="List rebalances", response_model=RebalanceList)
def list_rebalances(service: ServiceDep, _principal: Viewer, limit: Limit = 20) -> Any:
    """The newest first."""
    return {"rebalances": service.app.balancer.rebalances(limit)}


@router.post(
    "/rebalance/{rebalance_id}/undo", summary="Undo a rebalance", response_model=UndoDocument
)
def undo_rebalance(rebalance_id: UUID, service: ServiceDep, principal: Operator) -> Any:
    """Put back every job that is still where the rebalance put it. Once only."""
    return service.app.balancer.undo(rebalance_id, by=principal.subject)
