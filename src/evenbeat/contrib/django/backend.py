"""A backend for Django's own tasks (`django.tasks` of Django 6, or the package `django_tasks`):

    TASKS = {"default": {"BACKEND": "evenbeat.contrib.django.backend.EvenbeatBackend"}}

`OPTIONS` are settings of Evenbeat's jobs, such as {"max_retries": 3}; without them a task is tried
once, as Django's own backends do.
"""

import re
from inspect import iscoroutinefunction
from threading import Lock
from typing import Any
from uuid import UUID

from django.utils.module_loading import import_string

try:
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
except ImportError:
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import TaskContext, TaskError, TaskResult, TaskResultStatus
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started

from evenbeat.contrib.django import app, connections_cared_for
from evenbeat.domain.execution import Execution
from evenbeat.domain.job import JobRecord
from evenbeat.domain.states import ExecutionStatus, JobStatus
from evenbeat.errors import NotFound
from evenbeat.events import Event, EventKind
from evenbeat.task import Task
from evenbeat.tasks.context import Context

_STATUS = {
    JobStatus.RUNNING: TaskResultStatus.RUNNING,
    JobStatus.COMPLETED: TaskResultStatus.SUCCESSFUL,
    JobStatus.FAILED: TaskResultStatus.FAILED,
    JobStatus.CANCELLED: TaskResultStatus.FAILED,
}
"""In any other state it is ready to be run."""

_WITHOUT_TRACE = {"timeout": "builtins.TimeoutError"}
_RAISED = re.compile(r"^([A-Za-z_]\w*(?:\.\w+)*)(?=:|$)", re.MULTILINE)


_TASKS: dict[str, Task[Any, Any]] = {}
"""By path: Django makes a backend for each thread."""

_DECLARING = Lock()


class EvenbeatBackend(BaseTaskBackend):  # type: ignore[misc, unused-ignore]
    """Each of Django's tasks becomes a task of Evenbeat, named by its path, when it is declared."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def validate_task(self, task: Any) -> None:
        """Also the moment at which Django shows us a task."""
        super().validate_task(task)
        with _DECLARING:
            if task.module_path not in _TASKS:
                handler = self._handler(task)
                _TASKS[task.module_path] = app.task(handler, name=task.module_path)

    def enqueue(self, task: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Within the transaction that is open on Evenbeat's database in Django, if one is."""
        self.validate_task(task)
        added = (
            _TASKS[task.module_path]
            .options(
                **{"max_retries": 0, **self.options},
                queue=task.queue_name,
                priority=_ours(task.priority),
                run_at=task.run_after,
                metadata={"django_priority": task.priority},
                connection=app.open_transaction,
            )
            .enqueue(args=list(args), kwargs=dict(kwargs))
        )
        result = TaskResult(
            task=task,
            id=str(added.id),
            status=TaskResultStatus.READY,
            enqueued_at=None,
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=list(args),
            kwargs=dict(kwargs),
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """What has become of a task so far; as long as Evenbeat keeps its job."""
        try:
            job = app.store.read.job(UUID(result_id))
            priority = job.metadata["django_priority"]  # a job of ours has none
        except (NotFound, KeyError, ValueError):
            raise TaskResultDoesNotExist(result_id) from None
        task = import_string(job.task).using(
            priority=priority, queue_name=job.queue, backend=self.alias
        )
        runs = app.store.read.executions_of(job.id, limit=1000).executions
        return self._result(task, job, runs[::-1])

    def _result(self, task: Any, job: JobRecord, runs: list[Execution]) -> Any:
        result = TaskResult(
            task=task,
            id=str(job.id),
            status=_STATUS.get(JobStatus(job.status), TaskResultStatus.READY),
            enqueued_at=job.created_at,
            started_at=runs[0].started_at if runs else None,
            last_attempted_at=runs[-1].started_at if runs else None,
            finished_at=job.completed_at,
            args=job.payload["args"],
            kwargs=job.payload["kwargs"],
            backend=self.alias,
            errors=[_error(run) for run in runs if run.status == ExecutionStatus.FAILED],
            worker_ids=[str(run.worker_id) for run in runs],
        )
        if result.status == TaskResultStatus.SUCCESSFUL and runs:
            object.__setattr__(result, "_return_value", runs[-1].result)
        return result

    def _handler(self, task: Any) -> Any:
        if iscoroutinefunction(task.func):

            async def run_async(ctx: Context, args: list[Any], kwargs: dict[str, Any]) -> Any:
                result = await self.aget_result(str(ctx.job.id))
                await task_started.asend(type(self), task_result=result)
                if task.takes_context:
                    args = [TaskContext(task_result=result), *args]
                return await task.func(*args, **kwargs)

            return run_async

        def run(ctx: Context, args: list[Any], kwargs: dict[str, Any]) -> Any:
            result = self.get_result(str(ctx.job.id))
            task_started.send(type(self), task_result=result)
            if task.takes_context:
                args = [TaskContext(task_result=result), *args]
            return task.func(*args, **kwargs)

        return run


def _tell_end(event: Event) -> None:
    if "django_priority" not in event.job.metadata:
        return  # a job of ours
    backend = import_string(event.job.task).get_backend()
    with connections_cared_for():
        result = backend.get_result(str(event.job.id))
        task_finished.send(type(backend), task_result=result)


for _end in (EventKind.COMPLETE, EventKind.FAILED, EventKind.CANCELLED):
    app.events.on(_end, _tell_end)


def _ours(priority: int) -> int:
    """Django's -100 to 100 as 0 to 100: of two neighbours, both may become the same."""
    return (priority + 100) // 2


def _error(run: Execution) -> Any:
    """The class is what the last part of the trace begins with; failures without an exception, such
    as a timeout, get one that says the same."""
    trace = run.stack_trace or ""
    raised = _RAISED.findall(trace.rpartition("Traceback (most recent call last):\n")[2])
    path = raised[0] if raised else _WITHOUT_TRACE.get(run.error_code or "")
    if path is None:
        path = "evenbeat.errors.EvenbeatError"
    elif "." not in path:
        path = f"builtins.{path}"
    return TaskError(exception_class_path=path, traceback=trace or run.error_message or "")
