"""Sentry: an event for each run that fails, in a scope of its own.

Needs the extra: `pip install 'evenbeat[sentry]'`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sentry_sdk
from sentry_sdk.integrations.logging import ignore_logger
from sentry_sdk.scope import should_send_default_pii

from evenbeat.app import Evenbeat
from evenbeat.domain.job import JobRecord, retry_of, scope_of
from evenbeat.errors import LeaseLost
from evenbeat.events import Event
from evenbeat.tasks.context import Context
from evenbeat.tasks.registry import RunnerKind

WITHOUT_EXCEPTION = frozenset({
    "timeout", "process_died", "memory_limit", "cpu_limit", "limit_not_kept", "invalid_payload",
    "hooks_missing",
})  # fmt: skip
"""How runs fail that never raised anything in the middleware below."""

FLUSH_SECONDS = 2.0


def instrument(app: Evenbeat, *, report_retries: bool = False) -> None:
    """Send an event for each run that fails for good, and with `report_retries` also for those that
    will be tried again. Call it once, before other middleware is registered."""
    ignore_logger("evenbeat.worker")  # its line about a failed run would be an event of its own

    @app.around
    @contextmanager
    def reported(ctx: Context) -> Iterator[None]:
        task = app.registry.get(ctx.job.task)
        with sentry_sdk.isolation_scope() as scope:
            _describe(scope, ctx.job)
            try:
                yield
            except Exception as error:
                goes_on = retry_of(ctx.job).allows(ctx.attempt) and not task.is_final(
                    ctx.job, error
                )
                counts = not ctx.cancelled and not isinstance(error, LeaseLost)
                if counts and (report_retries or not goes_on):
                    sentry_sdk.capture_exception(error)
                raise
            finally:
                if task.runs is RunnerKind.ISOLATED:  # its process is ended with its report
                    sentry_sdk.flush(FLUSH_SECONDS)

    def report(event: Event) -> None:
        if event.error_code in WITHOUT_EXCEPTION:
            with sentry_sdk.isolation_scope() as scope:
                _describe(scope, event.job)
                scope.fingerprint = ["evenbeat", event.job.task, event.error_code]
                sentry_sdk.capture_message(
                    f"{event.job.task}: {event.error or event.error_code}", level="error"
                )

    app.on("job:failed")(report)
    if report_retries:
        app.on("job:retry")(report)


def _describe(scope: sentry_sdk.Scope, job: JobRecord) -> None:
    attempt = job.current_retry_count + 1
    scope.set_transaction_name(job.task, source="task")
    scope.set_tag("evenbeat.job_id", str(job.id))
    scope.set_tag("evenbeat.task", job.task)
    scope.set_tag("evenbeat.queue", job.queue)
    scope.set_tag("evenbeat.attempt", attempt)
    details: dict[str, Any] = {
        "id": str(job.id),
        "name": job.name,
        "execution_id": str(job.lock_token),
        "attempt": attempt,
        "max_retries": job.max_retries,
        "scope": str(scope_of(job)),
        "plan_time": job.plan_time and job.plan_time.isoformat(),
    }
    if should_send_default_pii():
        details["payload"] = job.payload
    scope.set_context("job", details)
