"""What needs a person: every rule once, with its threshold, its words and what to do. Pure.

The doctor, the dashboard's "Needs attention" and the metrics read it, and `make docs` writes the
file of Prometheus rules from those that have an `expression`.
"""

from datetime import timedelta
from types import MappingProxyType
from typing import Literal, NamedTuple

from evenbeat.humanize import duration

# A share of fewer runs says nothing.
LEAST_RUNS = 10

# A recurring job is judged by its latest runs: its success rate by 20 and not by fewer than 5; its
# duration by the median of its latest 5 beside that of at least 10 before them.
JUDGED_RUNS, LEAST_JUDGED = 20, 5
RECENT_RUNS, LEAST_EARLIER, SLOWER_BY_MS = 5, 10, 1000


class Rule(NamedTuple):
    """Title and remedy may name the labels of the expression, its `value` and the `limit`; the
    detail also what only the database knows."""

    name: str
    severity: Literal["warning", "error"]
    threshold: float | timedelta
    title: str
    remedy: str
    detail: str = ""
    """What was seen; what only Prometheus knows has none."""
    expression: str = ""
    lasting: str = "0m"
    unit: str = ""
    """What the value counts; "%" for a share."""

    @property
    def number(self) -> float:
        """The threshold as SQL and Prometheus take it; times in seconds."""
        if isinstance(self.threshold, timedelta):
            return self.threshold.total_seconds()
        return self.threshold

    @property
    def limit(self) -> str:
        """The threshold in words."""
        if isinstance(self.threshold, timedelta):
            return duration(self.threshold)
        return f"{self.threshold:.0%}" if 0 < self.threshold < 1 else f"{self.threshold:,g}"


_ALL = (
    Rule(
        "everything_paused", "warning", 0,
        "Everything is paused: no worker starts a job",
        "`evenbeat resume` ends the pause; exactly what could run before it runs again.",
        "{pause}",
    ),
    Rule(
        "unserved", "error", timedelta(seconds=30),
        "No live worker takes {tasks} from the queue '{queue}'",
        "Start a worker whose application knows the task and whose --queues include the queue.",
        "{jobs} due, the oldest for {age}.",
    ),
    Rule(
        "busy", "warning", timedelta(seconds=30),
        "All {slots} are busy: jobs wait in the queue '{queue}'",
        "Add workers, or slots (EVENBEAT_THREADS, EVENBEAT_CHILD_PROCESSES, EVENBEAT_CONCURRENCY), "
        "or look for runs that hang: `evenbeat job list --status running`.",
        "{jobs} of {tasks} due, the oldest for {age}. {workers} could take them.",
    ),
    Rule(
        "held_threads", "warning", timedelta(seconds=10),
        "Held threads: {value} over, but still going on",
        "A thread cannot be ended from outside: let the function look at `ctx.cancelled`, or "
        "restart the worker. EVENBEAT_RECYCLE=held has a worker restart itself when all are held.",
        "On {worker}, for {age}: {tasks}, cancelled, timed out or lost. {held} are held.",
        'sum by (instance) (evenbeat_held{runner="thread"}) > 0',
        "1m", "run",
    ),
    Rule(
        "missing_predecessor", "warning", 0,
        "A schedule is left out: it runs after {value}, which does not exist",
        "Add that job, or let the schedule run after another one. Every start of a worker and "
        "every minute looks again.",
        "It is {schedule} of the application '{application}', for {age}.",
    ),
    Rule(
        "overdue", "error", 0,
        "Overdue: {value} of '{task}'",
        "`evenbeat job show {job}` says why it has not run, or how its runs failed; `evenbeat job "
        "run {job}` runs it now.",
        "For {age}, the first of them {name}: its must_finish_by or must_succeed_every is missed.",
        "max by (task) (evenbeat_overdue_jobs) > {threshold}",
        "1m", "job",
    ),
    Rule(
        "late_start", "warning", 0,
        "Started too late: {value} of '{task}'",
        "`evenbeat job show {job}` says what it waits for. Add workers or slots, or raise its "
        "priority.",
        "For {age}, the first of them {name}: its must_start_within is missed.",
        "max by (task) (evenbeat_late_jobs) > {threshold}",
        "1m", "job",
    ),
    Rule(
        "late", "warning", timedelta(minutes=5),
        "Late: jobs in the queue '{queue}'",
        "Add workers or slots (`evenbeat top` shows which are full), or look for runs that hang: "
        "`evenbeat job list --status running --queue {queue}`.",
        "{jobs} of {tasks} due, the oldest for {age}. {workers} can take them.",
        "max by (queue) (evenbeat_queue_oldest_due_age_seconds) > {threshold}"
        " unless on (queue) max by (queue) (evenbeat_queue_paused) == 1",
        "5m",
    ),
    Rule(
        "queue_paused", "warning", 0,
        "The queue '{queue}' is paused and jobs wait in it",
        "Resume it if it was paused by mistake: `evenbeat queue resume {queue}`.",
        "{jobs} of {tasks} due, the oldest for {age}.",
        "max by (queue) (evenbeat_queue_due) > {threshold}"
        " and on (queue) max by (queue) (evenbeat_queue_paused) == 1",
        "1h", "job",
    ),
    Rule(
        "queue_depth", "warning", 1000,
        "Long queue: {value} due in '{queue}'",
        "Add workers or slots (`evenbeat top` shows which are full), or see what holds them up: "
        "`evenbeat job list --status running --queue {queue}`.",
        "More than {limit}; the oldest has been due for {age}.",
        "max by (queue) (evenbeat_queue_due) > {threshold}"
        " unless on (queue) max by (queue) (evenbeat_queue_paused) == 1",
        "5m", "job",
    ),
    Rule(
        "failure_rate", "warning", 0.1,
        "Failing: {value} of the runs of '{task}'",
        "`evenbeat execution list --status failed` shows the errors, `evenbeat job logs` one "
        "with its trace.",
        "{runs} failed within the last {age}.",
        'sum by (task) (increase(evenbeat_executions_total{outcome="failed"}[1h]))'
        ' / sum by (task) (increase(evenbeat_executions_total{outcome=~"completed|failed"}[1h]))'
        " > {threshold}"
        ' and sum by (task) (increase(evenbeat_executions_total{outcome=~"completed|failed"}[1h]))'
        f" >= {LEAST_RUNS}",
        "10m", "%",
    ),
    Rule(
        "running_long", "warning", timedelta(hours=1),
        "Running for over {limit}: {value} of '{task}'",
        "See whether they make progress: `evenbeat job list --status running --task {task}`. "
        "`evenbeat job cancel` ends one; the setting `timeout` ends those that hang.",
        "The longest for {age}.",
        "max by (task) (evenbeat_long_runs) > 0",
        "1m", "run",
    ),
    Rule(
        "over_usual", "warning", 5,
        "Far over the usual time: {value} of '{task}'",
        "See whether they make progress: `evenbeat job list --status running --task {task}`. "
        "`evenbeat execution cancel` stops one; the setting `timeout` ends those that hang.",
        "The longest for {age}, {worst:.0f} times as long as usual.",
        unit="run",
    ),
    Rule(
        "webhooks_failing", "warning", 0,
        "Webhook deliveries to {host} fail: {value}",
        "`evenbeat webhook deliveries` shows the responses.",
        "For {age}.",
        unit="message",
    ),
    Rule(
        "missed_window", "warning", 0,
        "Missed the time to start: {value} of '{task}'",
        "See whether workers were away or busy then, or widen the window. What is still needed: "
        "`evenbeat job run`.",
        "Within the last {age}: no worker started them before the execution window closed, or "
        "before the plan was given up as too late.",
        "max by (task) (evenbeat_missed_starts) > {threshold}",
        "1m", "run",
    ),
    Rule(
        "success_rate", "warning", 0.8,
        "Fewer than {limit} of the runs succeed: {value} of '{task}'",
        "`evenbeat job logs {job}` shows its last errors.",
        "For {age}. The worst is {name}: {worst:.0%} of its latest runs succeeded.",
        "max by (task) (evenbeat_unreliable_jobs) > 0",
        "1m", "job",
    ),
    Rule(
        "slower", "warning", 1.5,
        "Getting slower: {value} of '{task}'",
        "`evenbeat job show {job}` lists its runs; see what has changed since then.",
        "For {age}. The worst is {name}: its latest runs took {worst:.1f} times as long as those "
        "before.",
        "max by (task) (evenbeat_slower_jobs) > 0",
        "1m", "job",
    ),
)  # fmt: skip

RULES = MappingProxyType({rule.name: rule for rule in _ALL})
"""By name, the gravest first."""
