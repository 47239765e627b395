"""What the documents that Evenbeat grew from ask of runs, slots, order and windows, asked of a
running service. `test_seeds.py` has the requests that they print."""

import shlex
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from crawled_site import crawled_site
from fresh_service import fresh_service

from waiting import wait_for

APP = """
import asyncio
import time
from pathlib import Path

from evenbeat import Evenbeat

app = Evenbeat(
    concurrency=2, allow_shell=True, shell_commands="*", allow_private_addresses=True,
    poll_seconds=0.2,
)
app.include_builtins()

@app.task(isolate=True, max_retries=0)
def grow():
    blocks = []
    while True:
        blocks.append(b"x" * 2**22)
        time.sleep(0.01)

@app.task(isolate=True, max_retries=0)
def burn():
    while True:
        pass

def note(file, line):
    with open(file, "a") as notes:
        print(line, file=notes)

@app.task
async def on_loop(file):
    note(file, "begun on_loop")
    await asyncio.sleep(0.1)
    note(file, "ended on_loop")

@app.task
def in_thread(file):
    note(file, "begun in_thread")
    time.sleep(0.1)
    note(file, "ended in_thread")

@app.task(isolate=True)
def in_child(file):
    note(file, "begun in_child")
    time.sleep(0.1)
    note(file, "ended in_child")

@app.task
async def held(file):
    while not Path(file).exists():
        await asyncio.sleep(0.01)

async def moment():
    await asyncio.sleep(0.2)  # so long that nothing is claimed ahead

for name in ("first", "second", "third"):
    app.task(name=name)(moment)

@app.task
def quick():
    pass

for hour in (*range(13), *range(17, 24)):
    app.cron(f"30 {hour} * * *", name=f"busy-{hour}", cost="50m")(quick)
"""
BURN = "while True: pass"
GROW = "import time\nb = []\nwhile True: b.append(bytearray(b'x') * 2**22); time.sleep(0.01)"
RUN_LIMITS = {"cpu_limit": "1s", "memory_limit": "100MB"}


class Service:
    """A client of the service, as an admin."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client

    def add(self, task: str, payload: Any = None, **fields: Any) -> dict[str, Any]:
        body = {"task": task, "payload": payload or {}} | fields
        answer = self.client.post("/api/v1/jobs", json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def runs(self, job: dict[str, Any]) -> list[dict[str, Any]]:
        """The runs of a job that have ended."""
        path = f"/api/v1/jobs/{job['id']}/executions"
        return [run for run in self.client.get(path).json()["executions"] if run["completed_at"]]

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        """The one run of a job, as soon as it has ended."""
        wait_for(lambda: self.runs(job), f"{job['task']} to end")
        (run,) = self.runs(job)
        return run


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("rows")
    (directory / "rows.py").write_text(APP)
    with fresh_service(directory, "--app", "rows.py:app") as fresh:
        headers = {"Authorization": f"Bearer {fresh.token('admin')}"}
        with httpx.Client(base_url=fresh.url, headers=headers, trust_env=False) as client:
            yield Service(client)


def test_runs_that_take_too_much_are_ended_with_a_code_of_their_own(service: Service):
    shell = {
        limit: {"command": f"{sys.executable} -c {shlex.quote(script)}; true"}
        for limit, script in (("cpu_limit", BURN), ("memory_limit", GROW))
    }
    isolated = {"cpu_limit": "burn", "memory_limit": "grow"}
    with crawled_site() as site:
        crawl = {"url": site.url, "delay": 0}
        jobs = {
            (limit, task): service.add(task, payload, max_retries=0, **{limit: allowed})
            for limit, value in RUN_LIMITS.items()
            for task, payload, allowed in (
                (isolated[limit], {}, value),
                ("shell", shell[limit], value),
                ("crawl", crawl, "100ms" if limit == "cpu_limit" else "20MB"),
            )
        }
        runs = {place: service.run(job) for place, job in jobs.items()}
    codes = {place: (run["status"], run["error_code"]) for place, run in runs.items()}
    assert codes == {place: ("failed", place[0]) for place in jobs}
    for (limit, task), run in runs.items():
        figure = {"cpu_limit": "cpu_time_ms", "memory_limit": "memory_peak_mb"}[limit]
        assert run[figure] > (20 if task == "crawl" else 100), (limit, task)


def test_what_children_take_is_measured(service: Service):
    with crawled_site() as site:
        crawl = {"url": site.url, "delay": 0, "max_pages": 1}
        jobs = [service.add("shell", {"command": "sleep 0.1"}), service.add("crawl", crawl)]
        for job in jobs:
            run = service.run(job)
            assert run["status"] == "completed"
            assert run["cpu_time_ms"] > 0
            assert 0 < run["memory_peak_mb"] < 300


def test_two_at_once_are_two_whatever_their_kind(service: Service, tmp_path: Path):
    file = tmp_path / "notes"
    tasks = ("on_loop", "in_thread", "in_child")
    jobs = [{"task": task, "payload": {"file": str(file)}} for task in tasks * 6]
    added = service.client.post("/api/v1/jobs/bulk", json={"jobs": jobs})
    assert added.status_code < 300, added.text
    wait_for(lambda: file.exists() and file.read_text().count("ended") == len(jobs), "all to end")
    running, most = 0, 0
    for line in file.read_text().splitlines():
        running += 1 if line.startswith("begun") else -1
        most = max(most, running)
    assert most == 2


def test_the_oldest_due_goes_first_whatever_its_task(service: Service, tmp_path: Path):
    gates = [tmp_path / "first", tmp_path / "second"]
    blockers = [service.add("held", {"file": str(gate)}) for gate in gates]

    def are_running() -> bool:
        paths = [f"/api/v1/jobs/{job['id']}" for job in blockers]
        return {service.client.get(path).json()["status"] for path in paths} == {"running"}

    wait_for(are_running, "both slots to be taken")
    begin = datetime.fromisoformat(blockers[0]["created_at"]) - timedelta(minutes=1)
    ages = [(number, begin + timedelta(seconds=number * 5 % 9)) for number in range(9)]
    jobs = [
        service.add(("first", "second", "third")[number // 3], run_at=due.isoformat(), priority=7)
        for number, due in ages
    ]
    urgent = service.add("third", priority=8)
    gates[0].touch()  # one slot: jobs run one after the other
    started = [service.run(job)["started_at"] for job in (urgent, *sorted(jobs, key=due_at))]
    gates[1].touch()
    for number, moment in enumerate(started):
        before = sum(other < moment for other in started[number:])
        assert before <= 1, "one that was claimed before this one was there"


def due_at(job: dict[str, Any]) -> str:
    return str(job["next_run_at"])


# -- windows -------------------------------------------------------------------------------------


def first_runs(service: Service, jobs: list[dict[str, Any]]) -> list[datetime]:
    pages = [service.client.get(f"/api/v1/jobs/{job['id']}").json() for job in jobs]
    return sorted(datetime.fromisoformat(page["next_run_at"]) for page in pages)


def test_balanced_jobs_are_placed_inside_their_window_by_load(service: Service):
    daily = {"schedule": "@every 24h", "window": "01:00-05:00", "cost": "5m"}
    times = first_runs(service, [service.add("quick", **daily) for _ in range(24)])
    assert all(1 <= at.hour < 5 for at in times)
    assert min(later - at for at, later in pairwise(times)) >= timedelta(minutes=5)


def test_a_rebalance_moves_windowed_jobs_inside_their_window(service: Service):
    at = (datetime.now().astimezone() + timedelta(days=3)).replace(hour=20, minute=0)
    weekly = {"schedule": "@every 168h", "window": "19:00-23:00", "cost": "20m"}
    jobs = [service.add("quick", **weekly, anchor_at=at.isoformat()) for _ in range(6)]
    assert len(set(first_runs(service, jobs))) == 1
    done = service.client.post("/api/v1/scheduler/rebalance").json()
    moved = {one["job_id"] for one in done["moved"]}
    assert len(moved & {job["id"] for job in jobs}) >= 4, done["skipped"]
    times = first_runs(service, jobs)
    assert all(19 <= time.hour < 23 for time in times)
    assert len(set(times)) >= 5


def test_off_peak_is_where_the_least_load_is(service: Service):
    job = service.add("quick", schedule="@every 24h", window="off_peak")
    assert job["window"] == "off_peak 13:00-17:00 UTC"
    assert 13 <= datetime.fromisoformat(job["next_run_at"]).hour < 17
