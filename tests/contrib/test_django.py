"""A Django project whose jobs are run by `manage.py evenbeat worker`: real processes."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from evenbeat.domain.states import JobStatus
from evenbeat.store.store import Store
from waiting import wait_for

SITE = Path(__file__).parent / "django_site"
Manage = Callable[..., str]


@pytest.fixture
def manage(empty_direct_url: str) -> Manage:
    """Runs `manage.py` to its end and gives what it wrote."""

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=SITE,
            env=site_environment(empty_direct_url),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def site_environment(url: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EVENBEAT_")}
    return kept | {"SITE_DATABASE": url, "EVENBEAT_POLL_SECONDS": "1"}


@pytest.fixture
def worker(empty_direct_url: str, manage: Manage, tmp_path: Path) -> Iterator[Path]:
    """A worker of the site; the file that it logs to."""
    manage("migrate", "--run-syncdb", "--verbosity", "0")
    log = tmp_path / "worker.log"
    with (
        log.open("w") as file,
        subprocess.Popen(
            [sys.executable, "manage.py", "evenbeat", "worker", "--concurrency", "2"],
            cwd=SITE,
            env=site_environment(empty_direct_url),
            stdout=file,
            stderr=file,
        ) as process,
    ):
        try:
            wait_for(lambda: "Starting interval scheduler" in log.read_text(), "the worker")
            yield log
        finally:
            process.terminate()
            assert process.wait(60) == 0, log.read_text()


@pytest.fixture
def site_store(empty_direct_url: str) -> Iterator[Store]:
    store = Store(empty_direct_url, schema="bakery_jobs", timeout=10)
    yield store
    store.close()


def enqueued(manage: Manage, task: str, *arguments: str) -> UUID:
    given = ", ".join(map(repr, arguments))
    code = f"from bakery.tasks import {task}; print('id', {task}.enqueue({given}).id)"
    return UUID(manage("shell", "-c", code).split()[-1])


def test_a_worker_of_manage_py_finds_the_tasks_and_runs_each_kind(manage, worker, site_store):
    ids = [enqueued(manage, task, "rye") for task in ("bake", "abake", "bake_apart")]
    wait_for(
        lambda: all(site_store.read.job(id_).status == JobStatus.COMPLETED for id_ in ids),
        "all three to end",
    )
    loaves = {site_store.read.executions_of(id_).executions[0].result for id_ in ids}
    assert loaves == {1, 2, 3}
    assert site_store.read.job_by_name("count loaves").task == "count"
    listed = manage("evenbeat", "job", "list", "--json")
    assert all(str(id_) in listed for id_ in ids)


@pytest.mark.parametrize("task", ["bake", "abake"])
def test_runs_go_on_after_the_database_has_cut_all_connections(
    manage, worker, site_store, connect_to, task
):
    def run_one() -> None:
        job_id = enqueued(manage, task, "rye")
        done = JobStatus.COMPLETED
        wait_for(lambda: site_store.read.job(job_id).status == done, "the job", seconds=15)

    for _ in range(3):  # for both threads of the worker
        run_one()
    with connect_to() as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    for _ in range(3):
        run_one()


@pytest.fixture
def connect_to(empty_direct_url: str) -> Callable[[], psycopg.Connection]:
    return lambda: psycopg.connect(empty_direct_url, autocommit=True)


def test_the_sites_own_tests_pass(manage):
    said = manage("test", "--noinput")
    assert "Ran 8 tests" in said
    assert "OK" in said
