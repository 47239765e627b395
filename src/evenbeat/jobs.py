"""Jobs and schedules of an application, looked at and changed at run time."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar, TypedDict, Unpack
from uuid import UUID

from evenbeat.batch import Batch
from evenbeat.domain.duration import parse_duration
from evenbeat.domain.job import DurationLike, JobOptions, JobRecord, JobSpec, with_settings
from evenbeat.domain.json_values import check_document
from evenbeat.domain.limits import key_after_edit
from evenbeat.domain.retry import RetryPolicy
from evenbeat.domain.schedule import (
    KINDS,
    RECURRING_KINDS,
    After,
    AfterCondition,
    Cron,
    Interval,
    Once,
    Schedule,
)
from evenbeat.domain.scope import GLOBAL, Scope, check_scope
from evenbeat.domain.states import CANCEL, FINISHED, PAUSE, RESUME, RETRY, RUN, JobStatus, Verb
from evenbeat.errors import Conflict, InvalidInput, NotFound
from evenbeat.job import Application, Job
from evenbeat.store.lists import JobFilter
from evenbeat.store.on_loop import async_form
from evenbeat.store.part import one_of
from evenbeat.task import Task, awaited_jobs, aware, spec_with, with_key

JobReference = Job[Any] | JobRecord | UUID | str
"""A job by its handle, its row, its id, or its name."""

Records = list[JobRecord]


class JobFilters(TypedDict, total=False):
    """Which jobs are meant; several conditions must all hold."""

    status: str | Sequence[str]
    queue: str | Sequence[str]
    task: str | Task[..., Any] | Sequence[str | Task[..., Any]]
    kind: str | Sequence[str]
    name: str
    scope: Scope
    search: str
    tag: str
    metadata: Mapping[str, Any]
    created_by: str
    due_before: datetime
    created_after: datetime
    created_before: datetime
    batch: Batch | UUID


class Jobs:
    """Every job, whoever added it. A job is named by its handle, its id, or its name in the scope;
    each method has an async form, such as `await app.jobs.pause_async("nightly")`."""

    _kinds: ClassVar[tuple[str, ...] | None] = None

    def __init__(self, app: Application) -> None:
        self._app = app

    def list(
        self,
        *,
        sort: str = "-created_at",
        limit: int = 50,
        offset: int = 0,
        **filters: Unpack[JobFilters],
    ) -> Records:
        """Those that match, newest first unless sorted otherwise."""
        job_filter = self._filter(filters)
        return self._app.store.read.jobs(job_filter, sort=sort, limit=limit, offset=offset).jobs

    def count(self, **filters: Unpack[JobFilters]) -> int:
        """How many match; of very many, the figure may be that of the last count."""
        job_filter = self._filter(filters)
        return self._app.store.read.jobs(job_filter, limit=1).total

    def get(self, job: JobReference, *, scope: Scope = GLOBAL) -> JobRecord:
        """One of them, or `NotFound`."""
        if isinstance(job, Job | JobRecord):
            job = job.id
        try:
            record = self._app.store.read.job(UUID(str(job)))
        except ValueError:
            by_name = self._app.store.read.job_by_name(str(job), check_scope(scope))
            if by_name is None:
                raise NotFound("job", repr(job), by="name") from None
            record = by_name
        if self._kinds is not None and record.schedule_kind not in self._kinds:
            raise InvalidInput(
                f"The job {record.id} ({record.task}) has no schedule: it runs once. It is in "
                "app.jobs.",
                field="job",
            )
        return record

    def update(
        self,
        job: JobReference,
        *,
        scope: Scope = GLOBAL,
        every: DurationLike | None = None,
        cron: str | None = None,
        at: datetime | None = None,
        after: Any = None,
        on: AfterCondition | str | None = None,
        timezone: str | None = None,
        name: str | None = None,
        payload: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        retry: RetryPolicy | None = None,
        **settings: Unpack[JobOptions],
    ) -> JobRecord:
        """Change what is given and leave the rest; a setting that is None is taken away. `payload`
        takes the place of all arguments and
        is checked by the task. A changed schedule is planned again; a run in progress ends under
        the old definition."""
        record = self.get(job, scope=scope)
        schedule = schedule_from(
            every=every, cron=cron, at=at, after=after, on=on, timezone=timezone
        )
        if isinstance(schedule, Once):
            if record.schedule_kind != Once.kind:
                raise InvalidInput(
                    "at moves a job that runs once, and this one has a schedule. Give every, cron "
                    "or after, or run it now.",
                    field="at",
                )
            if record.status in FINISHED:
                raise Conflict(
                    f"The job is {record.status}, so its run cannot be moved. Run it again by "
                    "run_now()."
                )
        for field, document in (("payload", payload), ("metadata", metadata)):
            if document is not None:
                check_document(field, document)
        template = None
        if payload is not None:
            from evenbeat.named_task import resolved_task  # noqa: PLC0415 - loads jsonschema

            now, registry = self._app.now(), self._app.registry
            task = resolved_task(record.task, registry, self._app.store, now)
            payload, template = task.checked(payload), task.spec.concurrency_key

        def edit(spec: JobSpec) -> JobSpec:
            edited = spec_with(spec, settings, retry, "update()", Jobs.update.__kwdefaults__ or ())
            edited = with_settings(edited, {n: None for n, v in settings.items() if v is None})
            edited = edited if schedule is None else replace(edited, schedule=schedule)
            if settings.get("concurrency_key") is not None:
                edited = with_key(edited, record.payload if payload is None else payload)
            elif payload is not None and "concurrency_key" not in settings:
                key = key_after_edit(edited.concurrency_key, template, record.payload, payload)
                edited = replace(edited, concurrency_key=key)
            self._app.registry.check_limits(edited)
            return edited

        return self._app.store.control.update(
            record.id,
            edit,
            payload=payload,
            metadata=metadata,
            name=name,
            rewiring=isinstance(schedule, After),
            now=self._app.now(),
        )

    def pause(self, job: JobReference, *, scope: Scope = GLOBAL) -> JobRecord:
        """Keep it from running; a run in progress is finished first."""
        return self._apply(PAUSE, job, scope)

    def resume(self, job: JobReference, *, scope: Scope = GLOBAL) -> JobRecord:
        """Let it run again, at the next plan of its rhythm."""
        return self._apply(RESUME, job, scope)

    def run_now(self, job: JobReference, *, scope: Scope = GLOBAL) -> JobRecord:
        """Run it now, besides its schedule; its rhythm stays."""
        return self._apply(RUN, job, scope)

    def retry(self, job: JobReference, *, scope: Scope = GLOBAL) -> JobRecord:
        """Run a failed or cancelled one again, now, with its retries back at 0."""
        return self._apply(RETRY, job, scope)

    def cancel(self, job: JobReference, *, scope: Scope = GLOBAL) -> JobRecord:
        """End it. A run in progress is stopped, and its result thrown away."""
        return self._apply(CANCEL, job, scope)

    def delete(self, job: JobReference, *, scope: Scope = GLOBAL, force: bool = False) -> None:
        """Remove it with its history. One that others wait for stays, unless by `force`: then they
        go on waiting."""
        id_ = self.get(job, scope=scope).id
        self._app.store.control.delete([id_], force=force, now=self._app.now()).only()

    list_async = async_form(list)  # noqa: A003 - that of this class
    count_async = async_form(count)
    get_async = async_form(get)
    update_async = async_form(update)
    pause_async = async_form(pause)
    resume_async = async_form(resume)
    run_now_async = async_form(run_now)
    retry_async = async_form(retry)
    cancel_async = async_form(cancel)
    delete_async = async_form(delete)

    def _apply(self, verb: Verb, job: JobReference, scope: Scope) -> JobRecord:
        id_ = self.get(job, scope=scope).id
        return self._app.store.control.apply(verb, [id_], now=self._app.now()).only()

    def _filter(self, filters: JobFilters) -> JobFilter:
        if unknown := filters.keys() - JobFilters.__annotations__.keys():
            known = ", ".join(JobFilters.__annotations__)
            raise TypeError(f"There is no filter {min(unknown)!r}. There are: {known}.")
        conditions: dict[str, Any] = dict(filters)
        for one, many in _SEVERAL.items():
            if (words := conditions.pop(one, None)) is not None:
                conditions[many] = _words(one, words)
        for field in ("due_before", "created_after", "created_before"):
            if field in conditions:
                aware(conditions[field], field)
        one_of("status", conditions.get("statuses"), tuple(JobStatus))
        one_of("kind", conditions.get("kinds"), tuple(KINDS))
        if (batch := conditions.get("batch")) is not None:
            conditions["batch"] = getattr(batch, "id", batch)
        if (scope := conditions.pop("scope", None)) is not None:
            conditions |= {"scope_kind": check_scope(scope).kind, "scope_id": scope.id}
        if self._kinds is not None:
            kinds = conditions.get("kinds", self._kinds)
            conditions["kinds"] = [kind for kind in kinds if kind in self._kinds]
        return JobFilter(**conditions)


class Schedules(Jobs):
    """The jobs with a schedule: `every`, `cron` and `after`, declared in code or at run time."""

    _kinds = (*RECURRING_KINDS, After.kind)


_SEVERAL = {"status": "statuses", "queue": "queues", "task": "tasks", "kind": "kinds"}


def _words(field: str, given: Any) -> list[str]:
    """One word or several, as a list; none must not mean any."""
    several = [given] if isinstance(given, str | Task) or not isinstance(given, Iterable) else given
    words = [one.name if isinstance(one, Task) else one for one in several]
    if not words:
        raise InvalidInput(f"{field} is an empty list, by which no job is meant.", field=field)
    if wrong := [word for word in words if not isinstance(word, str)]:
        raise InvalidInput(
            f"{field} must be a text or a list of texts, such as {field}=[{field!r}]; got "
            f"{wrong[0]!r}.",
            field=field,
        )
    return words


def schedule_from(
    *,
    every: DurationLike | None,
    cron: str | None,
    at: datetime | None,
    after: Any,
    on: AfterCondition | str | None,
    timezone: str | None,
) -> Schedule | None:
    """The schedule that these arguments describe; None where none of them is given."""
    schedules = {"every": every, "cron": cron, "at": at, "after": after}
    names = [name for name, value in schedules.items() if value is not None]
    if len(names) > 1:
        raise InvalidInput(
            f"{' and '.join(names)} each say when to run. Give one of every, cron, at and after.",
            field=names[1],
        )
    if timezone is not None and cron is None:
        raise InvalidInput(
            "timezone is that of a cron expression; give cron, too.", field="timezone"
        )
    if on is not None and after is None:
        raise InvalidInput("on says how jobs must end; name them by after.", field="on")
    if every is not None:
        return Interval(parse_duration(every, field="every"))
    if cron is not None:
        return Cron(cron, timezone or "UTC")
    if at is not None:
        return Once(aware(at, "at"))
    return None if after is None else awaited_jobs(after, on)
