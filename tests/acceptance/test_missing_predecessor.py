"""A schedule that runs after a job that is not there: everything else starts and runs, and it is
said which schedule is left out, until somebody adds the job."""

from pathlib import Path
from typing import Any

import pytest
from real_processes import Start

from evenbeat import Evenbeat
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.observe import doctor
from evenbeat.observe.alerts import alerts
from evenbeat.store.store import Store
from waiting import wait_for

APP = """
from evenbeat import Evenbeat

app = Evenbeat(name="shop")

@app.after("nightly-load")
def report(): pass

@app.after("report")
def mail(): pass

@app.every("1s")
def tick(): pass
"""


@pytest.mark.parametrize(
    ("command", "ready"),
    [(("worker",), "Starting interval scheduler"), (("serve", "--port", "0"), "Dashboard")],
)
def test_it_keeps_neither_worker_nor_serve_from_starting(
    command: tuple[str, ...], *, ready: str, start: Start, tmp_path: Path, store: Store,
    database_url: str,
):  # fmt: skip
    (tmp_path / "shop.py").write_text(APP)
    arguments = ("-m", "evenbeat", *command, "--app", "shop:app")
    running = start(*arguments, EVENBEAT_DATABASE_URL=database_url)
    running.wait_for_line(ready)
    assert running.text.count("'report' runs after 'nightly-load'") == 1
    assert running.text.count("'mail' runs after 'report'") == 1
    tick = store.read.job_by_name("tick")
    assert tick is not None
    wait_for(lambda: store.read.job(tick.id).run_count, "other schedules to run")
    assert store.read.job_by_name("report") is None
    running.stop()


def test_it_is_shown_and_made_with_the_next_synchronisation(database_url: str, store: Store):
    names: dict[str, Any] = {"name": "shop"}
    with Evenbeat(database_url, **names) as app:

        @app.after("nightly-load")
        def report() -> None: ...

        assert app.sync_schedules().waiting == {"report": "nightly-load"}
        (alert,) = alerts(store.database.rows, store.clock())
        assert alert.rule.name == "missing_predecessor"
        assert alert.title.startswith("A schedule is left out: it runs after 'nightly-load'")
        assert alert.detail.startswith("It is 'report' of the application 'shop'")
        assert "missing_predecessor" in {one.code for one in doctor.check(database_url)}

        store.add(NewJob(JobSpec("load"), name="nightly-load"))
        synced = app.sync_schedules()
        assert (synced.created, synced.waiting) == (["report"], {})
        assert [one.rule.name for one in alerts(store.database.rows, store.clock())] == []
