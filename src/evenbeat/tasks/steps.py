"""Durable steps: what a run has done is kept with its job, and skipped when a run of the same
occurrence comes to it again: after a failure, a lost worker, a sleep, or a wait for an event."""

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, get_type_hints

from pydantic import PydanticSchemaGenerationError, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from evenbeat.domain.duration import parse_duration
from evenbeat.domain.setting_kinds import check_name
from evenbeat.domain.step import Step, StepKind
from evenbeat.errors import (
    EventTimeout,
    Fail,
    InvalidInput,
    LeaseLost,
    validation_message,
)
from evenbeat.humanize import timestamp
from evenbeat.store.on_loop import on_loop
from evenbeat.store.rows import ASLEEP, AWAITING, MAX_RESULT_BYTES, encode_json

if TYPE_CHECKING:
    from evenbeat.tasks.context import Context, Leases

Duration = timedelta | float | str
_Key = tuple[str, str, int]


class Suspended(BaseException):
    """Ends a run that sleeps or waits for an event; another goes on from there. No `Exception`, so
    that handlers do not take it for an error."""

    def __init__(self, until: datetime, code: str, reason: str) -> None:
        super().__init__(reason)
        self.until = until
        self.code = code
        self.reason = reason


def suspension_in(error: BaseException) -> Suspended | None:
    """What puts the run off, if nothing else ended it; of several in a task group, the earliest."""
    if isinstance(error, BaseExceptionGroup):
        waits, others = error.split(Suspended)
        if waits is None or others is not None:
            return None
        inside = filter(None, map(suspension_in, waits.exceptions))
        return min(inside, key=lambda one: one.until, default=None)
    return error if isinstance(error, Suspended) else None


class RunSteps:
    """The steps of one run, behind `ctx.step`, `ctx.sleep` and `ctx.wait_event`. Every method waits
    for the database; on an event loop, call it by `on_loop`."""

    def __init__(self, context: "Context", leases: "Leases | None") -> None:
        """Without `leases` nobody runs it, and nothing is kept."""
        self._context = context
        self._leases = leases
        self._known: dict[_Key, Step] | None = None
        self._numbers: Counter[tuple[str, str]] = Counter()

    def call(
        self,
        name: str,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """The result of a step, which is called if no run has done it."""
        step = self._begin(name)
        if step.completed_at is None:
            value = function(*args, **kwargs)
            step = self._end(step, asyncio.run(_awaited(value)) if _is_async(value) else value)
        return _typed(step, function, args)

    async def call_async(
        self,
        name: str,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """`call` on an event loop. A plain function is called in a thread."""
        step = await on_loop(self._begin, name)
        if step.completed_at is None:
            if any(map(inspect.iscoroutinefunction, (function, type(function).__call__))):
                value = function(*args, **kwargs)
            else:
                value = await asyncio.to_thread(function, *args, **kwargs)
            step = await on_loop(self._end, step, await value if _is_async(value) else value)
        return _typed(step, function, args)

    def sleep(self, duration: Duration) -> None:
        """Return when so much time has passed since the occurrence first came here."""
        step, until = self._wait(StepKind.SLEEP, "", duration, "duration")
        if step.completed_at is None and self._leases is not None:
            if self._now() < until:
                raise Suspended(until, ASLEEP, f"It sleeps until {timestamp(until)}.")
            self._keep(step._replace(completed_at=until))

    def wait_event(self, name: str, timeout: Duration) -> Any:
        """The payload of the next event of this name."""
        if self._leases is None:
            raise LeaseLost("Nobody can send an event to a direct call: test it in a harness.")
        check_name("name", name)
        step, until = self._wait(StepKind.EVENT, name, timeout, "timeout")
        if step.completed_at is None and self._now() >= until:
            step = self._keep(step._replace(completed_at=until, timed_out=True))
        if step.completed_at is None:
            reason = f"It waits for the event {name!r}, until {timestamp(until)}."
            raise Suspended(until, AWAITING, reason)
        if step.timed_out:
            raise EventTimeout(f"The event {name!r} has not come by {timestamp(until)}.")
        return step.result

    # --------------------------------------------------------------------------------------------

    def _begin(self, name: str) -> Step:
        check_name("name", name)
        step = self._next(StepKind.STEP, name)
        if step.number > 1:
            raise InvalidInput(
                f"This run has had a step {name!r} already. The result is kept under the name, so "
                'give each step its own, such as f"charge-{order}".',
                field="name",
            )
        return step

    def _wait(
        self, kind: StepKind, name: str, duration: Duration, field: str
    ) -> tuple[Step, datetime]:
        """The sleep or wait that the run has come to, and when it is over."""
        step = self._next(kind, name)
        if step.until is None:
            until = self._now() + parse_duration(duration, field=field)
            step = self._keep(step._replace(until=until))
        return step, step.until or self._now()

    def _end(self, step: Step, value: Any) -> Step:
        field = f"the result of the step {step.name!r}"
        try:
            result = to_jsonable_python(value)
            encode_json(field, result, MAX_RESULT_BYTES)
        except (InvalidInput, ValueError) as error:
            raise Fail(
                f"The step {step.name!r} was done, but its result cannot be kept: {error} The run "
                "is not tried again, since that would do the step twice. Let it return plain JSON.",
                code="step_result",
            ) from error
        return self._keep(step._replace(completed_at=self._now(), result=result))

    def _next(self, kind: StepKind, name: str = "") -> Step:
        """The step that the run has come to, as it is known, or a new one that begins now."""
        if self._context.cancelled:
            raise LeaseLost("The run is not wanted any more: stop here.")
        job = self._context.job
        if self._known is None:
            steps = [] if self._leases is None else self._leases.steps(job)
            self._known = {(one.kind, one.name, one.number): one for one in steps}
        self._numbers[kind, name] += 1
        key = (str(kind), name, self._numbers[kind, name])
        known, plan, now = self._known.get(key), self._context.plan_time, self._now()
        run = None if self._leases is None else job.lock_token
        if known is None:
            return Step(job.id, plan, *key, run, job.run_count, now)
        if known.started_at is None:  # an event that nobody has waited for
            return known._replace(execution_id=run, execution_number=job.run_count, started_at=now)
        return known

    def _keep(self, step: Step) -> Step:
        if self._leases is None:
            return step
        kept = self._leases.keep_step(self._context.job, step)
        if kept is None:
            self._context.cancel()
            raise LeaseLost(f"The run of job {step.job_id} no longer counts: stop here.")
        return kept

    def _now(self) -> datetime:
        """Never before the claim: it was the database's clock that found the job due."""
        now, started = self._context.now, self._context.job.started_at
        return now if started is None else max(now, started)


def fitted(value: Any, annotation: Any, what: str, source: str) -> Any:
    """A value from JSON as the type that an annotation says; as it is, where no JSON has that."""
    if annotation is Any:
        return value
    try:
        return TypeAdapter(annotation).validate_python(value)
    except PydanticSchemaGenerationError:
        return value
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise InvalidInput(
            f"{what} does not fit {inspect.formatannotation(annotation)}, {source}: "
            f"{validation_message(first)}.",
            field="result",
        ) from None


def _returned_by(function: Callable[..., Any], args: Sequence[Any]) -> Any:
    """The annotation of what a function returns; Any without one, or with one that is unknown."""
    target: Any = args[0] if function is asyncio.to_thread and args else function
    try:
        return get_type_hints(target, include_extras=True).get("return", Any)
    except (NameError, TypeError, AttributeError):
        return Any


def _typed(step: Step, function: Callable[..., Any], args: Sequence[Any]) -> Any:
    what, source = f"The result of the step {step.name!r}", "the annotation of what it returns"
    return fitted(step.result, _returned_by(function, args), what, source)


def _is_async(value: Any) -> bool:
    return inspect.isawaitable(value)


async def _awaited(value: Any) -> Any:
    return await value
