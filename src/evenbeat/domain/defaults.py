"""A task's own settings as a document, so that a process without its handler can use them."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from evenbeat.domain.job import JobSpec, OnFailure
from evenbeat.domain.limits import parse_rate
from evenbeat.domain.retry import RetryPolicy


def defaults_of(spec: JobSpec) -> dict[str, Any]:
    """What the task's jobs start from, in JSON; times are seconds."""
    return {
        "priority": spec.priority,
        "timeout": _seconds(spec.timeout),
        "lease": _seconds(spec.lease),
        "heartbeat": _seconds(spec.heartbeat),
        "cost": _seconds(spec.cost),
        "allow_stale_reentry": spec.allow_stale_reentry,
        "on_failure": spec.on_failure.value,
        "max_retries": spec.retry.max_retries,
        "retry_base": _seconds(spec.retry.base),
        "retry_cap": _seconds(spec.retry.cap),
        "retry_jitter": spec.retry.jitter,
        "retry_delays": [delay.total_seconds() for delay in spec.retry.delays],
        "concurrency_key": spec.concurrency_key,
        "concurrency_limit": spec.concurrency_limit,
        "rate_limit": None if spec.rate_limit is None else str(spec.rate_limit),
    }


def spec_from(task: str, queue: str, defaults: Mapping[str, Any]) -> JobSpec:
    """The spec that such a document describes; what it does not name is as for any task."""
    plain = JobSpec(task=task)
    known = defaults_of(plain) | dict(defaults)
    return JobSpec(
        task=task,
        queue=queue,
        priority=known["priority"],
        timeout=_duration(known["timeout"]),
        lease=_duration(known["lease"]),
        heartbeat=_duration(known["heartbeat"]),
        cost=_duration(known["cost"]),
        allow_stale_reentry=known["allow_stale_reentry"],
        on_failure=OnFailure(known["on_failure"]),
        concurrency_key=known["concurrency_key"],
        concurrency_limit=known["concurrency_limit"],
        rate_limit=None if known["rate_limit"] is None else parse_rate(known["rate_limit"]),
        retry=RetryPolicy(
            max_retries=known["max_retries"],
            base=timedelta(seconds=known["retry_base"]),
            cap=timedelta(seconds=known["retry_cap"]),
            jitter=known["retry_jitter"],
            delays=tuple(timedelta(seconds=delay) for delay in known["retry_delays"]),
        ),
    )


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()


def _duration(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
