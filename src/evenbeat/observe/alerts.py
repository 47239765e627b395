"""Which rules about the jobs are broken now: looked up once, for the doctor, the dashboard and the
metrics alike. The rules and their words are in `domain/alerts.py`."""

import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from evenbeat.domain.alerts import LEAST_RUNS, RULES, Rule
from evenbeat.domain.runner_load import PLACES
from evenbeat.humanize import count, duration, listing
from evenbeat.store.reads import QueueDepth
from evenbeat.store.summaries import (
    COUNTED_LANE,
    SILENT_AFTER,
    FleetPause,
    WaitingLane,
    waiting_params,
)
from evenbeat.store.upkeep import WAITING_SCHEDULES, WorkerRecord
from evenbeat.store.webhooks import host_of

Rows = Callable[[str, Mapping[str, Any]], Iterable[Any]]
"""Gives the rows of a named statement."""

_UNSERVED, _LATE, _HELD = (
    timedelta(seconds=RULES[name].number) for name in ("unserved", "late", "held_threads")
)
_RANK = {name: rank for rank, name in enumerate(RULES)}


class TaskAlert(NamedTuple):
    """A broken rule about the runs or jobs of a task; see the statement `alerts`."""

    rule: str
    task: str
    number: int
    worst: float | None
    since: datetime
    job_id: UUID | None
    name: str | None


class Alert(NamedTuple):
    """A broken rule in words. `jobs` are the filters of a list that shows which jobs are meant;
    `job_id` is there when it is just one."""

    rule: Rule
    title: str
    detail: str
    remedy: str
    since: datetime
    jobs: Mapping[str, str]
    job_id: UUID | None = None

    @property
    def key(self) -> str:
        """The same for as long as it is on, while the figures in its title change."""
        return ":".join([self.rule.name, *(f"{k}={v}" for k, v in sorted(self.jobs.items()))])


def task_alerts(rows: Rows, now: datetime | None) -> list[TaskAlert]:
    """The broken rules about tasks."""
    thresholds = {name: rule.number for name, rule in RULES.items()}
    params = thresholds | {"least_runs": LEAST_RUNS, "now": now}
    return [TaskAlert._make(row) for row in rows("alerts", params)]


def alerts(rows: Rows, now: datetime) -> list[Alert]:
    """Every broken rule, the gravest first."""
    found = []

    def add(code: str, since: datetime, job_id: UUID | None = None, /, **words: Any) -> None:
        rule = RULES[code]
        jobs: dict[str, str] = {key: words[key] for key in ("queue", "task") if key in words}
        seconds = int((now - since).total_seconds())
        seconds -= seconds % 60 if seconds > 60 else 0  # they would only flicker
        words |= {"age": duration(seconds), "limit": rule.limit}
        quoted = {key: shlex.quote(text) for key, text in jobs.items()}
        title, detail = rule.title.format(**words), rule.detail.format(**words)
        remedy = rule.remedy.format(**words | quoted)
        jobs |= {"status": "running"} if code in {"running_long", "over_usual"} else {}
        found.append(Alert(rule, title, detail, remedy, since, jobs, job_id))

    paused = [FleetPause._make(row) for row in rows("fleet_pause", {"now": now})]
    for pause in paused:
        add("everything_paused", pause.since, pause=pause.text)
    waiting: defaultdict[tuple[str, str], list[WaitingLane]] = defaultdict(list)
    for lane in map(WaitingLane._make, rows("waiting_lanes", waiting_params(_UNSERVED, now))):
        name = "queue_paused" if lane.paused_at else "late" if lane.workers else "unserved"
        if name == "late" and lane.busy == lane.workers:
            name = "busy"
        if name != "late" or now - lane.oldest_due >= _LATE:
            waiting[name, lane.queue].append(lane)
    if paused:  # the reason for all that waits
        waiting.clear()
    for (name, queue), lanes in waiting.items():
        tasks, number = sorted({lane.task for lane in lanes}), sum(lane.jobs for lane in lanes)
        named = listing([f"'{task}'" for task in tasks])
        words: dict[str, Any] = {"queue": queue} | ({"task": tasks[0]} if len(tasks) == 1 else {})
        words["tasks"] = f"{'the task' if len(tasks) == 1 else 'the tasks'} {named}"
        words["jobs"] = count(number, "job") + (" or more" if number >= COUNTED_LANE else "")
        words["workers"] = count(min(lane.workers for lane in lanes), "worker")
        full = {f"{lane.slots or 0:,} {PLACES.get(lane.runner or '', 'slots')}" for lane in lanes}
        words["slots"] = listing(sorted(full))
        add(name, lanes[0].oldest_due, **words)
    for *depth, _ in rows("queue_depths", {"now": now}) if not paused else ():
        one_queue = QueueDepth._make(depth)
        if one_queue.due > RULES["queue_depth"].number and not one_queue.paused_at:
            value = count(one_queue.due, "job")
            add("queue_depth", one_queue.oldest_due or now, queue=one_queue.name, value=value)
    for code, since, job_id, words in [*_left_out(rows), *_held_threads(rows, now)]:
        add(code, since, job_id, **words)
    hosts: defaultdict[str, list[tuple[datetime, int]]] = defaultdict(list)
    for url, since, undelivered in rows("failing_endpoints", {}):
        hosts[host_of(url)].append((since, undelivered))
    for host, endpoints in hosts.items():
        number = sum(undelivered for _, undelivered in endpoints)
        value = f"{count(number, 'message waits', 'messages wait')}"
        add("webhooks_failing", min(since for since, _ in endpoints), host=host, value=value)
    for one in task_alerts(rows, now):
        unit, worst = RULES[one.rule].unit, one.worst or 0.0
        value = f"{worst:.0%}" if unit == "%" else count(one.number, unit)
        runs = f"{one.number:,} of {count(round(one.number / worst), 'run')}" if worst else ""
        words = {"task": one.task, "value": value, "worst": worst, "runs": runs, "job": one.job_id}
        words["name"] = f"'{one.name}'" if one.name else one.job_id
        add(one.rule, one.since, one.job_id if one.number == 1 else None, **words)
    return sorted(found, key=lambda alert: _RANK[alert.rule.name])


_Broken = Iterator[tuple[str, datetime, UUID | None, dict[str, Any]]]


def _left_out(rows: Rows) -> _Broken:
    """Schedules that run after a job that is not there."""
    for name, waiting, noted_at in rows("figures", {}):
        application = name.removeprefix(WAITING_SCHEDULES)
        if application != name:
            for schedule, job in waiting.items():
                words = {"value": f"'{job}'", "schedule": f"'{schedule}'"}
                yield "missing_predecessor", noted_at, None, words | {"application": application}


def _held_threads(rows: Rows, now: datetime) -> _Broken:
    """Workers with runs that are over and go on."""
    silent = {"silent_seconds": SILENT_AFTER.total_seconds(), "now": now}
    for worker in map(WorkerRecord._make, rows("workers", silent)):
        for load in worker.loads:
            if held := [run for run in load.held if now - run.since >= _HELD]:
                words = {"worker": worker.label, "value": count(len(held), "run")}
                words["tasks"] = listing(sorted({f"'{run.task}'" for run in held}))
                words["held"] = f"{len(load.held):,} of {load.slots:,} {PLACES[load.runner]}"
                yield "held_threads", min(run.since for run in held), held[0].job_id, words
