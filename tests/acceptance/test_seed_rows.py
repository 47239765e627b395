"""What the documents that Evenbeat grew from ask beyond the requests that they print, asked of a
running service. `test_seeds.py` has those requests."""

import html
import re
import shlex
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from crawled_site import crawled_site
from fresh_service import fresh_service
from real_processes import Start

from evenbeat.store.store import Store
from waiting import wait_for

APP = """
import asyncio
import time
from pathlib import Path

from evenbeat import Evenbeat

app = Evenbeat(
    concurrency=2, allow_shell=True, shell_commands="*", allow_private_addresses=True,
    poll_seconds=0.2, renew_seconds=1,
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

@app.task(max_retries=2, retry_backoff=0)
def stumbles():
    raise OSError("no line")

@app.task
async def answers():
    return {"pages": 3}

@app.on("job:complete")
def completed(event):
    if event.job.task == "answers":
        note("completed", repr(event.result))

@app.periodic(
    "rollup", cadence="1h", run_timeout="1m", stale_timeout="2m", heartbeat_interval="10s"
)
async def rollup(ctx):
    return str(ctx.plan_time)

for hour in (*range(13), *range(17, 24)):
    app.cron(f"30 {hour} * * *", schedule_name=f"busy-{hour}", cost="50m")(quick)
"""
BURN = "while True: pass"
GROW = "import time\nb = []\nwhile True: b.append(bytearray(b'x') * 2**22); time.sleep(0.01)"
RUN_LIMITS = {"cpu_limit": "1s", "memory_limit": "100MB"}


class Service:
    """A client of the service, as an admin, and the directory in which it was started."""

    def __init__(self, client: httpx.Client, directory: Path) -> None:
        self.client = client
        self.directory = directory

    @property
    def log(self) -> str:
        return (self.directory / "serve.log").read_text()

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
            yield Service(client, directory)


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


def test_what_children_take_is_measured_and_what_shares_a_process_is_not(service: Service):
    with crawled_site() as site:
        crawl = {"url": site.url, "delay": 0, "max_pages": 1}
        jobs = [service.add("shell", {"command": "sleep 0.1"}), service.add("crawl", crawl)]
        for job in jobs:
            run = service.run(job)
            assert run["status"] == "completed"
            assert run["cpu_time_ms"] > 0
            assert 0 < run["memory_peak_mb"] < 300
    in_thread, on_loop = (service.run(service.add(task)) for task in ("quick", "answers"))
    assert in_thread["cpu_time_ms"] is not None
    assert (
        in_thread["memory_peak_mb"] is on_loop["memory_peak_mb"] is on_loop["cpu_time_ms"] is None
    )


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


# -- what is answered ----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_a_disabled_schedule_is_paused_and_keeps_its_interval(service: Service, method: str):
    job = service.add("quick", interval_minutes=30)
    place = f"/api/v1/jobs/{job['id']}"
    for enabled, status in ((False, "paused"), (True, "scheduled")):
        edited = service.client.request(method, place, json={"schedule_enabled": enabled}).json()
        assert (edited["status"], edited["interval_minutes"]) == (status, 30)
        assert edited["run_count"] == 0


def test_intervals_are_answered_as_written_and_lead_back_to_cron(service: Service):
    moved = {
        "0 * * * *": {"interval_minutes": 60, "interval_type": "minutes"},
        "0 0 * * *": {"interval_minutes": 1440, "interval_type": "minutes"},
        "0 */6 * * *": {"interval_minutes": 360, "interval_type": "minutes"},
    }
    for cron, interval in moved.items():
        place = f"/api/v1/jobs/{service.add('quick', schedule_time=cron)['id']}"
        edit = interval | {"schedule_time": cron}
        job = service.client.put(place, json=edit).json()
        assert {name: job[name] for name in edit} == edit
        assert job["schedule_kind"] == "interval"
        slower = {"interval_minutes": 2, "interval_type": "days"}
        assert service.client.put(place, json=slower).json()["schedule_time"] == cron
        back = dict.fromkeys(interval) | {"schedule_time": cron}
        assert service.client.put(place, json=back).json()["cron_expression"] == cron


def test_a_failed_job_shows_its_retries_until_a_person_retries_it(service: Service):
    id_ = service.add("stumbles")["id"]

    def failed() -> Any:
        page = service.client.get("/api/admin/jobs", params={"status": "failed"}).json()
        return next((job for job in page["jobs"] if job["id"] == id_), None)

    assert wait_for(failed, "the last retry to fail")["retry_count"] == 2
    retried = service.client.post(f"/api/admin/jobs/{id_}/retry").json()
    assert retried["retry_count"] == 0


def test_polls_results_and_sources_are_told(service: Service):
    def checked() -> str:
        return service.client.get("/api/v1/scheduler/metrics").json()["last_check_at"]

    begun = checked()
    (service.directory / "completed").unlink(missing_ok=True)
    service.run(service.add("answers"))
    completed = service.directory / "completed"
    wait_for(lambda: completed.exists() and completed.read_text(), "the event")
    assert completed.read_text() == "{'pages': 3}\n"
    wait_for(lambda: checked() > begun, "the next poll")
    with crawled_site() as site:
        service.run(service.add("crawl", {"url": site.url, "source_name": "moon", "max_pages": 1}))
    assert re.search(r"Executing job .*source_name=moon", service.log)


def test_a_periodic_job_begins_with_the_bucket_of_the_present(service: Service):
    (job,) = service.client.get("/api/v1/jobs?search=rollup").json()["jobs"]
    wait_for(lambda: service.runs(job), "the first bucket")
    run = service.runs(job)[-1]
    begun = datetime.fromisoformat(run["started_at"])
    assert datetime.fromisoformat(run["result"]) == begun.replace(minute=0, second=0, microsecond=0)


def test_weeks_on_the_grid_begin_on_monday(service: Service):
    job = service.add("quick", schedule="@every 168h", placement="grid")
    at = datetime.fromisoformat(job["next_run_at"])
    assert (at.weekday(), at.hour, at.minute, at.second) == (0, 0, 0, 0)


def test_a_one_off_behind_a_closed_window_waits_like_a_delayed_one(service: Service):
    hour = datetime.now(UTC).hour
    window = f"{(hour + 4) % 24:02}:00-{(hour + 6) % 24:02}:00"
    assert service.add("quick", window=window)["status"] == "scheduled"
    assert service.add("quick", delay="1h")["status"] == "scheduled"


def test_no_retry_waits_longer_than_its_cap(service: Service):
    retry = {"max_retries": 1, "retry_backoff": "1h", "retry_cap": "1h", "retry_jitter": 0.5}
    waits = set()
    for job in [service.add("stumbles", **retry) for _ in range(12)]:
        failed = datetime.fromisoformat(service.run(job)["completed_at"])
        again = service.client.get(f"/api/v1/jobs/{job['id']}").json()["next_run_at"]
        waits.add(datetime.fromisoformat(again) - failed)
    assert len(waits) > 6
    assert timedelta(minutes=29) < min(waits) < timedelta(minutes=59)
    assert max(waits) < timedelta(minutes=60, seconds=5)  # until the end is written


def test_an_unknown_choice_keeps_a_service_from_starting_and_names_the_choices(
    start: Start, tmp_path: Path, database_url: str
):
    for setting, choices in {
        "catch_up": "skip, latest_only, every_plan",
        "placement": "balanced, grid, pinned",
        "on_failure": "continue, stop",
    }.items():
        (tmp_path / "odd.py").write_text(
            "from evenbeat import Evenbeat\napp = Evenbeat()\n"
            f"@app.every('1h', {setting}='sometimes')\ndef report(): pass\n"
        )
        running = start(
            *("-m", "evenbeat", "serve", "--app", "odd:app"), EVENBEAT_DATABASE_URL=database_url
        )
        assert running.exit_code() == 2
        assert f"{setting} must be one of {choices}, got 'sometimes'" in running.text


TENANTS = """
from evenbeat import Evenbeat
app = Evenbeat(name="shop")

def no_tenants(ctx, now):
    raise ConnectionError(f"no tenants for {ctx.schedule}")

app.every("1h", name="bill", scopes=no_tenants)(lambda: None)
app.every("1h", name="report")(lambda: None)
"""


def test_a_provider_of_scopes_that_fails_harms_nothing_else(
    start: Start, tmp_path: Path, database_url: str, store: Store
):
    (tmp_path / "tenants.py").write_text(TENANTS)
    running = start(
        *("-m", "evenbeat", "serve", "--app", "tenants:app", "--port", "0"),
        EVENBEAT_DATABASE_URL=database_url,
        EVENBEAT_DATA_DIR=str(tmp_path / "data"),
        RESET_CRAWLING_AFTER_MIN="20",
    )
    running.wait_for_line("Starting interval scheduler")
    assert "lock_duration=1200s" in running.text
    reason = "no_tenants of the schedule 'bill' failed (ConnectionError: no tenants for bill)"
    assert f"The application's scope provider tenants.{reason}" in running.text
    assert store.read.job_by_name("report").status == "scheduled"
    assert running.stop() == 0


# -- windows -------------------------------------------------------------------------------------


def first_runs(service: Service, jobs: list[dict[str, Any]]) -> list[datetime]:
    pages = [service.client.get(f"/api/v1/jobs/{job['id']}").json() for job in jobs]
    return sorted(datetime.fromisoformat(page["next_run_at"]) for page in pages)


def test_balanced_jobs_are_placed_inside_their_window_by_load(service: Service):
    daily = {"schedule": "@every 24h", "window": "01:00-05:00", "cost": "5m"}
    times = first_runs(service, [service.add("quick", **daily) for _ in range(24)])
    assert all(1 <= at.hour < 5 for at in times)
    at_once = [sum(at <= other < at + timedelta(minutes=5) for other in times) for at in times]
    assert max(at_once) <= 2  # where nothing else runs, two are as good as one beside another


def test_a_rebalance_moves_windowed_jobs_inside_their_window(service: Service):
    at = (datetime.now(UTC) + timedelta(days=3)).replace(hour=20, minute=0)
    weekly = {"schedule": "@every 168h", "window": "19:00-23:00", "cost": "20m"}
    jobs = [service.add("quick", **weekly, anchor_at=at.isoformat()) for _ in range(12)]
    assert len(set(first_runs(service, jobs))) == 1
    done = service.client.post("/api/v1/scheduler/rebalance").json()
    moved = {one["job_id"] for one in done["moved"]}
    assert len(moved & {job["id"] for job in jobs}) >= 4, done["skipped"]
    times = first_runs(service, jobs)
    assert all(19 <= time.hour < 23 for time in times)
    assert len(set(times)) >= 5
    score = float(re.findall(r"(?m)^scheduler_distribution_score (.*)$", metrics(service))[0])
    assert score == pytest.approx(done["new_distribution_score"], abs=0.001)


def test_off_peak_is_where_the_least_load_is(service: Service):
    job = service.add("quick", schedule="@every 24h", window="off_peak")
    assert job["window"] == "off_peak 13:00-17:00 UTC"
    assert 13 <= datetime.fromisoformat(job["next_run_at"]).hour < 17


# -- what needs a person -------------------------------------------------------------------------


def metrics(service: Service) -> str:
    answer = service.client.get("/metrics")
    assert answer.status_code == 200
    return answer.text


def test_a_long_queue_is_seen_wherever_people_look(service: Service):
    for many in (1000, 1):
        jobs = [{"task": "of_another_worker", "queue": "far"}] * many
        assert service.client.post("/api/v1/jobs/bulk", json={"jobs": jobs}).status_code < 300
    findings = service.client.get("/api/v1/scheduler/doctor").json()["findings"]
    assert "Long queue: 1,001 jobs due in 'far'" in {finding["title"] for finding in findings}

    def attention() -> bool:
        return "1,001 jobs due in 'far'" in html.unescape(service.client.get("/").text)

    wait_for(attention, "the dashboard")
    wait_for(lambda: 'evenbeat_queue_due{queue="far"} 1001.0' in metrics(service), "the gauge")
    shown = metrics(service)
    assert "# TYPE evenbeat_due_priority histogram" in shown
    for name in ("long_runs", "missed_starts", "unreliable_jobs", "slower_jobs"):
        assert f"# TYPE evenbeat_{name} gauge" in shown
