"""The audit log over HTTP: who changed what."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from evenbeat.api.dependencies import Admin, ServiceDep
from evenbeat.api.fields import Id, Json, Moment, Page, PageQuery, RowDocument, fields_of
from evenbeat.api.queries import Text, Words, words_schema
from evenbeat.store.audit import ACTIONS, AuditEntry
from evenbeat.store.part import one_of

router = APIRouter(prefix="/api/v1/audit", tags=["audit"])

KINDS = tuple(dict.fromkeys(action.partition(".")[0] for action in ACTIONS))


class AuditFields(BaseModel):
    """Conditions that must all hold."""

    actor: Text = Field(None, description="Who did it: the subject of the token.")
    action: Annotated[Words, words_schema(enum=[*ACTIONS, *KINDS])] = Field(
        None, description="What was done, such as job.pause; job means all that is done to jobs."
    )
    object_id: Id | None = Field(None, description="The id of what was changed.")
    search: Text = Field(None, description="A part of the name, or of who did it.")
    since: Moment | None = None
    until: Moment | None = None

    def conditions(self) -> Json:
        """As the store takes them."""
        one_of("action", self.action, (*ACTIONS, *KINDS))
        fields: dict[str, Any] = self.model_dump(include=set(AuditFields.model_fields))
        return {"actions": fields.pop("action")} | fields


class AuditQuery(AuditFields, PageQuery):
    pass


@fields_of(AuditEntry, omit=["before", "after"])
class AuditDocument(RowDocument):
    """One change."""

    role: str = Field(description="The role that they did it in.")
    via: str = Field(description="api, dashboard or command line.")
    address: str | None = Field(description="Where the request came from.")
    ids: list[UUID] = Field(description="What was changed, where it has ids.")
    changed: int = Field(description="How many were changed.")
    before: Json | None = Field(description="What is different now, as it was.")
    after: Json | None = Field(description="As it is since then.")


class AuditList(Page):
    entries: list[AuditDocument]


@router.get("", summary="List changes")
def list_audit_entries(
    query: Annotated[AuditQuery, Query()], service: ServiceDep, _principal: Admin
) -> AuditList:
    """Who changed what, when and from where, newest first."""
    entries, total = service.store.audit.page(**query.conditions(), **query.paging)
    documents = [AuditDocument.of(entry) for entry in entries]
    return AuditList(entries=documents, total=total, **query.paging)
