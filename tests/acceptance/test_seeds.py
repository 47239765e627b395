"""The documents that Evenbeat grew from, asked word for word of a freshly started service.

Every request they print is sent as it stands, and every field of every answer they print must be
in ours, with a value of that kind.
"""

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import httpx
import pytest
import seed_texts as seed
from fresh_service import FreshService, fresh_service

from waiting import wait_for

ROOT = Path(__file__).parents[2]

CRAWLER = """
from evenbeat import Context, Fail
from evenbeat.compat.scheduler import Scheduler


async def send_email(payload, job):
    return {"sent": True, "to": payload["to"], "job": str(job.id)}


app = Scheduler(task_handlers={"sendEmail": send_email})
app.register_handler("archive", lambda payload, job: len(payload))


@app.task(isolate=True)
def crawl(
    url: str | None = None,
    source_id: str | None = None,
    source_name: str | None = None,
    subreddit_id: int | None = None,
    *,
    ctx: Context,
) -> None:
    if url == "https://broken.example.com":
        raise Fail("nobody answers")
    ctx.report(items_crawled=25, items_indexed=23)
"""

SAME_VALUE = {
    "status", "is_paused", "current_retry_count", "retry_attempt", "limit", "offset",
    "window_hours", "slot_minutes", "error_message",
}  # fmt: skip
"""Fields whose printed value is not just an example."""


class Service(NamedTuple):
    fresh: FreshService
    client: httpx.Client

    def send(self, text: str, *, id: str = "", **body: Any) -> httpx.Response:
        """Sends a printed request; `body` replaces fields whose printed value cannot be ours."""
        asked = printed(text)
        path = asked.path.replace(":id", id).replace("{id}", id)
        sent = None if asked.body is None else asked.body | body
        return self.client.request(asked.method, path, json=sent)

    def shown(self, text: str, *, id: str = "") -> dict[str, Any]:
        """The same, and the answer must have the printed shape."""
        answer = self.send(text, id=id)
        assert answer.status_code == 200, answer.text
        like(printed(text).answer, answer.json())
        return answer.json()

    def created(self, text: str, **body: Any) -> dict[str, Any]:
        answer = self.send(text, **body)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def wait_for_state(self, id: str, state: str) -> dict[str, Any]:
        def job() -> dict[str, Any] | None:
            found = self.client.get(f"/api/v1/jobs/{id}").json()
            return found if found["status"] == state else None

        return wait_for(job, f"the job to be {state}") or {}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("seeds")
    (directory / "crawler.py").write_text(CRAWLER)
    with fresh_service(directory, "--app", "crawler.py:app") as fresh:
        token = fresh.token("admin")
        (directory / ".curlrc").write_text(
            f'header = "Authorization: Bearer {token}"\n'
            'silent\nshow-error\nnoproxy = "*"\nwrite-out = "\\n%{http_code}"\n'
        )
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=fresh.url, headers=headers, trust_env=False) as client:
            yield Service(fresh, client)


@pytest.fixture(scope="module")
def crawled(service: Service) -> str:
    """The id of a recurring job that has run once."""
    id_ = service.created(seed.CREATE_INTERVAL_JOB)["id"]
    assert service.client.post(f"/api/v1/jobs/{id_}/run").status_code == 200

    def has_run() -> bool:
        return service.client.get(f"/api/v1/jobs/{id_}/stats").json()["successful_runs"] == 1

    wait_for(has_run, "the first crawl")
    service.wait_for_state(id_, "scheduled")
    return id_


@pytest.fixture(scope="module")
def failed(service: Service) -> str:
    """The id of a job that has failed, to be left alone."""
    return failing(service)


@pytest.fixture
def broken(service: Service) -> str:
    """The id of a job that has failed."""
    return failing(service)


def failing(service: Service) -> str:
    url = "https://broken.example.com"
    id_ = another(service, seed.CREATE_IMMEDIATE_JOB, url=url)["id"]
    service.wait_for_state(id_, "failed")
    return id_


# -- reading what is printed ---------------------------------------------------------------------


class Printed(NamedTuple):
    method: str
    path: str
    body: dict[str, Any] | None
    answer: Any


def printed(text: str) -> Printed:
    """A request, and the answer if there is one."""
    request, _, answer = text.partition("Response: 200 OK\n")
    method, path = request.split()[:2]
    body = request[request.index("{\n") :] if "{\n" in request else ""
    return Printed(method, path, loose_json(body), loose_json(answer))


def loose_json(text: str) -> Any:
    """JSON with `//` comments and `...` for whatever else there is."""
    if not text.strip():
        return None
    text = re.sub(r"(^|\s)//.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^\s*\.\.\.\s*$", "", text, flags=re.MULTILINE)
    return json.loads(re.sub(r",(\s*[}\]])", r"\1", text))


def like(example: Any, given: Any, place: str = "answer") -> None:
    """Every field of the example is there and of the example's kind."""
    field = place.rpartition(".")[2]
    if isinstance(example, dict):
        assert isinstance(given, dict), place
        for name, value in example.items():
            assert name in given, f"{place}.{name} is missing"
            like(value, given[name], f"{place}.{name}")
    elif isinstance(example, list):
        assert isinstance(given, list), place
        assert given, f"{place} is empty, so nothing is shown"
        for number, item in enumerate(given):
            like(example[0], item, f"{place}.{number}")
    elif field in SAME_VALUE:
        assert given == example, place
    elif is_time(example):
        assert is_time(given), f"{place}: {given!r} is no time"
    elif isinstance(example, bool | str):
        assert type(given) is type(example), f"{place}: {given!r}"
    else:
        assert isinstance(given, int | float), f"{place}: {given!r} is no number"
        assert not isinstance(given, bool), place


def is_time(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", value) is not None


def curl(service: Service, line: str, job_id: str = "") -> tuple[int, dict[str, Any]]:
    """Runs a printed line as it stands; the token comes from the user's .curlrc."""
    line = line.replace("{job-id}", job_id)
    if shutil.which("curl"):
        body, _, status = service.fresh.shell(line).rpartition("\n")
        return int(status), json.loads(body)
    answer = without_curl(service, shlex.split(service.fresh.here(line)))
    return answer.status_code, answer.json()


def without_curl(service: Service, words: list[str]) -> httpx.Response:
    """What curl would do with these words."""
    method, headers, data, url = None, {}, None, ""
    rest = iter(words[1:])
    for word in rest:
        if word == "-X":
            method = next(rest)
        elif word == "-H":
            name, _, value = next(rest).partition(":")
            headers[name] = value.strip()
        elif word == "-d":
            data = next(rest)
        elif not word.isspace():
            url = word
    url = url.replace("//localhost", "//127.0.0.1")
    return service.client.request(
        method or ("POST" if data else "GET"), url, headers=headers, content=data
    )


# -- the interval scheduler ----------------------------------------------------------------------


def test_the_curl_lines(service: Service, crawled: str):
    status, job = curl(service, seed.CURL_CREATE)
    assert (status, job["status"], job["source_name"]) == (201, "scheduled", "example.com")
    status, paused = curl(service, seed.CURL_PAUSE, job["id"])
    assert status == 200
    like(printed(seed.PAUSE).answer, paused)
    status, metrics = curl(service, seed.CURL_METRICS)
    assert status == 200
    like(printed(seed.SCHEDULER_METRICS).answer, metrics)


def test_the_curl_lines_do_the_same_without_curl(service: Service):
    words = shlex.split(service.fresh.here(seed.CURL_CREATE))
    assert without_curl(service, words).status_code == 201


def test_without_a_token_the_curl_lines_are_refused(service: Service):
    answer = httpx.get(f"{service.fresh.url}/api/v1/scheduler/metrics", trust_env=False)
    assert answer.status_code == 401


def test_create_an_interval_job(service: Service):
    job = service.created(seed.CREATE_INTERVAL_JOB)
    like(printed(seed.CREATE_INTERVAL_JOB).body, job)
    for field, value in printed(seed.CREATE_INTERVAL_JOB).body.items():
        assert job[field] == value, field
    assert job["status"] == "scheduled"
    first = datetime.fromisoformat(job["next_run_at"])
    created = datetime.fromisoformat(job["created_at"])
    assert created <= first <= created + timedelta(minutes=30)


def test_create_an_immediate_job(service: Service):
    job = service.created(seed.CREATE_IMMEDIATE_JOB)
    for field, value in printed(seed.CREATE_IMMEDIATE_JOB).body.items():
        assert job[field] == value, field
    assert job["status"] == "pending"
    done = service.wait_for_state(job["id"], "completed")
    assert is_time(done["started_at"])
    assert is_time(done["completed_at"])


def test_pause_resume_and_cancel(service: Service):
    id_ = service.created(seed.CREATE_INTERVAL_JOB)["id"]
    for verb in (seed.PAUSE, seed.RESUME, seed.CANCEL):
        assert service.shown(verb, id=id_)["id"] == id_


def test_retry_a_failed_job(service: Service, broken: str):
    assert service.shown(seed.RETRY, id=broken)["id"] == broken


def test_adjust_the_retries(service: Service, crawled: str):
    answer = service.send(seed.ADJUST_RETRIES, id=crawled)
    assert answer.status_code == 200
    assert (answer.json()["max_retries"], answer.json()["retry_backoff_seconds"]) == (5, 120)


def test_executions(service: Service, crawled: str):
    page = service.shown(seed.LIST_EXECUTIONS, id=crawled)
    assert page["total"] == 1
    (listed,) = page["executions"]
    assert (listed["items_crawled"], listed["items_indexed"]) == (25, 23)
    one = service.shown(seed.GET_EXECUTION, id=listed["id"])
    assert (one["id"], one["job_id"], one["execution_number"]) == (listed["id"], crawled, 1)


def test_job_statistics(service: Service, crawled: str):
    stats = service.shown(seed.JOB_STATS, id=crawled)
    assert (stats["total_executions"], stats["success_rate"]) == (1, 1)


def test_scheduler_metrics(service: Service, crawled: str):
    metrics = service.shown(seed.SCHEDULER_METRICS)
    assert metrics["jobs"]["scheduled"] >= 1
    assert metrics["executions"]["total"] >= 1


# -- the admin API -------------------------------------------------------------------------------


def test_admin_statistics(service: Service, crawled: str, failed: str):
    stats = service.send(seed.ADMIN_STATS).json()
    for word in ("queued", "running", "failed", "completed"):
        assert isinstance(stats[word], int), word
    assert stats["queued"] >= 1
    assert stats["failed"] >= 1


@pytest.mark.parametrize("word", ["queued", "crawling", "success", "failed"])
def test_admin_list(service: Service, crawled: str, failed: str, word: str):
    answer = service.send(seed.ADMIN_LIST.replace("<status>", word)).json()
    assert (answer["limit"], answer["offset"]) == (100, 0)
    assert {job["status"] for job in answer["jobs"]} <= {word}
    if word in ("queued", "failed"):
        assert answer["total"] >= 1


def test_admin_status_and_retry(service: Service, broken: str):
    for text in (seed.ADMIN_SET_STATUS, seed.ADMIN_RETRY):
        answer = service.send(text, id=broken)
        assert answer.status_code == 200, answer.text
        job = answer.json()
        assert (job["id"], job["status"], job["retry_count"]) == (broken, "queued", 0)
        service.wait_for_state(broken, "failed")


def test_admin_priority_and_boost(service: Service, crawled: str):
    assert service.send(seed.ADMIN_SET_PRIORITY, id=crawled).json()["priority"] == 50
    assert service.send(seed.ADMIN_BOOST, id=crawled).json()["priority"] == 70


@pytest.mark.parametrize(
    "text", [seed.ADMIN_BULK_STATUS, seed.ADMIN_BULK_RETRY], ids=["status", "retry"]
)
def test_admin_bulk(service: Service, broken: str, text: str):
    answer = service.send(text, job_ids=[broken])
    assert (answer.status_code, answer.json()["changed"]) == (200, 1)
    as_printed = service.send(text)  # our ids are no numbers, and we say so
    assert as_printed.status_code == 422
    assert "ids are UUIDs" in as_printed.json()["detail"]


def test_a_second_crawl_of_a_source_is_ignored(service: Service):
    body = {"url": "https://example.com", "source_id": str(uuid4()), "delay": "1h"}
    first = service.client.post("/api/v1/jobs", json=body).json()
    again = service.client.post("/api/v1/jobs", json=body | {"priority": 9})
    assert (again.status_code, again.json()["duplicate"]) == (200, True)
    assert (again.json()["id"], again.json()["priority"]) == (first["id"], 0)
    subreddit = {"task": "crawl", "payload": {"subreddit_id": 77}, "delay": "1h"}
    ids = [service.client.post("/api/v1/jobs", json=subreddit).json()["id"] for _ in range(2)]
    assert ids[0] == ids[1] != first["id"]
    told = service.client.post("/api/v1/jobs", json=body | {"dedup_key": None})
    assert told.status_code == 201


def test_admin_duration_is_the_last_runs(service: Service, failed: str):
    listed = service.client.get("/api/admin/jobs?status=failed&limit=1000").json()["jobs"]
    (job,) = (one for one in listed if one["id"] == failed)
    history = service.client.get(f"/api/v1/jobs/{failed}/executions").json()["executions"]
    assert job["duration_ms"] == history[0]["duration_ms"] > 0


@pytest.mark.parametrize("task", ["sendEmail", "archive"])
def test_registered_handlers_get_the_payload_and_the_job(service: Service, task: str):
    body = {"task": task, "payload": {"to": "a@b.c", "subject": "hi", "body": "…"}}
    id_ = service.client.post("/api/v1/jobs", json=body).json()["id"]
    service.wait_for_state(id_, "completed")
    (run,) = service.client.get(f"/api/v1/jobs/{id_}/executions").json()["executions"]
    assert run["result"] == {
        "sendEmail": {"sent": True, "to": "a@b.c", "job": id_}, "archive": 3,
    }[task]  # fmt: skip


def test_a_start_rebuilds_the_bucket_map(service: Service):
    log = (service.fresh.directory / "serve.log").read_text()
    assert re.search(r"INFO +Bucket map rebuilt +.*job_count=\d+ distribution_score=", log), log


def test_admin_scheduled_jobs(service: Service):
    made = service.created(seed.ADMIN_CREATE_SCHEDULED)
    id_, asked = made["id"], printed(seed.ADMIN_CREATE_SCHEDULED).body
    assert {field: made[field] for field in asked} == asked
    assert is_time(made["next_run_at"])
    assert made["last_run_at"] is None
    assert service.send(seed.ADMIN_GET_SCHEDULED, id=id_).json() == made

    listed = service.send(seed.ADMIN_LIST_SCHEDULED).json()
    assert id_ in {job["id"] for job in listed["scheduled_jobs"]}
    assert (listed["limit"], listed["offset"]) == (100, 0)

    edited = service.send(seed.ADMIN_UPDATE_SCHEDULED, id=id_).json()
    wanted = printed(seed.ADMIN_UPDATE_SCHEDULED).body
    assert {field: edited[field] for field in wanted} == wanted
    assert edited["subreddit_id"] == 1

    assert service.send(seed.ADMIN_TOGGLE, id=id_).json()["enabled"] is False
    assert service.send(seed.ADMIN_TOGGLE, id=id_, enabled=True).json()["enabled"] is True
    assert service.send(seed.ADMIN_DELETE_SCHEDULED, id=id_).status_code == 204
    assert service.send(seed.ADMIN_GET_SCHEDULED, id=id_).status_code == 404


# -- self-balancing ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bunch(service: Service, crawled: str) -> None:
    """Jobs that all run at the same moment, because somebody fixed it."""
    start = datetime.now(UTC) + timedelta(hours=2)
    for _ in range(12):
        service.created(
            seed.CREATE_INTERVAL_JOB,
            interval_minutes=6,
            interval_type="hours",
            anchor_at=start.isoformat(),
            cost="30m",
        )


def test_distribution(service: Service, bunch: None):
    distribution = service.shown(seed.DISTRIBUTION)
    assert [one["hour"] for one in distribution["hourly_distribution"]] == list(range(24))
    assert distribution["total_jobs"] >= 12
    assert 0 < distribution["distribution_score"] <= 1


def test_rebalance_with_preview(service: Service, bunch: None):
    preview = service.shown(seed.REBALANCE_PREVIEW)
    assert preview["would_move"] == len(preview["preview"]) > 0
    assert preview["projected_score"] > preview["current_score"]
    done = service.shown(seed.REBALANCE)
    assert len(done["moved"]) > 0
    assert done["new_distribution_score"] > preview["current_score"]


# -- what differs on purpose: docs/seeds.md ------------------------------------------------------


def another(service: Service, text: str, **body: Any) -> dict[str, Any]:
    """A printed job, for a source of its own."""
    return service.created(text, source_id=str(uuid4()), **body)


@pytest.fixture
def later(service: Service) -> str:
    """The id of a one-off job that waits for an hour."""
    body = {"task": "crawl", "payload": {"url": "https://example.com"}, "delay": "1h"}
    return service.client.post("/api/v1/jobs", json=body).json()["id"]


def test_the_page_of_differences_is_linked_and_complete():
    page = (ROOT / "docs" / "seeds.md").read_text()
    rows = [line for line in page.splitlines() if re.match(r"\| 00\d(, 00\d)* \|", line)]
    differences = [line.strip("| ").split(" | ") for line in rows]
    table = [cells for cells in differences if len(cells) == 4]
    assert {number for cells in table for number in cells[0].split(", ")} == {
        "000", "001", "002", "003", "004",
    }  # fmt: skip
    assert len(table) == len(rows) - 5, "a row of the table has not four cells"
    assert "docs/seeds.md" in (ROOT / "README.md").read_text()
    assert "(seeds.md)" in (ROOT / "docs" / "api.md").read_text()


def test_a_cancelled_job_can_be_taken_up_again(service: Service, later: str):
    for verb, state in (("pause", "paused"), ("cancel", "cancelled"), ("retry", "pending")):
        answer = service.client.post(f"/api/v1/jobs/{later}/{verb}")
        assert (answer.status_code, answer.json()["status"]) == (200, state)


def test_a_completed_job_can_be_run_again(service: Service):
    id_ = another(service, seed.CREATE_IMMEDIATE_JOB)["id"]
    service.wait_for_state(id_, "completed")
    assert service.client.post(f"/api/v1/jobs/{id_}/run").json()["status"] == "pending"


@pytest.mark.parametrize(("on_failure", "state"), [("continue", "scheduled"), ("stop", "failed")])
def test_a_recurring_job_goes_on_after_a_failure(service: Service, on_failure: str, state: str):
    job = another(
        service, seed.CREATE_INTERVAL_JOB, url="https://broken.example.com", on_failure=on_failure
    )
    path = f"/api/v1/jobs/{job['id']}"
    assert job["on_failure"] == on_failure
    service.client.post(f"{path}/run")
    wait_for(lambda: service.client.get(f"{path}/stats").json()["failed_runs"] == 1, "the failure")
    assert service.wait_for_state(job["id"], state)["error_message"] == "nobody answers"


def test_a_recurring_job_is_never_completed_but_its_run_is(service: Service, crawled: str):
    (run,) = service.client.get(f"/api/v1/jobs/{crawled}/executions").json()["executions"]
    job = service.client.get(f"/api/v1/jobs/{crawled}").json()
    assert (run["status"], job["status"]) == ("completed", "scheduled")


def test_defaults_that_differ(service: Service, crawled: str):
    job = service.client.get(f"/api/v1/jobs/{crawled}").json()
    assert {name: job[name] for name in ("retry_jitter", "retry_cap", "on_failure")} == {
        "retry_jitter": 0.2, "retry_cap": 3600, "on_failure": "continue",
    }  # fmt: skip
    assert (job["catch_up_window"], job["allow_stale_reentry"]) == (None, True)


def test_the_token_of_a_lease_is_not_shown(service: Service, crawled: str):
    job = service.client.get(f"/api/v1/jobs/{crawled}").json()
    assert "lock_token" not in job
    assert {"locked_by", "lock_acquired_at", "lock_expires_at"} <= job.keys()


@pytest.mark.parametrize("word", ["crawling", "success", "failed"])
def test_results_of_a_run_are_not_set_by_hand(service: Service, later: str, word: str):
    answer = service.client.put(f"/api/admin/jobs/{later}/status", json={"status": word})
    assert answer.status_code == 409
    assert set(answer.json()["allowed"]) == {"paused", "cancelled", "pending"}


def test_ids_are_no_numbers(service: Service):
    answer = service.client.post("/api/admin/jobs/1/retry")
    assert answer.status_code == 422
    assert "ids are UUIDs" in answer.json()["detail"]


def test_who_added_a_job_and_that_it_has_not_run(service: Service, later: str):
    listed = service.client.get("/api/admin/jobs?status=queued&limit=1000").json()["jobs"]
    (job,) = (one for one in listed if one["id"] == later)
    assert job["enqueued_by"] not in (None, "system")
    assert job["last_attempt"] is None


def test_the_admin_api_is_for_operators_and_admins(service: Service, later: str):
    stats, path = "/api/admin/jobs/stats", f"/api/admin/jobs/{later}/boost"
    for role, looks, changes in (("viewer", 403, 403), ("operator", 200, 403)):
        headers = {"Authorization": f"Bearer {service.fresh.token(role)}"}
        assert service.client.get(stats, headers=headers).status_code == looks
        boosted = service.client.post(path, headers=headers, json={"boost": 1})
        assert boosted.status_code == changes


@pytest.mark.parametrize("text", ["@every 1ns", "@every 5us", "@every 5µs", "@every 1500ms"])
def test_an_interval_is_whole_seconds(service: Service, text: str):
    answer = service.client.post("/api/v1/schedules/preview", json={"schedule": text})
    assert answer.status_code == 422
    assert "whole number of seconds" in answer.json()["detail"]
    whole = service.client.post("/api/v1/schedules/preview", json={"schedule": "@every 3000ms"})
    assert whole.status_code == 200


def test_an_hourly_job_does_not_wait_for_a_day(service: Service):
    for _ in range(8):
        job = another(service, seed.CREATE_INTERVAL_JOB, interval_minutes=1, interval_type="hours")
        first = datetime.fromisoformat(job["next_run_at"])
        assert first <= datetime.fromisoformat(job["created_at"]) + timedelta(hours=1)


def test_plans_are_an_interval_apart_however_short(service: Service):
    job = another(service, seed.CREATE_INTERVAL_JOB, interval_minutes=20)
    plans = service.client.get(f"/api/v1/jobs/{job['id']}/plans?count=3").json()["plans"]
    moments = [datetime.fromisoformat(plan) for plan in plans]
    assert [b - a for a, b in pairwise(moments)] == [timedelta(minutes=20)] * 2


def test_an_hour_counts_every_start(service: Service):
    def starts() -> int:
        hours = service.shown(seed.DISTRIBUTION)["hourly_distribution"]
        return sum(hour["job_count"] for hour in hours)

    before = starts()
    another(service, seed.CREATE_INTERVAL_JOB, interval_minutes=1)
    wait_for(lambda: starts() - before >= 24 * 60 - 1, "the new job to be counted")


def test_a_rebalance_skips_cron_and_can_be_undone(service: Service):
    body = {"task": "crawl", "payload": {"url": "https://example.com"}, "schedule": "@daily"}
    id_ = service.client.post("/api/v1/jobs", json=body).json()["id"]
    done = service.send(seed.REBALANCE).json()
    assert {"cron"} == {one["reason"] for one in done["skipped"] if one["job_id"] == id_}
    undone = service.client.post(f"/api/v1/scheduler/rebalance/{done['id']}/undo")
    assert undone.status_code == 200
