"""The tables of a job's settings and of the alerts in the documentation, and the file of Prometheus
rules, made from their declarations; the rules for Prometheus alone are declared here.

`python tests/settings_docs.py` writes them; a test fails when they are out of date.
"""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml

from evenbeat.domain.alerts import RULES, Rule
from evenbeat.domain.job import SETTINGS, JobSpec, Setting
from evenbeat.domain.setting_kinds import (
    ArgumentNames,
    Choice,
    Count,
    Duration,
    Durations,
    ErrorNames,
    Flag,
    Rate,
    Share,
    Size,
)

DOCS = Path(__file__).parents[1] / "docs"
DEFAULTS = JobSpec(task="any")


WORDS = {
    Duration: 'a duration: `"1h30m"` or seconds',
    ArgumentNames: 'a list of names of arguments: `["user", "day"]`',
    ErrorNames: 'a list of exceptions or their names: `[TimeoutError, "httpx.ReadError"]`',
    Durations: 'a list of durations: `["10s", "1m"]`',
    Flag: "yes or no",
    Rate: '`"10/s"`, `"100/min"`, `"5 per 30s"`',
    Share: "0 to 1",
    Size: '`"512MB"`, or bytes',
}


def values_of(setting: Setting) -> str:
    """What a setting may be, in a few words."""
    kind = setting.kind
    if isinstance(kind, Choice):
        return ", ".join(f"`{word}`" for word in kind.words)
    if isinstance(kind, Count):
        return f"{kind.low} to {kind.high:,}"
    return WORDS.get(type(kind), "text")


def default_of(setting: Setting) -> str:
    value = setting.of(DEFAULTS)
    return "" if value in (None, ()) else f"`{setting.kind.to_text(value)}`"


def reference_table() -> str:
    rows = (f"| `{s.name}` | {s.help} | {values_of(s)} | {default_of(s)} |" for s in SETTINGS)
    return "\n".join(["| setting | meaning | values | default |", "|---|---|---|---|", *rows])


def option_table() -> str:
    rows = (f"| `--{s.name.replace('_', '-')}` | {s.help} |" for s in SETTINGS)
    return "\n".join(["| option | meaning |", "|---|---|", *rows])


# What stands in a rule for what only the series or only the reader knows.
SERIES = {label: "{{ $labels." + label + " }}" for label in ("queue", "task", "instance", "table")}
# What one look at the database does not show, or what is about the database itself.
FOR_PROMETHEUS_ALONE = (
    Rule(
        "database_down", "error", 0,
        "The database is down",
        "Nothing is lost: workers keep trying, leases are given up in time, jobs run again "
        "afterwards. Check the server, its connections, the network.",
        expression='min(evenbeat_database_up) == {threshold} or up{job=~"evenbeat.*"} == 0',
        lasting="1m",
    ),
    Rule(
        "no_worker", "error", 0,
        "No worker is alive",
        "Start workers. `evenbeat worker` says when it starts what keeps it from working.",
        expression='max(evenbeat_workers{status="active"}) == {threshold}',
        lasting="2m",
    ),
    Rule(
        "plans_skipped", "warning", 0,
        "Plans of '{task}' were skipped",
        "They came due while nothing could run them, and the catch-up policy gave them up. Run "
        "those that are still needed: `evenbeat job backfill`.",
        expression="sum by (task) (increase(evenbeat_plans_skipped_total[1h])) > {threshold}",
    ),
    Rule(
        "leases_lost", "warning", 0,
        "Leases are lost",
        "Work was done twice or thrown away: workers were frozen, the database was down for longer "
        "than a lease, or renewing takes too long (`evenbeat_renew_duration_seconds`).",
        expression="sum(increase(evenbeat_leases_lost_total[15m])) > {threshold}",
    ),
    Rule(
        "workers_die", "warning", 5,
        "Workers die while they run jobs",
        "Look for what kills them: memory, `kill -9`, machines going away.",
        expression="max(increase(evenbeat_stale_locks_cleared_total[15m])) > {threshold}",
    ),
    Rule(
        "loop_blocked", "warning", timedelta(seconds=1),
        "A handler blocks the event loop of {instance}",
        "An async task calls something that blocks. Make it a plain function, or `isolate=True`.",
        expression="max by (instance) (evenbeat_event_loop_lag_seconds) > {threshold}",
        lasting="2m",
    ),
    Rule(
        "worker_stuck", "error", timedelta(minutes=1),
        "The worker {instance} claims nothing",
        "`/readyz` of that process is 503 too. Its log says why it cannot claim; restart it if "
        "nothing does.",
        expression="max by (instance) (evenbeat_claim_age_seconds) > {threshold}",
    ),
    Rule(
        "vacuum_held_back", "warning", timedelta(minutes=30),
        "A transaction has been open for over {limit}",
        "Find that session in `pg_stat_activity` and end it: dead rows of a busy queue pile up "
        "meanwhile.",
        expression="max(evenbeat_oldest_transaction_age_seconds) > {threshold}",
    ),
    Rule(
        "dead_rows", "warning", 1,
        "Dead rows pile up in the table {table}",
        "Usually a transaction that stays open. Otherwise autovacuum cannot keep up: raise its "
        "cost limit.",
        expression="max by (table) "
        "(evenbeat_table_dead_tuples / (evenbeat_table_live_tuples + 1000)) > {threshold}",
        lasting="30m",
    ),
    Rule(
        "maintenance_stopped", "warning", timedelta(minutes=5),
        "Maintenance has stopped",
        "No worker does the chores: none is alive, or all are stuck.",
        expression='max(evenbeat_figures_age_seconds{figure="executions"}) > {threshold}',
    ),
    Rule(
        "uneven_schedule", "warning", 0.5,
        "The schedule is uneven",
        "Look at the distribution's suggestion: `evenbeat distribution`; preview a rebalance.",
        expression="max(scheduler_distribution_score) < {threshold}",
        lasting="1h",
    ),
)  # fmt: skip
ALERTS = [*(rule for rule in RULES.values() if rule.expression), *FOR_PROMETHEUS_ALONE]


def expression(rule: Rule) -> str:
    """In PromQL."""
    return rule.expression.replace("{threshold}", f"{rule.number:g}")


def alert(rule: Rule) -> dict[str, Any]:
    """As Prometheus reads it."""
    value = '{{ $value | printf "%.0f" }} ' + rule.unit + "(s)"
    if rule.unit == "%":
        value = "{{ $value | humanizePercentage }}"
    words = SERIES | {"value": value, "limit": rule.limit, "job": "JOB"}
    return {
        "alert": "Evenbeat" + rule.name.title().replace("_", ""),
        "expr": expression(rule),
        "for": rule.lasting,
        "labels": {"severity": {"error": "critical"}.get(rule.severity, rule.severity)},
        "annotations": {
            "summary": rule.title.format(**words),
            "description": rule.remedy.format(**words),
        },
    }


def rules_file() -> str:
    """The alerts, and the share of retries that succeed."""
    ended = "sum by (task) (increase(evenbeat_retry_ends_total{}[1d]))"
    succeeded = ended.replace("{}", '{outcome="completed"}')
    counted = ended.replace("{}", '{outcome=~"completed|failed"}')
    record = {"record": "evenbeat:retry_success:ratio1d", "expr": f"{succeeded} / {counted}"}
    groups = [{"name": "evenbeat", "rules": [record, *map(alert, ALERTS)]}]
    text = yaml.safe_dump({"groups": groups}, sort_keys=False, width=96, allow_unicode=True)
    sources = "src/evenbeat/domain/alerts.py and tests/settings_docs.py"
    return f"# Written by `make docs` from {sources}.\n{text}"


def alert_table() -> str:
    """Each alert with its rule, and what to do."""
    words = {label: label.upper() for label in ("queue", "task", "instance", "table", "job")}
    rows = []
    for rule in ALERTS:
        query = expression(rule).replace("|", "\\|")
        lasting = "" if rule.lasting == "0m" else f" for {rule.lasting}"
        words |= {
            "limit": rule.limit,
            "value": f"N{rule.unit}" if rule.unit == "%" else f"N {rule.unit}s",
        }
        title, remedy = rule.title.format(**words), rule.remedy.format(**words)
        rows.append(f"| {title} | `{query}`{lasting} | {remedy} |")
    return "\n".join(["| alert | rule | what to do |", "|---|---|---|", *rows])


TABLES = {"reference.md": reference_table, "cli.md": option_table, "monitoring.md": alert_table}
RULES_FILE = DOCS.parent / "deploy" / "prometheus" / "evenbeat-rules.yaml"


def with_table(name: str, text: str) -> str:
    """The document with its table made again."""
    marks = r"(<!-- (?:settings|alerts) -->\n).*?(<!-- end -->)"
    return re.sub(marks, lambda m: f"{m[1]}{TABLES[name]()}\n{m[2]}", text, flags=re.DOTALL)


if __name__ == "__main__":
    for name in TABLES:
        path = DOCS / name
        path.write_text(with_table(name, path.read_text(encoding="utf-8")), encoding="utf-8")
    RULES_FILE.write_text(rules_file(), encoding="utf-8")
