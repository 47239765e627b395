"""Hooks: what an application puts around its runs and its workers, and adds to what it enqueues.

Middleware and lifespans follow one protocol: a function that is given the run's `Context` (or the
worker's `State`) and returns a context manager, plain or async. The first that was registered is
the outermost.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from contextvars import ContextVar, copy_context
from dataclasses import replace
from typing import Any, TypeVar

from evenbeat.domain.job import NewJob
from evenbeat.domain.schedule import Recurring
from evenbeat.errors import InvalidInput
from evenbeat.tasks.context import Context, State

ContextManager = AbstractContextManager[Any] | AbstractAsyncContextManager[Any]
Middleware = Callable[[Context], ContextManager]
Lifespan = Callable[[State], ContextManager]
EnqueueHook = Callable[[], Mapping[str, Any]]
T = TypeVar("T")

CARRIED = "context_variables"
"""Where a job's metadata has the values of carried variables."""


class Hooks:
    """The hooks of one application, in the order in which they were registered."""

    def __init__(self) -> None:
        self.around: list[Middleware] = []
        self.lifespans: list[Lifespan] = []
        self.enqueueing: list[EnqueueHook] = []
        self.imports: list[str] = []
        """Modules that the process of an isolated run imports before the task's own."""
        self.application: Any = None
        """Whose they are: what a run's context reads jobs and batches by."""
        self._carried: dict[str, ContextVar[Any]] = {}

    def carry(self, variables: Sequence[ContextVar[Any]]) -> None:
        """Take these variables along from enqueueing to the run."""
        for variable in variables:
            if not isinstance(variable, ContextVar):
                raise InvalidInput(f"carry() takes context variables, got {variable!r}.")
            if self._carried.get(variable.name, variable) is not variable:
                raise InvalidInput(
                    f"Two carried context variables are named {variable.name!r}: a run could not "
                    "tell which one is meant. Give one of them another name."
                )
            if not self._carried:
                self.enqueueing.append(self._present_values)
            self._carried[variable.name] = variable

    def enqueued(self, job: NewJob) -> NewJob:
        """The job with what the hooks add to its metadata. A schedule is nobody's request, so it
        gets nothing. What the caller said itself counts."""
        if not self.enqueueing or isinstance(job.spec.schedule, Recurring):
            return job
        added: dict[str, Any] = {}
        for hook in self.enqueueing:
            added.update(hook())
        return replace(job, metadata={**added, **job.metadata}) if added else job

    def restore(self, metadata: Mapping[str, Any]) -> None:
        """Set carried variables in the present context, a run's own."""
        values = metadata.get(CARRIED) if self._carried else None
        for name, value in values.items() if isinstance(values, dict) else ():
            if (variable := self._carried.get(name)) is not None:
                variable.set(value)

    def names(self) -> list[str]:
        """Those that matter to a run, which its process must have."""
        return [*map(where, self.around), *self._carried]

    def _present_values(self) -> Mapping[str, Any]:
        present = copy_context()
        values = {name: present[var] for name, var in self._carried.items() if var in present}
        for name, value in values.items():
            if not _is_json(value):
                raise InvalidInput(
                    f"The context variable {name!r} is carried to runs, but its value {value!r} "
                    "is not JSON. Set it to text, numbers, booleans, None, or lists and dicts of "
                    "these, or carry another variable.",
                    field="metadata",
                )
        return {CARRIED: values} if values else {}


NO_HOOKS = Hooks()
"""Of tasks that belong to Evenbeat itself."""


def _is_json(value: object) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(_is_json, value))
    if isinstance(value, float):
        return value - value == 0  # neither infinite nor NaN
    return value is None or isinstance(value, str | int)


def check_hook(hook: T, kind: str, *, takes: str) -> T:
    """Refuse what cannot be one where it is registered, rather than in every run."""
    if not callable(hook):
        raise InvalidInput(
            f"The {kind} must be a function that takes {takes} and returns a context manager; "
            f"got {hook!r}.",
            field="around",
        )
    for is_wrong, decorator in (
        (inspect.isgeneratorfunction, "contextlib.contextmanager"),
        (inspect.isasyncgenfunction, "contextlib.asynccontextmanager"),
        (inspect.iscoroutinefunction, "contextlib.asynccontextmanager, with a yield in it"),
    ):
        if is_wrong(hook):
            raise InvalidInput(
                f"The {kind} {where(hook)} returns no context manager. Decorate it: @{decorator}.",
                field="around",
            )
    try:
        inspect.signature(hook).bind(None)
    except TypeError:
        raise InvalidInput(
            f"The {kind} {where(hook)} must take one argument: {takes}.", field="around"
        ) from None
    except ValueError:  # has no signature to look at
        pass
    return hook


def call_inside(
    hooks: Sequence[Callable[[Any], ContextManager]],
    argument: object,
    call: Callable[[], Any],
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> Any:
    """Call a plain function inside the context managers of these hooks. Async ones are entered and
    left on the event loop, while this thread waits."""
    if not hooks:
        return call()
    passing: BaseException | None = None
    try:
        manager: Any = hooks[0](argument)
        if not hasattr(manager, "__enter__") and hasattr(manager, "__aenter__"):
            manager = _held_on(loop(), manager)
        with manager:
            try:
                return call_inside(hooks[1:], argument, call, loop)
            except BaseException as error:
                passing = error
                raise
    except BaseException as error:
        if error is not passing:
            error.add_note(f"raised by the middleware {where(hooks[0])}")
        raise
    finally:
        passing = None  # its traceback has this frame


async def await_inside(
    hooks: Sequence[Callable[[Any], ContextManager]],
    argument: object,
    call: Callable[[], Awaitable[Any]],
    kind: str = "middleware",
) -> Any:
    """`call_inside` for what is awaited: plain context managers are entered on the loop itself."""
    if not hooks:
        return await call()
    passing: BaseException | None = None
    try:
        manager: Any = hooks[0](argument)
        async with manager if hasattr(manager, "__aenter__") else _made_async(manager):
            try:
                return await await_inside(hooks[1:], argument, call, kind)
            except BaseException as error:
                passing = error
                raise
    except BaseException as error:
        if error is not passing:
            error.add_note(f"raised by the {kind} {where(hooks[0])}")
        raise
    finally:
        passing = None


@asynccontextmanager
async def _made_async(manager: AbstractContextManager[Any]) -> AsyncIterator[None]:
    with manager:
        yield


@contextmanager
def _held_on(
    loop: asyncio.AbstractEventLoop, manager: AbstractAsyncContextManager[Any]
) -> Iterator[None]:
    """An async context manager around what this thread does. One task of the loop enters it and
    leaves it again, since cancel scopes and the like belong to a task; the context variables that
    it sets are seen here too."""
    entered: Future[Any] = Future()

    async def hold() -> bool | None:
        try:
            await manager.__aenter__()
        except BaseException as error:
            entered.set_exception(error)
            return None
        over = loop.create_future()
        entered.set_result((over, copy_context()))
        raised = await over
        trace = None if raised is None else raised.__traceback__
        return await manager.__aexit__(raised and type(raised), raised, trace)

    left = asyncio.run_coroutine_threadsafe(hold(), loop)
    over, context = entered.result()
    present = copy_context()
    for variable, value in context.items():
        if present.get(variable) is not value:
            variable.set(value)
    try:
        yield
    except BaseException as error:
        loop.call_soon_threadsafe(over.set_result, error)
        if not left.result():
            raise
    else:
        loop.call_soon_threadsafe(over.set_result, None)
        left.result()


def where(function: object) -> str:
    """How messages name a function: by its module and name."""
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', function)}"
