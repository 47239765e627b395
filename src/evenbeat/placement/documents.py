"""Distributions and plans as the JSON documents that the API, the CLI and the dashboard share.

Names and shapes are those of the schedule API: what an operator reads in one place he finds under
the same name in the others.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Protocol
from uuid import UUID

from evenbeat.placement.distribution import Distribution
from evenbeat.placement.rebalancing import Move, RebalancePlan, SkippedJob

Document = dict[str, Any]

WINDOW_HOURS = 24
SLOT_MINUTES = 15


def distribution_document(told: Distribution) -> Document:
    """How even the schedule is. Loads are numbers of concurrent runs; slots and hours are UTC."""
    return {
        "window_hours": WINDOW_HOURS,
        "slot_minutes": SLOT_MINUTES,
        "total_jobs": told.total_jobs,
        "hourly_distribution": [
            {"hour": hour, "job_count": count} for hour, count in enumerate(told.jobs_per_hour)
        ],
        "distribution_score": round(told.score, 4),
        "peak_hour": told.peak_hour,
        "peak_count": told.peak_count,
        "suggestion": told.suggestion,
        "starts_per_slot": list(told.starts_per_slot),
        "load_per_slot": _rounded(told.load_per_slot),
        "week_load": _rounded(told.week_load),
        "week_peak": _rounded(told.week_peak),
        "expected_peak": round(told.peak_load, 3),
        "expected_mean": round(told.mean_load, 3),
        "workers_needed": told.workers_needed,
    }


class Stayed(Protocol):
    """A job that was left where it is."""

    @property
    def job_id(self) -> UUID: ...
    @property
    def name(self) -> str | None: ...
    @property
    def reason(self) -> str: ...


def preview_document(plan: RebalancePlan, plan_id: str | None = None) -> Document:
    """What a rebalance would do; `plan_id` has just this applied."""
    return {
        "plan_id": plan_id,
        "would_move": len(plan.moves),
        "would_skip": len(plan.skipped),
        "current_score": round(plan.before.score, 4),
        "projected_score": round(plan.after.score, 4),
        "preview": [
            {
                "job_id": str(move.job_id),
                "name": move.name,
                "current_time": timestamp(move.old_time),
                "proposed_time": timestamp(move.new_time),
                "reason": move.reason,
            }
            for move in plan.moves
        ],
        "skipped": skipped_documents(plan.skipped),
        "before": distribution_document(plan.before),
        "after": distribution_document(plan.after),
    }


def rebalance_document(
    rebalance_id: UUID | str,
    moved: Sequence[Move],
    skipped: Sequence[SkippedJob],
    before: Distribution,
    after: Distribution,
) -> Document:
    """What a rebalance did."""
    return {
        "id": str(rebalance_id),
        "moved": moved_documents(moved),
        "skipped": skipped_documents(skipped),
        "old_distribution_score": round(before.score, 4),
        "new_distribution_score": round(after.score, 4),
        "before": distribution_document(before),
        "after": distribution_document(after),
    }


def moved_documents(moves: Sequence[Move]) -> list[Document]:
    """Moves that were made."""
    return [
        {
            "job_id": str(move.job_id),
            "name": move.name,
            "old_time": timestamp(move.old_time),
            "new_time": timestamp(move.new_time),
            "reason": move.reason,
        }
        for move in moves
    ]


def undo_document(
    rebalance_id: UUID | str, restored: Sequence[UUID], left_alone: Sequence[Stayed]
) -> Document:
    """What an undo did."""
    return {
        "id": str(rebalance_id),
        "restored": [str(job_id) for job_id in restored],
        "left_alone": skipped_documents(left_alone),
    }


def skipped_documents(skipped: Sequence[Stayed]) -> list[Document]:
    """Jobs that stay, each with the rule that holds it."""
    return [{"job_id": str(s.job_id), "name": s.name, "reason": s.reason} for s in skipped]


def timestamp(moment: datetime) -> str:
    """A moment as the API writes it: `2026-02-04T14:15:00Z`."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, 3) for value in values]
