"""What a handler may know and say about its own run."""

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine, Mapping, MutableMapping
from contextvars import ContextVar
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload
from uuid import UUID

from evenbeat.domain.job import DurationLike, JobRecord, scope_of
from evenbeat.domain.scope import Scope
from evenbeat.domain.step import Step
from evenbeat.errors import InvalidInput, LeaseLost
from evenbeat.store.on_loop import on_loop
from evenbeat.store.rows import encode_json
from evenbeat.tasks.inputs import Inputs
from evenbeat.tasks.steps import RunSteps

if TYPE_CHECKING:
    from evenbeat.batch import Batch

P = ParamSpec("P")
R = TypeVar("R")

_COUNTED = frozenset({"items_crawled", "items_indexed", "rows_affected"})
_MEASURED = frozenset({"cpu_time_ms", "memory_peak_mb"})
COLUMNS = _COUNTED | _MEASURED
"""The figures with a column of their own."""
MAX_FIGURES_BYTES = 8192
TASK_LOGGERS = "evenbeat.task."
"""Begins the names of the loggers that handlers have as `ctx.logger`."""
RUN_FIELDS = ("job_id", "task", "execution_id", "retry_attempt")
"""What its lines say of the run, in the worker's log."""


class Leases(Protocol):
    """What a run's context asks for: the lease keeper, or the pipe to it from a child process."""

    application: Any
    """Whose run it is."""
    log_level: float
    """From which level on what the run logs is kept; infinite: nothing is."""

    def report_progress(self, job: JobRecord, progress: dict[str, Any]) -> None:
        """Remember a run's newest progress, to be written soon."""

    def keep_record(self, job: JobRecord, record: logging.LogRecord) -> None:
        """Keep what the run has logged."""

    def renew(self, job: JobRecord) -> bool:
        """Renew the lease now; whether the run still holds it."""

    def now(self) -> datetime:
        """The present, as the worker has it."""

    def steps(self, job: JobRecord) -> list[Step]:
        """What runs of this occurrence have done."""

    def keep_step(self, job: JobRecord, step: Step) -> Step | None:
        """Keep a step, and give it back as it stands; None: the lease is lost."""


class State(SimpleNamespace):
    """What the lifespans of a worker put there for its runs: `state.db = …` in one, `ctx.state.db`
    in the other."""

    def __getattr__(self, name: str) -> Any:
        """Only for what is not there."""
        known = ", ".join(vars(self)) or "nothing"
        raise AttributeError(
            f"No lifespan of this worker has set state.{name}; it has {known}. An isolated run is "
            "in another process and has none of it."
        )


class Context:
    """A run, seen from inside. Handlers get it as the parameter annotated `Context` (or named
    `ctx`); a plain call in a test passes one made of a job."""

    # One is made for every run, so it is small and shares what it calls with all the others.
    __slots__ = ("_cancelled", "_figures", "_leases", "_steps", "job", "state")

    def __init__(
        self, job: JobRecord, leases: Leases | None = None, state: State | None = None
    ) -> None:
        self.job = job
        self.state = State() if state is None else state
        self._figures: dict[str, Any] | None = None
        self._leases = leases
        self._steps: RunSteps | None = None
        self._cancelled = False

    @property
    def execution_id(self) -> UUID:
        """The id of this attempt."""
        if self.job.lock_token is None:
            raise LeaseLost("This job is not being run.")
        return self.job.lock_token

    @property
    def plan_time(self) -> datetime:
        """The nominal instant of this occurrence, whenever it really runs."""
        return self.job.plan_time or self.job.created_at

    @property
    def now(self) -> datetime:
        """The present by the database's clock, whatever this machine's says; in a harness, the time
        that the test has moved to."""
        return datetime.now(UTC) if self._leases is None else self._leases.now()

    @property
    def predecessor_plan_time(self) -> datetime | None:
        """Of a job that runs after others: the plan of the run by which it was last started; of
        several, the latest. None for other jobs."""
        return self.job.predecessor_plan_time

    @property
    def inputs(self) -> Inputs:
        """What the jobs returned that this one ran after: `ctx.inputs["extract"]`, by task or name,
        or `ctx.inputs[extract]` by the task itself. Read when it is asked for."""
        return Inputs(self.job, self._application())

    @property
    def batch(self) -> "Batch":
        """The batch after which this job runs, or otherwise the one that it belongs to."""
        batch: Batch = self._application().batches.of(self.job)
        return batch

    def _application(self) -> Any:
        if self._leases is None or self._leases.application is None:
            raise InvalidInput(
                "A context that no worker made knows nothing of other jobs. Test such a task in a "
                "harness: evenbeat_harness(app)."
            )
        return self._leases.application

    @property
    def scope(self) -> Scope:
        """The tenant or shard that this run is for."""
        return scope_of(self.job)

    @property
    def attempt(self) -> int:
        """1 for the first try, 2 for the first retry …"""
        return self.job.current_retry_count + 1

    @property
    def cancelled(self) -> bool:
        """Whether this run is no longer wanted. A plain function should look at it and return."""
        return self._cancelled

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines are kept with the run and carry the job, the task and the attempt in
        the worker's log."""
        values = (str(self.job.id), self.job.task, str(self.job.lock_token))
        extra = dict(zip(RUN_FIELDS, (*values, self.job.current_retry_count), strict=True))
        return _RunLogger(logging.getLogger(f"{TASK_LOGGERS}{self.job.task}"), extra, self)

    @overload
    def step(
        self,
        name: str,
        function: Callable[P, Coroutine[Any, Any, R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Coroutine[Any, Any, R]: ...
    @overload
    def step(
        self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    def step(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function once for this occurrence, and keep what it returns: a run that comes here
        again gets that, and calls nothing. In async code it is awaited."""
        steps = self.steps
        if _is_async():
            return steps.call_async(name, function, args, kwargs)
        return steps.call(name, function, args, kwargs)

    def sleep(self, duration: DurationLike) -> Any:
        """Give the slot back, and go on when the time has passed: the handler is entered again, and
        what it has done as steps is skipped. Costs no attempt. In async code it is awaited."""
        steps = self.steps
        return on_loop(steps.sleep, duration) if _is_async() else steps.sleep(duration)

    def wait_event(self, name: str, timeout: DurationLike = "365d") -> Any:
        """Give the slot back until somebody sends the event (`job.send_event`), and return what
        came with it. `EventTimeout` if nobody does in time. In async code it is awaited."""
        steps = self.steps
        if _is_async():
            return on_loop(steps.wait_event, name, timeout)
        return steps.wait_event(name, timeout)

    @property
    def steps(self) -> RunSteps:
        """What the three above are made of."""
        if self._steps is None:
            self._steps = RunSteps(self, self._leases)
        return self._steps

    @property
    def leases(self) -> Leases | None:
        """Whom to ask about the run's lease; None where nobody runs it."""
        return self._leases

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far the run has come. Cheap: only the newest report is written, once a second."""
        if self._leases is not None:
            report = {"done": done, "total": total, "message": message}
            self._leases.report_progress(self.job, report)

    def report(self, **figures: Any) -> None:
        """Add to the run's figures: items_crawled, items_indexed, rows_affected, or any of your
        own, as JSON. Numbers add up; of anything else the newest counts."""
        sums = dict(self.figures)
        for name, figure in figures.items():
            if name in _MEASURED:
                raise TypeError(f"{name} is measured by Evenbeat. Report it by another name.")
            if name in _COUNTED:
                sums[name] = sums.get(name, 0) + int(figure)
                continue
            number = isinstance(figure, int | float) and not isinstance(figure, bool)
            before = sums.get(name, 0)
            sums[name] = before + figure if number and isinstance(before, int | float) else figure
        _own_figures(sums)  # what cannot be kept fails in the handler
        self._figures = sums

    def measured(self, cpu_seconds: float, memory_bytes: int) -> None:
        """Say what the processes took that did the work (the built-in tasks do this)."""
        taken = {"cpu_time_ms": cpu_seconds * 1000, "memory_peak_mb": memory_bytes / 2**20}
        self._figures = {**self.figures, **taken}

    @property
    def figures(self) -> Mapping[str, Any]:
        """What the run has reported so far."""
        return self._figures or {}

    @property
    def own_figures(self) -> str | None:
        """Those among them that are the handler's own, as JSON text."""
        return _own_figures(self.figures)

    def heartbeat(self) -> None:
        """Renew the lease now and make sure the run still counts; raises `LeaseLost` if not.

        Workers renew by themselves. Call this before a step that must not happen twice.
        """
        if not self.renew():
            raise LeaseLost(f"The run of job {self.job.id} no longer counts: stop here.")

    def renew(self) -> bool:
        """`heartbeat` that answers instead of raising."""
        leases = self._leases
        if leases is not None and not self._cancelled and not leases.renew(self.job):
            self._cancelled = True
        return not self._cancelled

    def cancel(self) -> None:
        """Mark the run as unwanted (the worker does this)."""
        self._cancelled = True


def _is_async() -> bool:
    """Whether whoever asks may await: an async handler, but no thread that it has started."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _own_figures(figures: Mapping[str, Any]) -> str | None:
    own = {name: figure for name, figure in figures.items() if name not in COLUMNS}
    return encode_json("figures", own, MAX_FIGURES_BYTES) if own else None


class _NoRun(Context):
    """The default of a handler's `ctx`, where nobody runs it."""

    __slots__ = ()

    def __init__(self) -> None:
        """Nothing to know."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return super().__getattribute__(name)
        raise LeaseLost(
            f"ctx.{name} is only known while a worker runs the task. In a direct call, pass a "
            "context: ctx=Context(job)."
        )


current_run: ContextVar[Context] = ContextVar("evenbeat_run")
"""The run that the present code belongs to; unset outside of runs. A task of the event loop and
what `asyncio.to_thread` calls have it too, and a thread that runs in a `copy_context()`."""

CURRENT: Context = _NoRun()
"""For handlers whose context is not the first parameter: `def f(n: int, *, ctx: Context = CURRENT)`
can be called and enqueued without it. A worker always gives the run's own."""


class _RunLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds to the fields of a call; before Python 3.13 an adapter would replace them. What is kept
    with the run does not depend on what the application has configured for its own log."""

    def __init__(self, logger: logging.Logger, extra: dict[str, object], context: Context) -> None:
        super().__init__(logger, extra)
        self._context = context

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - its name in the standard library
        leases = self._context.leases
        return super().isEnabledFor(level) or (leases is not None and level >= leases.log_level)

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if self.logger.isEnabledFor(level):  # then the root logger's handler passes it on
            super().log(level, msg, *args, **kwargs)
        elif self.isEnabledFor(level) and (leases := self._context.leases) is not None:
            msg, options = self.process(msg, kwargs)
            error: Any = options.get("exc_info")
            if isinstance(error, BaseException):
                error = type(error), error, error.__traceback__
            elif error and not isinstance(error, tuple):
                error = sys.exc_info()
            name, extra = self.logger.name, options["extra"]
            record = self.logger.makeRecord(name, level, "", 0, msg, args, error, extra=extra)
            leases.keep_record(self._context.job, record)

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs
