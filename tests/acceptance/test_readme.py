"""The README's code runs as printed."""

import re
import time
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()
FIRST_LOOK, TESTING = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.fixture
def first_look(database_url, monkeypatch):
    monkeypatch.setenv("EVENBEAT_DATABASE_URL", database_url)
    names = {"__name__": "yourmodule"}
    exec(FIRST_LOOK, names)  # noqa: S102 - the document under test
    yield names
    names["app"].close()


def test_the_first_look_enqueues_and_runs(first_look):
    app = first_look["app"]
    worker = app.worker()
    worker.start()
    deadline = time.monotonic() + 20
    while app.store.read.execution_totals().completed < 1 and time.monotonic() < deadline:
        time.sleep(0.02)
    worker.stop(grace=1)
    (run,) = app.store.read.recent_executions(statuses=["completed"])
    assert run.result == {"sent": "a@example.org"}
    states = {job.name or job.dedup_key or job.task: job for job in app.store.read.jobs().jobs}
    assert states["welcome-7"].status == "scheduled"
    assert states["welcome-7"].priority == 80
    assert {"sync_inventory", "report"} < set(states)


def test_the_test_of_a_month_of_reports_passes(first_look, evenbeat_harness):
    names = {"app": first_look["app"]}
    exec(TESTING, names)  # noqa: S102
    names["test_a_month_of_reports"](evenbeat_harness)
