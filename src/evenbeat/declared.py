"""Schedules declared in code, and how the database is brought in line with them."""

import hashlib
import inspect
import logging
import re
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from evenbeat.domain.dependencies import Dependency
from evenbeat.domain.duration import format_duration, parse_duration
from evenbeat.domain.first_run import in_its_place
from evenbeat.domain.job import (
    CommonOptions,
    DurationLike,
    JobOptions,
    JobRecord,
    JobSpec,
    NewJob,
    Placement,
    scope_of,
    spec_columns,
    spec_of,
)
from evenbeat.domain.retry import RetryPolicy
from evenbeat.domain.schedule import After, Interval
from evenbeat.domain.scope import GLOBAL, Scope
from evenbeat.errors import InvalidInput
from evenbeat.store.bulk import Added
from evenbeat.store.dependencies import PredecessorMissing
from evenbeat.store.lists import JobFilter
from evenbeat.store.store import Store
from evenbeat.store.summaries import SILENT_AFTER
from evenbeat.store.upkeep import WAITING_SCHEDULES, ApplicationCode
from evenbeat.tasks.hooks import Middleware

logger = logging.getLogger(__name__)


class ScopeContext(NamedTuple):
    """For which schedule of which application a provider is asked for scopes."""

    schedule: str
    application: str


ScopeProvider = Callable[[], Iterable[Scope]] | Callable[[ScopeContext, datetime], Iterable[Scope]]

_STOPPED = "stopped_by_sync"

DEFAULT_NAME = "app"
"""The name of an application that was given none."""
_DEFAULT_OWNER = f"code:{DEFAULT_NAME}"


def version_numbers(version: str | None) -> tuple[int, ...]:
    """A version as it is compared: number by number. Without one, an application is older than any
    that has one."""
    return tuple(int(number) for number in re.findall(r"\d+", version or ""))


def check_version(version: str | None) -> str | None:
    """The version, if it can be compared."""
    if version is not None and not re.fullmatch(r"v?\d+([-._:T+]\d+)*", str(version)):
        raise InvalidInput(
            f"The version {version!r} cannot be compared with others. It must be numbers that grow "
            'with each release, such as "412", "1.4.2" or "2026-11-18.3".',
            field="version",
        )
    return version and str(version)


class TaskOptions(JobOptions, total=False):
    """What a decorator takes: the settings of its jobs, and what belongs to the task itself."""

    name: str
    aliases: Sequence[str]
    isolate: bool
    retry: RetryPolicy
    around: Sequence[Middleware]


class PeriodicOptions(CommonOptions, total=False):
    """What `periodic` takes besides its own rules."""

    isolate: bool
    around: Sequence[Middleware]


class ScheduleOptions(TaskOptions, total=False):
    """What `every`, `cron` and `after` take besides."""

    schedule_name: str
    payload: Mapping[str, Any]
    scopes: ScopeProvider


@dataclass(frozen=True, slots=True)
class DeclaredSchedule:
    """One schedule of the code: its name is its identity across releases. A new row of one that is
    `periodic` begins with the plan bucket of the present. `former_names` are those that it had
    while its task had another."""

    name: str
    spec: JobSpec
    payload: Mapping[str, Any] = field(default_factory=dict)
    scopes: ScopeProvider | None = None
    periodic: bool = False
    former_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.scopes is not None and _fitting(self.scopes, (), (None, None)) is None:
            raise InvalidInput(
                f"The scopes of {self.name!r} must be a function that takes nothing or (ctx, now) "
                f"and returns Scopes; got {self.scopes!r}. For scopes that never change there is "
                "static_scopes(Scope(...)).",
                field="scopes",
            )

    def current_scopes(self, application: str, now: datetime) -> list[Scope]:
        """The scopes that should have a row now. What the application's provider raises is let
        through."""
        if self.scopes is None:
            return [GLOBAL]
        context = ScopeContext(self.name, application), now
        scopes: list[Any] = list(self.scopes(*(_fitting(self.scopes, (), context) or ())))
        if wrong := [scope for scope in scopes if not isinstance(scope, Scope)]:
            raise TypeError(f"it returned {wrong[0]!r}, which is no Scope")
        return list(dict.fromkeys(scopes))

    def first_bucket(self, now: datetime) -> datetime | None:
        """The plan that a new row begins with, where the schedule does not decide."""
        if not self.periodic or not isinstance(self.spec.schedule, Interval):
            return None
        return self.spec.schedule.on_grid().latest_until(now - self.spec.schedule_delay)


def _fitting(function: object, *choices: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The first of these arguments that a function can be called with."""
    for arguments in choices:
        try:
            inspect.signature(function).bind(*arguments)  # type: ignore[arg-type]
        except TypeError:
            continue
        return arguments
    return None


def fingerprint(declared: Iterable[DeclaredSchedule]) -> str:
    """Tells apart the schedules of two releases."""
    parts = sorted(
        repr((one.name, spec_columns(one.spec), dict(one.payload), one.scopes is not None))
        for one in declared
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


@dataclass(slots=True)
class SyncReport:
    """What a synchronisation did, by the names of the schedules (with scope, where not global)."""

    created: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    resumed: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    """What a live worker of newer code declares in another way: that one sees to it."""
    failed: list[str] = field(default_factory=list)
    """Schedules whose provider of scopes failed: their rows stay as they are."""
    waiting: dict[str, str] = field(default_factory=dict)
    """Schedules that run after a job that is not there, and its name: tried again by the next
    synchronisation."""

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
    spans: Mapping[str, DurationLike],
    max_attempts: int,
    retry_backoff: Sequence[DurationLike],
) -> JobSpec:
    """A periodic job in full, as plan buckets on the epoch's grid; every rule is checked here, by
    errors that name the job and the values."""

    def check(is_valid: bool, field_name: str, rule: str) -> None:
        if not is_valid:
            raise InvalidInput(f"Job {name!r}: {field_name} {rule}.", field=field_name)

    def duration(field_name: str, value: DurationLike) -> timedelta:
        try:
            return parse_duration(value)
        except InvalidInput as wrong:
            raise InvalidInput(f"Job {name!r}: {field_name}: {wrong}", field=field_name) from None

    if not name.strip():
        raise InvalidInput("A periodic job needs a name that stays the same.", field="name")
    durations = {field_name: duration(field_name, value) for field_name, value in spans.items()}
    for field_name, value in durations.items():
        rule = f"must be longer than zero, got {spans[field_name]!r}"
        check(value > timedelta(0), field_name, rule)
    every, timeout, lease, heartbeat = durations.values()
    for other in ("run_timeout", "heartbeat_interval"):
        bound = f"{other} ({format_duration(durations[other])})"
        rule = f"({format_duration(lease)}) must be longer than {bound}"
        check(lease > durations[other], "stale_timeout", rule)
    check(max_attempts >= 1, "max_attempts", f"must be at least 1, got {max_attempts}")
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
    processes start at once: one works, the others wait and find nothing to do. Safe when two
    releases run beside each other: the older one leaves alone what the newer one has."""

    def __init__(
        self,
        store: Store,
        code: ApplicationCode,
        *,
        started_at: datetime,
        own_workers: Collection[UUID] = (),
        warned: dict[str, str] | None = None,
        now: datetime | None,
    ) -> None:
        """Of two releases without a version, the newer one is that which was started later.
        `warned` remembers from one time to the next which missing jobs the log has named."""
        self._store = store
        self._code = code
        self._owner = f"code:{code.name}"
        self._age = (version_numbers(code.version), started_at)
        self._own_workers = own_workers
        self._warned = {} if warned is None else warned
        self._now = now
        self._report = SyncReport()

    def run_once(
        self, declared: Collection[DeclaredSchedule], *, disable_removed: bool
    ) -> SyncReport:
        """Add what is new, update what changed, stop scopes that are gone, report what the code no
        longer declares (and stop that too when asked)."""
        left = self._tasks_of_newer_code()
        self._report.left += [one.name for one in declared if one.spec.task in left]
        declared = [one for one in declared if one.spec.task not in left]
        now = self._store.clock(self._now)
        expected = {(one.name, scope): one for one in declared for scope in self._scopes(one, now)}
        names = {one.name for one in declared}
        with self._store.upkeep.exclusive("schedule_sync"):
            mine = self._store.read.each(JobFilter(created_by=self._owner))
            mine = (job for job in mine if job.task not in left)
            present = {(job.name or "", scope_of(job)): job for job in mine}
            self._rename(expected, present)
            self._add({key: one for key, one in expected.items() if key not in present}, now)
            waiting = [job.id for job in present.values() if job.schedule_kind == "after"]
            awaited = self._store.dependencies.awaited_by(waiting) if waiting else {}
            for key, job in present.items():
                if job.name in self._report.failed:
                    continue
                if key in expected:
                    self._bring_in_line(job, expected[key], awaited.get(job.id, ()))
                elif (job.name in names or disable_removed) and _STOPPED not in job.metadata:
                    stopped = job.metadata | {_STOPPED: True}
                    self._store.control.update(job.id, metadata=stopped, now=self._now)
                    self._store.control.pause([job.id], now=self._now)
                    self._report.stopped.append(_label(key))
                if job.name not in names and _STOPPED not in job.metadata:
                    self._report.removed.append(_label(key))
        self._note_waiting()
        return self._report

    def _note_waiting(self) -> None:
        """Say which schedules wait for a job that is not there: in the log when that is news, and
        to all who ask what needs a person."""
        name, waiting = f"{WAITING_SCHEDULES}{self._code.name}", self._report.waiting
        figure = self._store.upkeep.figures().get(name)
        known: dict[str, str] = {} if figure is None else figure.value
        for schedule, job in waiting.items():
            if self._warned.get(schedule) != job:
                self._warned[schedule] = job
                logger.warning(
                    "The schedule %r runs after %r, and there is no such job: it is left out until "
                    "somebody adds one. Every minute looks again.",
                    schedule,
                    job,
                    extra={"application": self._code.name},
                )
        if known != waiting:
            self._store.upkeep.save_figure(name, waiting, now=self._now)

    def _scopes(self, declared: DeclaredSchedule, now: datetime) -> list[Scope]:
        """Its scopes; none where the application's provider fails, which is the application's to
        mend and must harm neither other schedules nor the worker that starts."""
        try:
            return declared.current_scopes(self._code.name, now)
        except (Exception, SystemExit) as error:
            provider = f"{getattr(declared.scopes, '__qualname__', declared.scopes)}"
            logger.exception(
                "The application's scope provider %s of the schedule %r failed (%s). The jobs of "
                "this schedule stay as they are until it works again.",
                f"{getattr(declared.scopes, '__module__', '?')}.{provider}",
                declared.name,
                "".join(traceback.format_exception_only(error)).strip(),
                extra={"application": self._code.name},
            )
            self._report.failed.append(declared.name)
            return []

    def _tasks_of_newer_code(self) -> set[str]:
        """The tasks of live workers whose release is newer and declares other schedules."""
        workers = self._store.upkeep.code_at_work(
            self._code.name, silent=SILENT_AFTER, now=self._now
        )
        return {
            task
            for worker in workers
            if worker.schedules != self._code.schedules
            and worker.worker_id not in self._own_workers
            and (version_numbers(worker.version), worker.started_at) > self._age
            for task in worker.tasks or ()
        }

    def _add(self, missing: Mapping[tuple[str, Scope], DeclaredSchedule], now: datetime) -> None:
        jobs = [
            NewJob(
                one.spec,
                one.payload,
                start=one.first_bucket(now),
                name=name,
                scope=scope,
                created_by=self._owner,
            )
            for (name, scope), one in missing.items()
        ]
        for key, added in self._added(dict(zip(missing, jobs, strict=True))).items():
            if not added.created and self._adopt(added.id, missing[key]):
                continue
            if not added.created:
                raise InvalidInput(
                    f"The schedule {_label(key)!r} cannot be declared in code: a job of that name "
                    f"was made elsewhere (id {added.id}). Rename one of them, or delete that job.",
                    field="name",
                )
            self._report.created.append(_label(key))

    def _added(self, jobs: dict[tuple[str, Scope], NewJob]) -> dict[tuple[str, Scope], Added]:
        """Add them, but for those that run after a job that is not there: somebody may add that
        any moment, and until then the rest must run."""
        while True:
            try:
                added = self._store.add_many(list(jobs.values()), now=self._now)
            except PredecessorMissing as error:
                for key, job in list(jobs.items()):
                    if _runs_after(job.spec, error.job):
                        self._report.waiting[_label(key)] = error.job
                        del jobs[key]
            else:
                return dict(zip(jobs, added, strict=True))

    def _adopt(self, job_id: UUID, declared: DeclaredSchedule) -> bool:
        """Whether a row is this application's by another name: it had none before, or (rolled back)
        has none any more. The same schedule of the same task is the same; it keeps its rhythm."""
        job = self._store.read.job(job_id)
        owner = job.created_by or ""
        if (
            not owner.startswith("code:")
            or job.task != declared.spec.task
            or _DEFAULT_OWNER not in (owner, self._owner)
        ):
            return False
        if owner == _DEFAULT_OWNER:
            self._store.control.set_owner(job_id, self._owner)
        awaited = self._store.dependencies.awaited_by([job_id])
        self._bring_in_line(job, declared, awaited.get(job_id, ()))
        return True

    def _rename(
        self,
        expected: Mapping[tuple[str, Scope], DeclaredSchedule],
        present: dict[tuple[str, Scope], JobRecord],
    ) -> None:
        """Rows that are named after the former name of a task get the name of the present one."""
        for (name, scope), one in expected.items():
            for former in one.former_names:
                if (name, scope) not in present and (former, scope) in present:
                    job = present.pop((former, scope))
                    present[name, scope] = self._store.control.update(
                        job.id, name=name, now=self._now
                    )

    def _bring_in_line(
        self, job: JobRecord, declared: DeclaredSchedule, awaited: Sequence[Dependency]
    ) -> None:
        control, label = self._store.control, _label((declared.name, scope_of(job)))
        if _differs(job, declared, awaited):
            try:
                control.update(
                    job.id,
                    lambda _old: declared.spec,
                    payload=declared.payload,
                    rewiring=isinstance(declared.spec.schedule, After),
                    now=self._now,
                )
                self._report.updated.append(label)
            except PredecessorMissing as error:
                self._report.waiting[label] = error.job
        if _STOPPED in job.metadata:
            metadata = {name: value for name, value in job.metadata.items() if name != _STOPPED}
            control.update(job.id, metadata=metadata, now=self._now)
            control.resume([job.id], now=self._now)
            self._report.resumed.append(label)


def _differs(job: JobRecord, declared: DeclaredSchedule, awaited: Sequence[Dependency]) -> bool:
    """Whether a person would see a difference; where in its rhythm the job stands is not one."""
    schedule, present, spec = declared.spec.schedule, spec_of(job), declared.spec
    if present.window and spec.window and present.window.off_peak and spec.window.off_peak:
        spec = replace(spec, window=present.window)  # whichever hours that means at present
    spec = in_its_place(job, spec)
    if spec_columns(present) != spec_columns(spec) or (job.payload != dict(declared.payload)):
        return True
    if not isinstance(schedule, After):
        return False
    known = {(reference, one.wanted) for one in awaited for reference in (one.id, one.name)}
    return len(schedule.jobs) != len(awaited) or any(
        (one.job, str(one.on)) not in known for one in schedule.jobs
    )


def _runs_after(spec: JobSpec, job: str) -> bool:
    after = spec.schedule
    return isinstance(after, After) and job in (str(one.job) for one in after.jobs)


def _label(key: tuple[str, Scope]) -> str:
    name, scope = key
    return name if scope == GLOBAL else f"{name} [{scope}]"
