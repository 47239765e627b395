"""Limits that jobs with one key share, over HTTP: how they stand, and setting them."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from evenbeat.api.dependencies import DENIED, Operator, ServiceDep, Viewer
from evenbeat.api.field_types import Limit, Offset, RateText
from evenbeat.api.models import Page, fields_of
from evenbeat.api.problems import responses
from evenbeat.api.requests import Request
from evenbeat.domain.limits import MAX_RUNNING, KeyLimit
from evenbeat.domain.setting_kinds import MAX_NAME

router = APIRouter(prefix="/api/v1", tags=["limits"], responses=DENIED)

KeyInPath = Annotated[str, Path(min_length=1, max_length=MAX_NAME)]


@fields_of(KeyLimit, omit=["max_running"])
class LimitDocument(BaseModel):
    """A key, its limits, and how it stands."""

    concurrency_limit: int | None = Field(description="How many may run at once; null: any number.")
    rate_limit: str | None = Field(description="How often one may start; null: at any time.")
    next_start_at: datetime | None = Field(description="When the rate lets the next one start.")
    is_set: bool = Field(description="Set by an operator, whatever its jobs ask for.")
    waiting: int = Field(description="Counted up to 1000.")


class LimitList(Page):
    """A page of keys."""

    limits: list[LimitDocument]


class LimitChange(Request):
    """The new limits of a key. Give one of them, or both; what is left out is not limited."""

    concurrency_limit: Annotated[int, Field(ge=1, le=MAX_RUNNING)] | None = None
    rate_limit: RateText | None = None


@router.get("/limits", summary="List keys and their limits")
def list_limits(
    service: ServiceDep,
    _principal: Viewer,
    limit: Annotated[Limit, Query()] = 50,
    offset: Annotated[Offset, Query()] = 0,
) -> LimitList:
    """Every known concurrency key, with how many jobs run and wait. A key is known from its first
    job on, and forgotten when it has been without jobs for a day and nobody has set it."""
    page = service.app.store.limits.page(limit=limit, offset=offset)
    documents = [_document(key_limit) for key_limit in page.limits]
    return LimitList(limits=documents, total=page.total, limit=limit, offset=offset)


@router.get("/limits/{key:path}", summary="Get a key", responses=responses(404))
def get_limit(key: KeyInPath, service: ServiceDep, _principal: Viewer) -> LimitDocument:
    """One key as it stands."""
    return _document(service.app.store.limits.get(key))


@router.put("/limits/{key:path}", summary="Set the limits of a key")
def set_limit(
    key: KeyInPath, body: LimitChange, service: ServiceDep, _principal: Operator
) -> LimitDocument:
    """From now on these apply to the key, whatever its jobs ask for. What runs goes on."""
    return _document(
        service.app.store.limits.put(
            key, max_running=body.concurrency_limit, rate=body.rate_limit, now=service.now
        )
    )


@router.delete("/limits/{key:path}", summary="Leave a key to its jobs", responses=responses(404))
def reset_limit(key: KeyInPath, service: ServiceDep, _principal: Operator) -> LimitDocument:
    """Take back what was set: what its jobs ask for applies again."""
    return _document(service.app.store.limits.reset(key, now=service.now))


def _document(limit: KeyLimit) -> LimitDocument:
    return LimitDocument.model_validate(limit._asdict() | {"concurrency_limit": limit.max_running})
