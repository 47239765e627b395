"""`evenbeat worker`, as a real process that gets real signals."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import httpx
import psutil
import pytest
from real_processes import Running, Start

from evenbeat import Evenbeat, __version__
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.states import JobStatus
from evenbeat.store.store import Store
from proxy import Proxy
from waiting import wait_for

APP = """
import asyncio, os
from evenbeat import Context, Evenbeat

app = Evenbeat(name="shop")

@app.task
async def nap(seconds: float):
    await asyncio.sleep(seconds)

@app.task
def greet(name: str, *, ctx: Context):
    ctx.logger.info("Hello", extra={"who": name})

@app.task(queue="mail")
def mail(): pass

@app.task(isolate=True)
def alone(ctx: Context):
    ctx.logger.info("On my own", extra={"pid": os.getpid()})
    return {"parent": os.getppid()}

@app.every("1h")
def tick(): pass
"""

WORKER = ("-m", "evenbeat", "worker", "--app", "shop:app")

Worker = Callable[..., Running]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    file = tmp_path / "shop.py"
    file.write_text(APP)
    return file


@pytest.fixture
def worker(start: Start, shop: Path, database_url: str) -> Worker:
    """Starts the command and returns when it is at work."""

    def run(*arguments: str, **environment: str) -> Running:
        environment.setdefault("EVENBEAT_DATABASE_URL", database_url)
        running = start(*(arguments or WORKER), **environment)
        running.wait_for_line("Starting interval scheduler")
        return running

    return run


def add(store: Store, task: str, queue: str = "default", **payload: object) -> UUID:
    return store.add(NewJob(JobSpec(task, queue=queue, priority=0), payload)).id


def wait_until(store: Store, job_id: UUID, status: JobStatus) -> None:
    wait_for(lambda: store.read.job(job_id).status == status, f"{job_id} to be {status}")


# -- serving -------------------------------------------------------------------------------------


def test_it_runs_jobs_and_says_what_it_serves(worker: Worker, store: Store, database_url: str):
    running = worker(EVENBEAT_DATABASE_URL=f"{database_url}&password=hunter2")

    job_id = add(store, "greet", name="Ada Lovelace")
    wait_until(store, job_id, JobStatus.COMPLETED)

    assert running.stop() == 0
    serving = running.wait_for_line("INFO  Serving  ")
    served = serving.partition("tasks=")[2].split()[0].split(",")
    assert {"alone", "evenbeat:webhook", "greet", "http", "mail", "nap", "tick"} <= set(served)
    assert "queues=*" in serving
    assert "schedules=1 schedules_created=tick" in serving
    hello = running.wait_for_line("INFO  Hello  ")
    assert f"job_id={job_id}" in hello
    assert 'who="Ada Lovelace"' in hello
    assert "hunter2" not in running.text


def test_json_lines_have_their_fields(worker: Worker, store: Store):
    running = worker(*WORKER, "--log-format", "json", "--log-level", "INFO")

    job_id = add(store, "greet", name='new\nline and "quotes"')
    wait_until(store, job_id, JobStatus.COMPLETED)
    failing = add(store, "greet", nobody="x")
    running.wait_for_line("Job execution failed")
    running.stop()

    events = [json.loads(line) for line in running.lines]
    assert all({"timestamp", "level", "event", "logger"} <= event.keys() for event in events)
    hello = next(event for event in events if event["event"] == "Hello")
    assert (hello["who"], hello["job_id"]) == ('new\nline and "quotes"', str(job_id))
    failed = next(event for event in events if event["event"] == "Job execution failed")
    assert (failed["level"], failed["job_id"]) == ("error", str(failing))


def test_it_serves_only_the_queues_it_is_given(worker: Worker, store: Store):
    running = worker(*WORKER, "--queues", "mail, post", "--queues", "urgent")

    other, mine = add(store, "mail"), add(store, "mail", queue="mail")

    wait_until(store, mine, JobStatus.COMPLETED)
    assert store.read.job(other).status == JobStatus.PENDING
    assert "queues=mail,post,urgent" in running.wait_for_line("Serving")
    assert store.upkeep.workers()[0].queues == ["mail", "post", "urgent"]


def test_a_file_can_be_named_and_its_isolated_tasks_run(
    worker: Worker, store: Store, shop: Path, tmp_path: Path
):
    package = tmp_path / "elsewhere" / "company"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    shop.rename(package / "jobs.py")

    running = worker("-m", "evenbeat", "worker", "--app", "elsewhere/company/jobs.py:app")
    job_id = add(store, "alone")

    wait_until(store, job_id, JobStatus.COMPLETED)
    assert f"job_id={job_id} task=alone" in running.wait_for_line("On my own")


def test_removed_schedules_are_reported_and_stopped_when_asked(
    worker: Worker, store: Store, shop: Path
):
    worker().stop()
    shop.write_text(APP.replace("tick", "tock"))

    second = worker()
    assert "schedules_created=tock schedules_removed=tick" in second.wait_for_line("Serving")
    second.stop()
    assert not store.read.job_by_name("tick").is_paused

    third = worker(*WORKER, "--disable-removed")
    assert "schedules_stopped=tick" in third.wait_for_line("Serving")
    assert store.read.job_by_name("tick").is_paused
    assert not store.read.job_by_name("tock").is_paused


def test_without_a_url_it_starts_the_embedded_server(start: Start, shop: Path, tmp_path: Path):
    data_dir = tmp_path / "data"
    running = start(*WORKER, EVENBEAT_DATA_DIR=str(data_dir))
    running.wait_for_line("Starting interval scheduler")

    with Evenbeat(data_dir=data_dir) as app:
        job_id = add(app.store, "greet", name="Ada")
        wait_until(app.store, job_id, JobStatus.COMPLETED)

    assert f"database=embedded:{data_dir}/postgres" in running.text
    assert running.stop() == 0
    assert not (data_dir / "postgres" / "pgdata" / "postmaster.pid").exists()


# -- stopping ------------------------------------------------------------------------------------


def test_a_stop_lets_short_jobs_finish_and_hands_long_ones_back(worker: Worker, store: Store):
    running = worker(EVENBEAT_STOP_SECONDS="1.5")
    short, long = add(store, "nap", seconds=1), add(store, "nap", seconds=600)
    wait_until(store, short, JobStatus.RUNNING)
    wait_until(store, long, JobStatus.RUNNING)

    assert running.stop() == 0

    assert store.read.job(short).status == JobStatus.COMPLETED
    handed_back = store.read.job(long)
    assert handed_back.status == JobStatus.PENDING
    assert handed_back.current_retry_count == 0
    assert handed_back.lock_token is None
    assert "handed_back=1" in running.wait_for_line("Stopped")
    assert store.upkeep.workers() == []

    worker()
    wait_until(store, long, JobStatus.RUNNING)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_ends_it_at_once_and_others_take_over(
    worker: Worker, store: Store, number: signal.Signals, code: int
):
    running = worker(EVENBEAT_STOP_SECONDS="600")
    job_id = add(store, "nap", seconds=600)
    wait_until(store, job_id, JobStatus.RUNNING)

    running.signal(number)
    running.wait_for_line("Stopping")
    time.sleep(0.6)
    running.signal(number)

    assert running.exit_code() == code
    assert "Ending at once" in running.lines[-1]
    assert store.read.job(job_id).status == JobStatus.RUNNING
    successor = worker(EVENBEAT_REAP_SECONDS="0.1")
    assert f"job_id={job_id}" in successor.wait_for_line("Cleared stale lock")


def test_a_stop_that_is_sent_twice_at_once_is_one_stop(worker: Worker, store: Store):
    """As GNU timeout and `tini -g` do."""
    running = worker()
    job_id = add(store, "nap", seconds=2)
    wait_until(store, job_id, JobStatus.RUNNING)

    running.signal(signal.SIGTERM)
    running.signal(signal.SIGTERM)

    assert running.exit_code() == 0
    assert store.read.job(job_id).status == JobStatus.COMPLETED


def test_a_worker_that_starts_while_the_database_restarts_waits_for_it(
    start: Start, shop: Path, store: Store, database_url: str
):
    proxy = Proxy(database_url)
    url, port = proxy.url, proxy.port
    proxy.close()
    running = start(*WORKER, "--database", url)
    running.wait_for_line("cannot be reached")

    proxy = Proxy(database_url, port)

    running.wait_for_line("Starting interval scheduler")
    assert running.stop() == 0
    proxy.close()


def test_stopping_the_service_ends_open_event_streams_without_a_trace(
    start: Start, database_url: str, tmp_path: Path
):
    running = start(
        "-m", "evenbeat", "serve", "--no-auth", "--port", "0", "--database", database_url,
        EVENBEAT_DATA_DIR=str(tmp_path / "data"),
    )  # fmt: skip
    url = running.wait_for_line("Dashboard").split()[-1]
    with httpx.stream("GET", f"{url}api/v1/events", timeout=60) as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith("retry:")
        assert running.stop() == 0
    assert "Traceback" not in running.text


# -- several processes ---------------------------------------------------------------------------


def pids(store: Store) -> set[int]:
    return {worker.pid for worker in store.upkeep.workers()}


def children(running: Running) -> set[int]:
    return {child.pid for child in psutil.Process(running.process.pid).children()}


def test_two_processes_work_and_one_that_dies_is_replaced(worker: Worker, store: Store):
    running = worker(*WORKER, "--processes", "2", EVENBEAT_REAP_SECONDS="0.1")
    both = wait_for(lambda: len(found := pids(store)) == 2 and found, "two workers")
    assert both == children(running)

    victim = min(both)
    os.kill(victim, signal.SIGKILL)

    wait_for(lambda: victim not in (now := pids(store)) and len(now) == 2, "a replacement")
    died = running.wait_for_line("Worker process died")
    assert f'pid={victim} exit="signal 9" restart_in=0.25s' in died

    job_id = add(store, "nap", seconds=0.5)
    wait_until(store, job_id, JobStatus.RUNNING)
    assert running.stop() == 0
    assert store.read.job(job_id).status == JobStatus.COMPLETED
    assert pids(store) == set()


def test_children_do_not_outlive_a_killed_supervisor(worker: Worker, store: Store):
    running = worker(*WORKER, "--processes", "2", EVENBEAT_STOP_SECONDS="0.2")
    wait_for(lambda: len(pids(store)) == 2, "two workers")
    orphans = children(running)
    job_id = add(store, "nap", seconds=600)
    wait_until(store, job_id, JobStatus.RUNNING)

    running.signal(signal.SIGKILL)
    running.exit_code()

    wait_for(lambda: not any(map(psutil.pid_exists, orphans)), "the children to end", within=6)
    assert store.read.job(job_id).status == JobStatus.PENDING
    assert "reason=supervisor_gone" in running.text


def test_a_second_signal_reaches_the_children(worker: Worker, store: Store):
    running = worker(*WORKER, "--processes", "2", EVENBEAT_STOP_SECONDS="600")
    wait_for(lambda: len(pids(store)) == 2, "two workers")
    job_id = add(store, "nap", seconds=600)
    wait_until(store, job_id, JobStatus.RUNNING)

    running.signal()
    running.wait_for_line("Stopping")
    time.sleep(0.6)
    running.signal()

    assert running.exit_code() == 143


def test_without_an_application_and_built_in_tasks_there_is_nothing_to_run(start: Start):
    running = start("-m", "evenbeat", "worker", EVENBEAT_BUILTIN_TASKS="false")
    assert running.exit_code() == 2
    assert "There is nothing to run: no --app is given" in running.text


# -- mistakes ------------------------------------------------------------------------------------

MISTAKES = {
    "no colon": (["--app", "shop"], "--app shop: name the module and, after a colon"),
    "no such module": (["--app", "shup:app"], "There is no module 'shup'"),
    "no such submodule": (["--app", "shop.jobs:app"], "There is no module 'shop.jobs'"),
    "no such file": (["--app", "shup.py:app"], "There is no file "),
    "no such attribute": (["--app", "shop:ap"], "There is no 'ap' in shop. Did you mean app?"),
    "not an application": (["--app", "shop:os"], "is not an Evenbeat but a module"),
    "no tasks": (["--app", "empty:app"], "empty:app has no tasks"),
    "no such format": (["--app", "shop:app", "--log-format", "xml"], "'xml' is not one of"),
    "no such level": (["--app", "shop:app", "--log-level", "loud"], "no log level 'loud'"),
    "empty queue": (["--app", "shop:app", "--queues", "a,"], "--queues has an empty name"),
    "no concurrency": (["--app", "shop:app", "--concurrency", "0"], "concurrency=0: it must be"),
    "no processes": (["--app", "shop:app", "--processes", "0"], "'--processes'"),
    "not a URL": (["--app", "shop:app", "--database", "mysql://x:hunter2@y"], "must be a URL"),
    "bad URL": (["--app", "shop:app", "--database", "postgresql://a:%hunter2@b"], "cannot be read"),
    "empty URL": (["--app", "shop:app", "--database", ""], "--database is empty"),
    "no such option": (["--app", "shop:app", "--queue", "a"], "--queue"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_one_clear_line(start: Start, shop: Path, mistake: str):
    (shop.parent / "empty.py").write_text("from evenbeat import Evenbeat\napp = Evenbeat()")
    arguments, explanation = MISTAKES[mistake]

    running = start("-m", "evenbeat", "worker", *arguments)

    assert running.exit_code() == 2
    assert len(running.lines) == 1
    assert running.text.startswith("evenbeat: ")
    assert explanation in running.text
    assert "hunter2" not in running.text


@pytest.mark.parametrize(
    ("source", "end"),
    [
        (
            "import nowhere_to_be_found",
            "ModuleNotFoundError: No module named 'nowhere_to_be_found'",
        ),
        ("from evenbeat import Nonsense", "ImportError: cannot import name 'Nonsense'"),
        ("def", "SyntaxError"),
    ],
)
def test_an_error_inside_the_module_shows_where(
    start: Start, tmp_path: Path, source: str, end: str
):
    (tmp_path / "broken.py").write_text(f"\n{source}\n")

    running = start("-m", "evenbeat", "worker", "--app", "broken:app")

    assert running.exit_code() == 2
    assert f'File "{tmp_path}/broken.py", line 2' in running.text
    assert end in running.text
    assert running.lines[-1] == "evenbeat: broken cannot be imported, see above."
    assert "importlib" not in running.text


@pytest.mark.parametrize("processes", ["1", "2"])
def test_an_unreachable_database_is_said_once(start: Start, shop: Path, processes: str):
    url = "postgresql://ada:hunter2@127.0.0.1:1/shop"
    line = [*WORKER, "--database", url, "--log-level", "error", "--processes", processes]

    running = start(*line, EVENBEAT_DATABASE_TIMEOUT_SECONDS="3")

    assert running.exit_code() == 3
    assert len(running.lines) == 1
    assert running.text.startswith("evenbeat: The database cannot be reached")
    assert "hunter2" not in running.text


def test_version_and_help(start: Start):
    version = start("-m", "evenbeat", "--version")
    help_ = start("-m", "evenbeat", "worker", "--help")
    bare = start("-m", "evenbeat")

    assert [running.exit_code() for running in (version, help_, bare)] == [0, 0, 0]
    assert version.text == f"evenbeat {__version__}\n"
    assert "SIGTERM or Ctrl-C stops with grace" in help_.text
    assert "--supervisor-fd" not in help_.text
    assert "worker" in bare.text


def test_a_second_ctrl_c_ends_it_at_once_and_stops_the_embedded_server(
    start: Start, shop: Path, tmp_path: Path
):
    data = {"EVENBEAT_DATA_DIR": str(tmp_path / "data")}
    running = start(*WORKER, **data)
    running.wait_for_line("Starting interval scheduler")
    postmaster = int((tmp_path / "data/postgres/pgdata/postmaster.pid").read_text().split()[0])
    added = start("-m", "evenbeat", "job", "add", "nap", "--payload", '{"seconds": 600}', **data)
    assert added.exit_code() == 0
    running.wait_for_line("Executing job")
    running.signal(signal.SIGINT)
    time.sleep(1)  # a signal that comes twice within half a second counts once
    assert running.process.poll() is None, "it waits for the run"
    running.signal(signal.SIGINT)
    assert running.exit_code() != 0
    wait_for(lambda: not psutil.pid_exists(postmaster), "the server is gone")
