"""What a job that runs after others is handed by them: their results."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload
from uuid import UUID

from evenbeat.domain.job import JobRecord
from evenbeat.errors import InvalidInput, JobCancelled, JobFailed
from evenbeat.store.on_loop import async_form

if TYPE_CHECKING:
    from evenbeat.task import Task

R = TypeVar("R")
_PAGE = 500


class _Input(NamedTuple):
    position: int
    job_id: UUID
    task: str
    status: str | None
    result: Any
    error_code: str | None
    error_message: str | None


class Inputs:
    """Results of the jobs that a run came after, by their names or their tasks. Each question is
    one to the database; in an async handler, `await ctx.inputs.get_async("extract")` waits for it
    without holding up the loop."""

    __slots__ = ("_app", "_job")

    def __init__(self, job: JobRecord, application: Any) -> None:
        self._job = job
        self._app = application

    @overload
    def __getitem__(self, key: "Task[..., R]") -> R: ...
    @overload
    def __getitem__(self, key: str) -> Any: ...

    def __getitem__(self, key: Any) -> Any:
        """What the job of this name, or the only one of this task, returned, as the type of its
        annotation. `JobFailed` or `JobCancelled` where it ended so; `KeyError` without one."""
        name = self._name(key)
        rows = self._page(0, name, 2)
        if not rows:
            raise KeyError(
                f"{name!r}: the job {self._job.id} ({self._job.task}) runs after no job of this "
                "name or task"
            )
        if len(rows) > 1:
            raise InvalidInput(
                f"Several of the jobs that {self._job.task!r} runs after are called {name!r}: "
                f"ctx.inputs.results({name!r}) gives the results of all, in their order."
            )
        return self._result(rows[0])

    @overload
    def get(self, key: "Task[..., R]") -> R: ...
    @overload
    def get(self, key: str) -> Any: ...

    def get(self, key: Any) -> Any:
        """`inputs[key]`."""
        return self[key]

    @overload
    def results(self, key: "Task[..., R]") -> Iterator[R]: ...
    @overload
    def results(self, key: str | None = None) -> Iterator[Any]: ...

    def results(self, key: Any = None) -> Iterator[Any]:
        """What all of them returned, or those of a name or task, in the order in which they are
        waited for; read page by page, however many there are."""
        position, name = 0, None if key is None else self._name(key)
        while rows := self._page(position, name, _PAGE):
            for row in rows:
                yield self._result(row)
            position = rows[-1].position

    if TYPE_CHECKING:

        @overload
        async def get_async(self, key: "Task[..., R]") -> R: ...
        @overload
        async def get_async(self, key: str) -> Any: ...
        async def get_async(self, key: Any) -> Any:
            """`get` in async code, on the running loop."""

    else:
        get_async = async_form(get)

    def _name(self, key: Any) -> str:
        name = key if isinstance(key, str) else getattr(key, "name", None)
        if not isinstance(name, str):
            raise TypeError(f"Inputs are read by the task, or by a name; got {key!r}.")
        return name

    def _page(self, after: int, name: str | None, limit: int) -> list[_Input]:
        params = {"job_id": self._job.id, "after": after, "name": name, "limit": limit}
        return [_Input._make(row) for row in self._app.store.database.rows("inputs_of", params)]

    def _result(self, row: _Input) -> Any:
        if row.status == "completed":
            return self._app.registry.result_of(row.job_id, row.task, row.result)
        error = JobCancelled if row.status in (None, "cancelled") else JobFailed
        raise error(row.job_id, row.task, row.error_code, row.error_message)
