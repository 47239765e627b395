"""Handlers as an older worker has them: under a name, and called with (payload, job)."""

import inspect
from collections.abc import Callable, Mapping
from functools import update_wrapper
from typing import Any

from evenbeat.app import Evenbeat
from evenbeat.domain.job import JobRecord
from evenbeat.errors import InvalidInput
from evenbeat.task import Task
from evenbeat.tasks.context import Context

Handler = Callable[[dict[str, Any], JobRecord], Any]


class Scheduler(Evenbeat):
    """An application whose handlers take (payload, job). Everything else is as in `Evenbeat`."""

    def __init__(
        self,
        database_url: str | None = None,
        *,
        task_handlers: Mapping[str, Handler] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(database_url, **settings)
        for name, handler in (task_handlers or {}).items():
            self.register_handler(name, handler)

    def register_handler(self, name: str, handler: Handler, **options: Any) -> Task[Any, Any]:
        """Let jobs of the task `name` be run by a function, plain or async, of their payload and
        the job's row; what it returns is the result. The options are those of `task`. A payload is
        one value here: what is in it is not checked when a job is added."""
        try:
            inspect.signature(handler).bind({}, None)
        except (TypeError, ValueError) as error:
            raise InvalidInput(
                f"The handler of {name!r} must be a function of (payload, job), but {handler!r} "
                f"cannot be called so: {error}.",
                field="handler",
            ) from None

        # The payload is taken from the job: any name may stand in it, even that of the context.
        def run(ctx: Context, **_payload: Any) -> Any:
            return handler(ctx.job.payload, ctx.job)

        async def run_async(ctx: Context, **_payload: Any) -> Any:
            return await handler(ctx.job.payload, ctx.job)

        is_async = any(map(inspect.iscoroutinefunction, (handler, type(handler).__call__)))
        called = run_async if is_async else run
        update_wrapper(called, handler, ("__module__", "__name__", "__qualname__", "__doc__"), ())
        del vars(called)["__wrapped__"]  # its signature is not the handler's
        return self.task(name=name, **options)(called)
