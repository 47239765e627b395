"""What a handler may know and say about its own run."""

import logging
import threading
from collections.abc import Callable, MutableMapping
from datetime import datetime
from typing import Any
from uuid import UUID

from evenbeat.domain.job import Job, scope_of
from evenbeat.domain.scope import Scope
from evenbeat.errors import LeaseLost

_FIGURES = frozenset({"items_crawled", "items_indexed", "rows_affected"})


class Context:
    """A run, seen from inside. Handlers get it as the parameter annotated `Context` (or named
    `ctx`); in a plain call, tests make one with `Context.for_test()`."""

    def __init__(
        self,
        job: Job,
        *,
        report_progress: Callable[[dict[str, Any]], None] = lambda _progress: None,
        renew: Callable[[], bool] = lambda: True,
    ) -> None:
        self.job = job
        self.figures: dict[str, int] = {}
        self._report_progress = report_progress
        self._renew = renew
        self._cancelled = threading.Event()

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
        return self._cancelled.is_set()

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines carry the job, the task and the attempt."""
        extra = {
            "job_id": str(self.job.id),
            "task": self.job.task,
            "execution_id": str(self.job.lock_token),
            "retry_attempt": self.job.current_retry_count,
        }
        return _RunLogger(logging.getLogger(f"evenbeat.task.{self.job.task}"), extra)

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far the run has come. Cheap: only the newest report is written, once a second."""
        self._report_progress({"done": done, "total": total, "message": message})

    def report(self, **figures: int) -> None:
        """Add to the run's figures: items_crawled, items_indexed, rows_affected."""
        unknown = figures.keys() - _FIGURES
        if unknown:
            raise TypeError(
                f"report() knows {', '.join(sorted(_FIGURES))}; not {', '.join(sorted(unknown))}."
            )
        for name, amount in figures.items():
            self.figures[name] = self.figures.get(name, 0) + int(amount)

    def heartbeat(self) -> None:
        """Renew the lease now and make sure the run still counts; raises `LeaseLost` if not.

        Workers renew by themselves. Call this before a step that must not happen twice.
        """
        if not self.renew():
            raise LeaseLost(f"The run of job {self.job.id} no longer counts: stop here.")

    def renew(self) -> bool:
        """`heartbeat` that answers instead of raising."""
        if not self.cancelled and not self._renew():
            self._cancelled.set()
        return not self.cancelled

    def cancel(self) -> None:
        """Mark the run as unwanted (the worker does this)."""
        self._cancelled.set()


class _RunLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds to the fields of a call; before Python 3.13 an adapter would replace them."""

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs
