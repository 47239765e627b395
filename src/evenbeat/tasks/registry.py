"""Tasks: the handlers that a process knows, by name."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from evenbeat.domain.job import JobSpec
from evenbeat.errors import InvalidInput, TaskUnknown
from evenbeat.tasks.payload import Signature

Handler = Callable[..., Any]


class RunnerKind(StrEnum):
    """Where a handler runs."""

    ON_LOOP = "async"
    IN_THREAD = "thread"
    ISOLATED = "process"


@dataclass(frozen=True, slots=True)
class TaskDefinition:
    """A handler, the spec of the jobs made for it, and where it runs."""

    name: str
    handler: Handler
    spec: JobSpec
    signature: Signature
    runs: RunnerKind
    never_retry: tuple[type[BaseException], ...] = ()
    description: str = ""


def define(
    handler: Handler,
    spec: JobSpec,
    *,
    isolate: bool = False,
    never_retry: tuple[type[BaseException], ...] = (),
) -> TaskDefinition:
    """Look at a handler once, when it is declared, so that mistakes show at import."""
    if not callable(handler):
        raise InvalidInput(f"A task needs a function, got {handler!r}.", field="handler")
    runs = RunnerKind.ON_LOOP if inspect.iscoroutinefunction(handler) else RunnerKind.IN_THREAD
    return TaskDefinition(
        name=spec.task,
        handler=handler,
        spec=spec,
        signature=Signature(spec.task, handler),
        runs=RunnerKind.ISOLATED if isolate else runs,
        never_retry=never_retry,
        description=inspect.getdoc(handler) or "",
    )


class Registry:
    """Every task of an application, by its name."""

    def __init__(self) -> None:
        self._tasks: dict[str, TaskDefinition] = {}

    def add(self, task: TaskDefinition) -> None:
        """Register a task; two handlers of one name are refused."""
        known = self._tasks.get(task.name)
        if known is not None and known.handler is not task.handler:
            raise InvalidInput(
                f"Two handlers are named {task.name!r}: {_where(known.handler)} and "
                f"{_where(task.handler)}. Give one of them another name: @app.task(name=...).",
                field="name",
            )
        self._tasks[task.name] = task

    def get(self, name: str) -> TaskDefinition:
        """The task of this name, or `TaskUnknown`."""
        try:
            return self._tasks[name]
        except KeyError:
            known = ", ".join(sorted(self._tasks)) or "none"
            raise TaskUnknown(f"There is no task {name!r} here; known are: {known}.") from None

    def named(self, *runs: RunnerKind) -> list[str]:
        """The names of the tasks that run there; of all tasks when no place is given."""
        return sorted(t.name for t in self._tasks.values() if not runs or t.runs in runs)

    def __iter__(self) -> Iterator[TaskDefinition]:
        return iter(self._tasks.values())

    def __contains__(self, name: object) -> bool:
        return name in self._tasks

    def __len__(self) -> int:
        return len(self._tasks)


def _where(handler: Handler) -> str:
    return f"{getattr(handler, '__module__', '?')}.{getattr(handler, '__qualname__', handler)}"
