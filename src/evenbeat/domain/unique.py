"""Which calls mean the same job: keys that are made of a task and its arguments. Pure."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from evenbeat.domain.schedule import After, Once, Recurring
from evenbeat.domain.scope import GLOBAL
from evenbeat.domain.setting_kinds import MAX_NAME
from evenbeat.errors import InvalidInput

if TYPE_CHECKING:
    from evenbeat.domain.job import JobRecord, JobSpec, NewJob

_WAYS = ("unique_for", "throttle", "debounce")


def dedup_key(kind: str, id_: str) -> str:
    """What at most one live job has for this thing; of an id that is no name, its hash."""
    key = f"{kind}:{id_}"
    usable = len(key) <= MAX_NAME and key.isprintable() and key == key.strip()
    return key if usable else f"{kind}:{hashlib.sha256(id_.encode()).hexdigest()}"


def check_unique(spec: "JobSpec") -> None:
    """Refuse settings that contradict each other."""
    chosen = [way for way in _WAYS if getattr(spec, way) is not None]
    if len(chosen) > 1:
        raise InvalidInput(
            f"{chosen[0]} and {chosen[1]} say differently what a second call comes to. Give one of "
            f"{', '.join(_WAYS[:-1])} and {_WAYS[-1]}.",
            field=chosen[1],
        )
    if spec.debounce_max is not None and spec.debounce_max < (spec.debounce or timedelta.max):
        raise InvalidInput(
            "debounce_max is the longest that debounce may put a run off: give debounce too, and "
            "no longer than that.",
            field="debounce_max",
        )


def is_unique(spec: "JobSpec") -> bool:
    """Whether a second call may come to the job of the first."""
    return spec.unique_by is not None or any(getattr(spec, way) is not None for way in _WAYS)


def identified(job: "NewJob") -> "NewJob":
    """The job with the key by which a second call finds it, and one that is debounced put off. A
    schedule is there once anyway, so it has none."""
    spec = job.spec
    is_declared = (job.created_by or "").startswith("code:")
    if not is_unique(spec) or isinstance(spec.schedule, Recurring) or is_declared:
        return job
    way = next((way for way in _WAYS if getattr(spec, way) is not None), None)
    task = spec.task if job.scope == GLOBAL else f"{spec.task}:{job.scope}"
    # Objects are the same whatever the order of their fields. What is no JSON is refused later.
    arguments = json.dumps(_compared(spec, job.payload), sort_keys=True, default=str)
    if way is None:
        return replace(job, dedup_key=job.dedup_key or dedup_key(f"unique:{task}", arguments))
    job = replace(job, unique_key=dedup_key(f"{way.removesuffix('_for')}:{task}", arguments))
    if spec.debounce is None:
        return job
    if isinstance(spec.schedule, After):
        raise InvalidInput(
            f"A job that runs after others is not put off by debounce. Leave one of both out; "
            f"schedule_delay makes {spec.task!r} wait a while.",
            field="debounce",
        )
    if job.name is not None or job.dedup_key is not None:
        raise InvalidInput(
            "With debounce a job has neither name nor dedup_key: its task and the arguments of "
            "unique_by say which it is.",
            field="debounce",
        )
    has_moment = job.start is not None or spec.schedule != Once()
    return job if has_moment else replace(job, start=spec.debounce)


def holds_key(job: "JobRecord", now: datetime) -> bool:
    """Whether a job that is unique for a period still stands for other calls."""
    seconds = job.throttle_seconds or job.unique_for_seconds
    within = seconds is not None and job.created_at + timedelta(seconds=seconds) > now
    return within and (
        job.throttle_seconds is not None or job.status not in ("failed", "cancelled")
    )


def _compared(spec: "JobSpec", payload: Mapping[str, Any]) -> Mapping[str, Any]:
    if spec.unique_by is None:
        return payload if spec.unique_for is not None else {}
    for name in spec.unique_by:
        if name not in payload:
            raise InvalidInput(
                f"unique_by names the argument {name!r}, which this job of {spec.task!r} was not "
                "given. Give it, even where it has a default, or take it out of unique_by.",
                field="unique_by",
            )
    return {name: payload[name] for name in spec.unique_by}
