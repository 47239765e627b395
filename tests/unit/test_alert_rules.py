"""The file of Prometheus rules: made from the declaration, of metrics and labels that there are,
and read by Prometheus' own tool as it is meant."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import settings_docs
from evenbeat.domain.alerts import RULES
from evenbeat.observe.metrics import METRICS

TEXT = settings_docs.RULES_FILE.read_text(encoding="utf-8")
(GROUP,) = yaml.safe_load(TEXT)["groups"]
BY_SCRAPER = {"up": {"job", "instance"}}
NAMES = re.compile(r"\b(up|(?:evenbeat|scheduler)_\w+)(?:\{([^}]*)\})?")
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is missing; `make promtool` installs it"
)


def test_the_file_is_what_the_rules_say():
    assert settings_docs.rules_file() == TEXT, "run: make docs"


@pytest.mark.parametrize("rule", GROUP["rules"], ids=lambda rule: rule.get("alert", "record"))
def test_every_metric_and_label_in_a_rule_exists(rule: dict[str, Any]):
    used = NAMES.findall(rule["expr"])
    assert used
    labels = {"instance"}
    for name, matchers in used:
        known = BY_SCRAPER.get(name) or set(METRICS[name].labels)
        assert set(re.findall(r"(\w+)\s*=", matchers)) <= known, name
        labels |= known
    grouped = re.findall(r"(?:by|on) \((\w+)\)", rule["expr"])
    texts = rule.get("annotations", {}).values()
    named = [label for text in texts for label in re.findall(r"\$labels\.(\w+)", text)]
    assert {*grouped, *named} <= labels
    assert set(named) <= set(grouped), "aggregated away"
    assert not [text for text in texts if re.search(r"(?<!\{)\{\w|\w\}(?!\})", text)]


def test_words_name_only_what_is_there_to_fill_them():
    for rule in (*RULES.values(), *settings_docs.FOR_PROMETHEUS_ALONE):
        labels = set(re.findall(r"by \((\w+)\)", rule.expression)) or {"queue", "task"}
        named = set(re.findall(r"\{(\w+)\}", rule.title + rule.remedy))
        assert named <= labels | {"value", "limit", "job"} | (
            {"tasks", "slots", "host"} if not rule.expression else set()
        )
        assert rule.detail or rule.expression, "nobody would read it"


# Series of an hour, one value a minute, and whether the alert fires at its end.
EXECUTIONS = 'evenbeat_executions_total{task="t", outcome="%s", instance="%s"}'
SERIES: list[tuple[str, list[tuple[str, str]], bool]] = [
    ("EvenbeatQueueDepth", [('evenbeat_queue_due{queue="q"}', "1000x60")], False),
    ("EvenbeatQueueDepth", [('evenbeat_queue_due{queue="q"}', "1001x60")], True),
    (
        "EvenbeatQueueDepth",
        [
            ('evenbeat_queue_due{queue="q"}', "1001x60"),
            ('evenbeat_queue_paused{queue="q"}', "1x60"),
        ],
        False,
    ),
    (
        "EvenbeatQueuePaused",
        [('evenbeat_queue_due{queue="q"}', "1x90"), ('evenbeat_queue_paused{queue="q"}', "1x90")],
        True,
    ),
    ("EvenbeatQueueDepth", [('evenbeat_queue_due{queue="q"}', "0x57 1001x3")], False),
    ("EvenbeatLate", [('evenbeat_queue_oldest_due_age_seconds{queue="q"}', "300x60")], False),
    ("EvenbeatLate", [('evenbeat_queue_oldest_due_age_seconds{queue="q"}', "301x60")], True),
    (
        "EvenbeatFailureRate",  # two processes: 9 of 100 runs a minute
        [(EXECUTIONS % ("failed", "a"), "0+9x90"), (EXECUTIONS % ("completed", "b"), "0+91x90")],
        False,
    ),
    (
        "EvenbeatFailureRate",
        [(EXECUTIONS % ("failed", "a"), "0+11x90"), (EXECUTIONS % ("completed", "b"), "0+89x90")],
        True,
    ),
    (
        "EvenbeatFailureRate",  # all of them, but there are only 8 in an hour
        [(EXECUTIONS % ("failed", "a"), " ".join(str(n // 8) for n in range(90)))],
        False,
    ),
    ("EvenbeatRunningLong", [('evenbeat_long_runs{task="t"}', "1x60")], True),
    ("EvenbeatMissedWindow", [('evenbeat_missed_starts{task="t"}', "1x60")], True),
    ("EvenbeatSuccessRate", [('evenbeat_unreliable_jobs{task="t"}', "1x60")], True),
    ("EvenbeatSlower", [('evenbeat_slower_jobs{task="t"}', "1x60")], True),
    ("EvenbeatPlansSkipped", [('evenbeat_plans_skipped_total{task="t"}', "0x30 1x60")], True),
    ("EvenbeatNoWorker", [('evenbeat_workers{status="active"}', "0x60")], True),
    ("EvenbeatNoWorker", [('evenbeat_workers{status="active"}', "1x60")], False),
    ("EvenbeatDatabaseDown", [('up{job="evenbeat-workers"}', "0x60")], True),
]  # fmt: skip


@needs_promtool
def test_prometheus_reads_the_rules_as_they_are_meant(tmp_path: Path):
    tests = []
    for alert, series, fires in SERIES:
        rule = next(rule for rule in GROUP["rules"] if rule.get("alert") == alert)
        query = f'ALERTS{{alertname="{alert}", alertstate="firing"}}'
        samples = f"count({query})"
        tests.append({
            "name": f"{alert} {series}",
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series],
            "promql_expr_test": [{
                "expr": samples,
                "eval_time": "90m" if rule["for"] in ("1h", "10m") else "60m",
                "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
            }],
        })  # fmt: skip
    retries = 'evenbeat_retry_ends_total{task="t", outcome="%s"}'
    tests.append({
        "interval": "1m",
        "input_series": [
            {"series": retries % "completed", "values": "0+3x60"},
            {"series": retries % "failed", "values": "0+1x60"},
            {"series": retries % "cancelled", "values": "0+9x60"},
        ],
        "promql_expr_test": [{
            "expr": "evenbeat:retry_success:ratio1d",
            "eval_time": "60m",
            "exp_samples": [
                {"labels": 'evenbeat:retry_success:ratio1d{task="t"}', "value": 0.75}
            ],
        }],
    })  # fmt: skip
    file = tmp_path / "tests.yaml"
    rules = [str(settings_docs.RULES_FILE)]
    file.write_text(yaml.safe_dump({"rule_files": rules, "tests": tests}))
    for arguments in (["check", "rules", *rules], ["test", "rules", str(file)]):
        ran = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
