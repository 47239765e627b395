"""From rows to answers."""

from collections.abc import Sequence
from typing import Any

from evenbeat.api.answers import (
    JOB_EXTRAS,
    AwaitedDocument,
    DependentDocument,
    ExecutionDocument,
    JobDocument,
    JobStatsDocument,
    ScopeDocument,
)
from evenbeat.domain.dependencies import Dependency, Dependent
from evenbeat.domain.execution import Execution
from evenbeat.domain.job import BY_NAME, Job, schedule_of, settings_of_row
from evenbeat.domain.schedule import Recurring
from evenbeat.observe.explain import describe_schedule
from evenbeat.store.reads import JobStats

_SAME_NAME = tuple((set(JobDocument.model_fields) & set(Job._fields)) - BY_NAME.keys())
_EXECUTION_FIELDS = tuple(
    set(ExecutionDocument.model_fields) & set(Execution._fields)
    - {"items_crawled", "items_indexed", "metadata", "result"}
)  # fmt: skip


def job_document(
    job: Job,
    *,
    warnings: Sequence[str] = (),
    duplicate: bool = False,
    awaited: Sequence[Dependency] = (),
    dependents: Sequence[Dependent] = (),
) -> JobDocument:
    """A job as answered. Columns go by their names; the rest is worked out here."""
    schedule = schedule_of(job)
    extras: dict[str, Any] = {}
    for more in JOB_EXTRAS:
        extras |= more(job)
    return JobDocument(
        **{name: plain(getattr(job, name)) for name in _SAME_NAME},
        **settings_of_row(job),
        **extras,
        aged=job.aging_bonus,
        url=_text(job.payload.get("url")),
        source_id=_text(job.payload.get("source_id")),
        source_name=_text(job.payload.get("source_name")),
        description=_text(job.metadata.get("description")),
        tags=_tags(job.metadata.get("tags")),
        schedule=schedule.text,
        schedule_text=describe_schedule(job, awaited),
        schedule_enabled=isinstance(schedule, Recurring),
        scope=ScopeDocument(kind=job.scope_kind, id=job.scope_id),
        after=[_awaited(one) for one in awaited] or None,
        dependents=[_dependent(one) for one in dependents] or None,
        duplicate=duplicate or None,
        warnings=list(warnings) or None,
    )


def _awaited(one: Dependency) -> AwaitedDocument:
    return AwaitedDocument.model_validate({
        "job": one.id,
        "name": one.name,
        "on": one.wanted,
        "satisfied": one.satisfied,
        "status": one.status,
        "scope": None if one.scope == "global/global" else one.scope,
    })  # fmt: skip


def _dependent(one: Dependent) -> DependentDocument:
    return DependentDocument.model_validate(
        {"job": one.id, "name": one.name, "on": one.wanted, "status": one.status}
    )


def execution_document(execution: Execution) -> ExecutionDocument:
    """An execution as answered."""
    return ExecutionDocument(
        **{name: plain(getattr(execution, name)) for name in _EXECUTION_FIELDS},
        items_crawled=execution.items_crawled or 0,
        items_indexed=execution.items_indexed or 0,
        result=execution.result,
        metadata=execution.metadata or {},
    )


def stats_document(stats: JobStats) -> JobStatsDocument:
    """A job's history in figures, as answered."""
    return JobStatsDocument(**{name: plain(value) for name, value in stats._asdict().items()})


def plain(value: Any) -> Any:
    """Whole numbers without a fraction, others to the thousandth; all else as it is."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else round(value, 3)
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _tags(value: Any) -> list[str]:
    return [tag for tag in value if isinstance(tag, str)] if isinstance(value, list) else []
