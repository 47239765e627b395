"""The README's code runs as printed: its walk-through on a freshly started service, too."""

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fresh_service import FreshService, fresh_service

from evenbeat.store.runs import RunFilter
from waiting import wait_for

pytestmark = pytest.mark.xdist_group("readme")  # one service for all of them

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(heading: str, language: str) -> list[str]:
    """The fenced blocks of a section, in their order."""
    section = re.search(rf"^## {heading}\n(.*?)^## ", README, re.DOTALL | re.MULTILINE)
    assert section, heading
    return re.findall(rf"```{language}\n(.*?)```", section[1], re.DOTALL)


JOBS, BY_PYTHON = blocks("Start", "python")
SERVE, BY_CURL, BY_COMMAND = blocks("Start", "sh")
(TESTING,) = blocks("Testing your jobs", "python")


# -- the walk-through ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FreshService]:
    directory = tmp_path_factory.mktemp("readme")
    (directory / "jobs.py").write_text(JOBS)
    program, command, *arguments = shlex.split(SERVE)
    assert (program, command) == ("evenbeat", "serve")
    with fresh_service(directory, *arguments) as service:
        yield service


def runs_for(service: FreshService, person: str) -> list[dict]:
    """The completed runs that sent mail to somebody."""
    token = service.token("viewer")

    def found() -> list[dict]:
        answer = httpx.get(
            f"{service.url}/api/v1/executions?status=completed",
            headers={"Authorization": f"Bearer {token}"},
            trust_env=False,
        )
        runs = answer.json()["executions"]
        return [run for run in runs if run["result"] == {"sent": f"{person}@example.org"}]

    return wait_for(found, f"mail to {person}")


@pytest.mark.skipif(not shutil.which("curl"), reason="no curl")
def test_the_first_job_by_curl(service: FreshService):
    assert '"status":"pending"' in service.shell(BY_CURL)
    assert len(runs_for(service, "ada")) == 1


def test_the_first_job_by_the_command_line(service: FreshService):
    said = service.shell(BY_COMMAND)
    assert "every 30 minutes" in said
    assert len(runs_for(service, "bob")) == 1


def test_the_first_job_by_python(service: FreshService):
    (service.directory / "elsewhere.py").write_text(BY_PYTHON)
    service.shell("python elsewhere.py")
    assert len(runs_for(service, "eve")) == 1
    waiting = service.shell("evenbeat job list --status scheduled --task send_email --json")
    assert '"dedup_key": "welcome-7"' in waiting
    assert '"priority": 80' in waiting


# -- the rest ------------------------------------------------------------------------------------


@pytest.fixture
def first_look(database_url, monkeypatch):
    monkeypatch.setenv("EVENBEAT_DATABASE_URL", database_url)
    names = {"__name__": "jobs"}
    exec(JOBS, names)  # noqa: S102 - the document under test
    yield names
    names["app"].close()


def test_the_tasks_stay_callable_and_the_schedules_are_there(first_look):
    app = first_look["app"]
    worker = app.worker()
    worker.start()
    first_look["send_email"].enqueue(to="a@example.org")
    wait_for(lambda: app.store.read.execution_totals().completed, "the run")
    worker.stop(grace=1)
    (run,) = app.store.runs.page(RunFilter(statuses=["completed"]), 2).runs
    assert run.execution.result == {"sent": "a@example.org"}
    assert first_look["sync_inventory"]() is None
    assert {"sync_inventory", "report"} <= {job.name for job in app.store.read.jobs().jobs}


def test_the_test_of_a_month_of_reports_passes(first_look, evenbeat_harness):
    names = {"app": first_look["app"]}
    exec(TESTING, names)  # noqa: S102
    names["test_a_month_of_reports"](evenbeat_harness)


def test_every_link_leads_somewhere():
    links = re.findall(r"\]\(([\w./-]+)\)|(?:src|srcset)=\"([\w./-]+)\"", README)
    assert len(links) > 10
    for link in links:
        path = ROOT / "".join(link)
        assert path.exists(), link
