"""Schedules declared in code, and how the database is brought in line with them."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from evenbeat.domain.dependencies import Dependency
from evenbeat.domain.duration import format_duration, parse_duration
from evenbeat.domain.job import (
    DurationLike,
    Job,
    JobOptions,
    JobSpec,
    NewJob,
    Placement,
    scope_of,
    spec_columns,
    spec_of,
)
from evenbeat.domain.retry import RetryPolicy
from evenbeat.domain.schedule import After, Interval, Schedule
from evenbeat.domain.scope import GLOBAL, Scope
from evenbeat.errors import InvalidInput
from evenbeat.store.lists import JobFilter
from evenbeat.store.store import Store

logger = logging.getLogger(__name__)

ScopeProvider = Callable[[], Iterable[Scope]]

_STOPPED = "stopped_by_sync"


class TaskOptions(JobOptions, total=False):
    """What a decorator takes: the settings of its jobs, and what belongs to the task itself."""

    name: str
    isolate: bool
    never_retry: Sequence[type[BaseException]]
    retry: RetryPolicy


class ScheduleOptions(TaskOptions, total=False):
    """What `every`, `cron` and `after` take besides."""

    schedule_name: str
    payload: Mapping[str, Any]
    scopes: ScopeProvider


@dataclass(frozen=True, slots=True)
class DeclaredSchedule:
    """One schedule of the code: its name is its identity across releases."""

    name: str
    spec: JobSpec
    payload: Mapping[str, Any] = field(default_factory=dict)
    scopes: ScopeProvider | None = None

    def current_scopes(self) -> list[Scope]:
        """The scopes that should have a row now."""
        return [GLOBAL] if self.scopes is None else list(dict.fromkeys(self.scopes()))


@dataclass(slots=True)
class SyncReport:
    """What a synchronisation did, by the names of the schedules (with scope, where not global)."""

    created: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    resumed: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)

    @property
    def changed(self) -> int:
        """How many rows are different now."""
        return len(self.created) + len(self.updated) + len(self.resumed) + len(self.stopped)


def static_scopes(*scopes: Scope) -> ScopeProvider:
    """A provider for scopes that never change."""
    return lambda: scopes


def periodic_spec(
    name: str,
    task_spec: JobSpec,
    *,
    cadence: DurationLike,
    run_timeout: DurationLike,
    stale_timeout: DurationLike,
    heartbeat_interval: DurationLike,
    max_attempts: int = 4,
    retry_backoff: Sequence[DurationLike] = (),
) -> JobSpec:
    """A periodic job in full, as plan buckets on the epoch's grid; every rule is checked here, by
    errors that name the job and the values."""

    def error(field_name: str, problem: str) -> InvalidInput:
        return InvalidInput(f"Job {name!r}: {problem}.", field=field_name)

    def duration(field_name: str, value: DurationLike) -> timedelta:
        try:
            return parse_duration(value)
        except InvalidInput as wrong:
            raise error(field_name, f"{field_name}: {str(wrong).rstrip('.')}") from None

    if not name.strip():
        raise InvalidInput("A periodic job needs a name that stays the same.", field="name")
    spans = {
        "cadence": cadence,
        "run_timeout": run_timeout,
        "stale_timeout": stale_timeout,
        "heartbeat_interval": heartbeat_interval,
    }
    durations = {field_name: duration(field_name, value) for field_name, value in spans.items()}
    for field_name, value in durations.items():
        if value <= timedelta(0):
            got = spans[field_name]
            raise error(field_name, f"{field_name} must be longer than zero, got {got!r}")
    every, timeout, lease, heartbeat = durations.values()
    for other in ("run_timeout", "heartbeat_interval"):
        if lease <= durations[other]:
            bound = f"{other} ({format_duration(durations[other])})"
            problem = f"stale_timeout ({format_duration(lease)}) must be longer than {bound}"
            raise error("stale_timeout", problem)
    if max_attempts < 1:
        raise error("max_attempts", f"max_attempts must be at least 1, got {max_attempts}")
    delays = tuple(duration("retry_backoff", delay) for delay in retry_backoff)
    return replace(
        task_spec,
        schedule=Interval(every),
        placement=Placement.GRID,
        retry=RetryPolicy(max_retries=max_attempts - 1 if delays else 0, delays=delays),
        timeout=timeout,
        lease=lease,
        heartbeat=heartbeat,
    )


class ScheduleSync:
    """Brings the rows of one application's schedules in line with its code. Safe when many
    processes start at once: one works, the others wait and find nothing to do."""

    def __init__(self, store: Store, owner: str) -> None:
        self._store = store
        self._owner = owner

    def run_once(
        self,
        declared: Sequence[DeclaredSchedule],
        *,
        disable_removed: bool = False,
        now: datetime | None = None,
    ) -> SyncReport:
        """Add what is new, update what changed, stop scopes that are gone, report what the code no
        longer declares (and stop that too when asked)."""
        report = SyncReport()
        expected = {(d.name, scope): d for d in declared for scope in d.current_scopes()}
        names = {d.name for d in declared}
        with self._store.upkeep.exclusive("schedule_sync"):
            mine = self._store.read.each(JobFilter(created_by=self._owner))
            present = {(job.name or "", scope_of(job)): job for job in mine}
            self._add_missing(expected, present, report, now)
            waiting = [job.id for job in present.values() if job.schedule_kind == "after"]
            awaited = self._store.dependencies.awaited_by(waiting) if waiting else {}
            for key, job in present.items():
                if key in expected:
                    waits = awaited.get(job.id, ())
                    self._bring_in_line(job, expected[key], report, now, waits)
                elif job.name in names or disable_removed:
                    self._stop(job, report, now)
                if job.name not in names and _STOPPED not in job.metadata:
                    report.removed.append(_label(key))
        return report

    def _add_missing(
        self,
        expected: Mapping[tuple[str, Scope], DeclaredSchedule],
        present: Mapping[tuple[str, Scope], Job],
        report: SyncReport,
        now: datetime | None,
    ) -> None:
        missing = [key for key in expected if key not in present]
        jobs = [
            NewJob(
                expected[key].spec,
                expected[key].payload,
                name=key[0],
                scope=key[1],
                created_by=self._owner,
            )
            for key in missing
        ]
        for key, added in zip(missing, self._store.add_many(jobs, now=now), strict=True):
            if added.created:
                report.created.append(_label(key))
            else:
                raise InvalidInput(
                    f"The schedule {_label(key)!r} cannot be declared in code: a job of that name "
                    f"was made elsewhere (id {added.id}). Rename one of them, or delete that job.",
                    field="name",
                )

    def _bring_in_line(
        self,
        job: Job,
        declared: DeclaredSchedule,
        report: SyncReport,
        now: datetime | None,
        awaited: Sequence[Dependency] = (),
    ) -> None:
        label = _label((declared.name, scope_of(job)))
        if _differs(job, declared) or _waits_for_others(declared.spec.schedule, awaited):
            self._store.control.update(
                job.id,
                lambda _old: declared.spec,
                payload=declared.payload,
                rewiring=isinstance(declared.spec.schedule, After),
                now=now,
            )
            report.updated.append(label)
        if _STOPPED in job.metadata:
            metadata = {name: value for name, value in job.metadata.items() if name != _STOPPED}
            self._store.control.update(job.id, metadata=metadata, now=now)
            self._store.control.resume([job.id], now=now)
            report.resumed.append(label)

    def _stop(self, job: Job, report: SyncReport, now: datetime | None) -> None:
        if _STOPPED in job.metadata:
            return
        self._store.control.update(job.id, metadata=job.metadata | {_STOPPED: True}, now=now)
        self._store.control.pause([job.id], now=now)
        report.stopped.append(_label((job.name or "", scope_of(job))))


def _differs(job: Job, declared: DeclaredSchedule) -> bool:
    """Whether a person would see a difference; where in its rhythm the job stands is not one."""
    return spec_columns(spec_of(job)) != spec_columns(declared.spec) or job.payload != dict(
        declared.payload
    )


def _waits_for_others(schedule: Schedule, awaited: Sequence[Dependency]) -> bool:
    """Whether a job that runs after others should wait for other ones than it does."""
    if not isinstance(schedule, After):
        return False
    known = {(reference, one.wanted) for one in awaited for reference in (one.id, one.name)}
    return len(schedule.jobs) != len(awaited) or any(
        (one.job, str(one.on)) not in known for one in schedule.jobs
    )


def _label(key: tuple[str, Scope]) -> str:
    name, scope = key
    return name if scope == GLOBAL else f"{name} [{scope}]"
