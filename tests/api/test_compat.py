"""The admin API: the older words for states, what may be set by hand, and scheduled jobs."""

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from evenbeat import Evenbeat
from evenbeat.compat.words import WORDS
from evenbeat.engine.worker import Worker
from evenbeat.store.lists import JobFilter
from waiting import wait_for

JOBS = "/api/admin/jobs"
SCHEDULED = "/api/admin/scheduled-jobs"
DAILY = {
    "name": "daily-askreddit",
    "description": "Daily crawl of AskReddit",
    "subreddit_id": 1,
    "cron_expression": "@daily",
    "enabled": True,
    "priority": 10,
    "task": "crawl_subreddit",
}


@pytest.fixture(autouse=True)
def crawl_subreddit(app: Evenbeat) -> None:
    @app.task
    def crawl_subreddit(subreddit_id: int, url: str | None = None, depth: int = 1) -> None: ...


@pytest.fixture
def admin(client_for: Callable[[str], TestClient]) -> TestClient:
    return client_for("admin")


@pytest.fixture
def add(admin: TestClient) -> Callable[..., str]:
    """Adds a job by the main API; gives its id."""

    def make(task: str = "nothing", **fields: Any) -> str:
        answer = admin.post("/api/v1/jobs", json={"task": task, **fields})
        assert answer.status_code == 201, answer.text
        return answer.json()["id"]

    return make


@pytest.fixture
def failed(app: Evenbeat, add: Callable[..., str]) -> str:
    """A job that has failed."""
    id_ = add("fails")
    drain(app)
    return id_


@pytest.fixture
def daily(admin: TestClient) -> dict[str, Any]:
    answer = admin.post(SCHEDULED, json=DAILY)
    assert answer.status_code == 201, answer.text
    return answer.json()


def drain(app: Evenbeat) -> None:
    """A worker, for as long as something is due."""
    worker = app.worker()
    worker.start()
    due = JobFilter(statuses=["pending", "running"])
    wait_for(lambda: app.store.read.jobs(due).total == 0)
    worker.stop()


def state_of(client: TestClient, id_: str) -> str:
    return client.get(f"/api/v1/jobs/{id_}").json()["status"]


# -- looking -------------------------------------------------------------------------------------


def test_stats_count_by_state(admin: TestClient, add: Callable[..., str], failed: str):
    add(delay="1h")
    add(paused=True, delay="1h")
    add("not_here")
    stats = admin.get(f"{JOBS}/stats").json()
    assert stats == {
        "queued": 2, "pending": 1, "scheduled": 1, "running": 0, "failed": 1, "completed": 0,
        "paused": 1, "cancelled": 0, "total": 4,
    }  # fmt: skip


def test_the_list_takes_both_kinds_of_words(
    admin: TestClient, add: Callable[..., str], failed: str
):
    later, now = add(delay="1h"), add("not_here")

    def listed(status: str) -> list[str]:
        answer = admin.get(JOBS, params={"status": status}).json()
        assert answer["total"] == len(answer["jobs"])
        return [job["id"] for job in answer["jobs"]]

    assert listed("queued") == [now, later]
    assert listed("scheduled") == [later]
    assert listed("failed") == [failed]
    assert listed("crawling") == listed("success") == []
    assert listed("failed,scheduled") == [later, failed]
    page = admin.get(JOBS, params={"limit": 1, "offset": 1}).json()
    assert (page["total"], page["limit"], page["offset"]) == (3, 1, 1)
    assert [job["id"] for job in page["jobs"]] == [later]


def test_the_list_refuses_unknown_words_and_shows_the_known(admin: TestClient):
    answer = admin.get(JOBS, params={"status": "borked"})
    assert answer.status_code == 422
    assert "queued, crawling, success, failed" in answer.json()["detail"]
    assert admin.get(JOBS, params={"state": "queued"}).status_code == 422


def test_a_job_shows_its_retry_and_its_subreddit(app: Evenbeat, admin: TestClient):
    @app.task(max_retries=4)
    def stumbles(subreddit_id: int) -> None:
        raise OSError("no line")

    stumbles.enqueue(subreddit_id=7)
    drain(app)
    (job,) = admin.get(JOBS, params={"status": "queued"}).json()["jobs"]
    assert (job["status"], job["state"]) == ("queued", "scheduled")
    assert (job["subreddit_id"], job["payload"]) == (7, {"subreddit_id": 7})
    assert job["retries"] == job["retry_count"] == 1
    assert job["max_retries"] == 4
    assert job["next_retry_at"] == job["visible_at"] > job["last_attempt"]
    assert job["error_message"] == "no line"


def test_a_duration_is_that_of_the_last_run(app: Evenbeat, admin: TestClient):
    takes = [0.2, 0.0]
    running, done = threading.Event(), threading.Event()

    @app.task
    def works() -> None:
        if takes:
            time.sleep(takes.pop(0))
        else:
            running.set()
            done.wait(30)

    id_ = str(works.enqueue().id)
    shown: list[float | None] = []

    def look() -> None:
        (job,) = admin.get(JOBS).json()["jobs"]
        shown.append(job["duration_ms"])

    look()
    for _ in range(2):
        drain(app)
        look()
        put(admin, id_, "queued")
    worker = app.worker()
    worker.start()
    running.wait(30)
    look()  # of the run that has ended
    done.set()
    worker.stop()
    assert shown[0] is None
    assert shown[1] > 200
    assert 100 > shown[2] == shown[3]


def test_a_job_shows_the_retries_that_it_failed_after(app: Evenbeat, admin: TestClient):
    @app.task(max_retries=1, retry_backoff=0)
    def stumbles() -> None:
        raise OSError("no line")

    id_ = str(stumbles.enqueue().id)
    drain(app)
    wait_for(lambda: drain(app) or state_of(admin, id_) == "failed")
    (job,) = admin.get(JOBS, params={"status": "failed"}).json()["jobs"]
    assert (job["retry_count"], job["max_retries"]) == (1, 1)
    assert put(admin, id_, "queued").json()["retry_count"] == 0


def test_a_waiting_job_waits_for_no_retry(admin: TestClient, add: Callable[..., str]):
    add(delay="1h")
    (job,) = admin.get(JOBS).json()["jobs"]
    assert job["next_retry_at"] is None
    assert job["visible_at"] is not None
    assert job["last_attempt"] is None
    assert job["enqueued_by"] == "a admin"


# -- one live crawl for each source --------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        {"source_id": "news"},
        {"payload": {"url": "https://example.com", "source_id": "news"}},
    ],
)
def test_a_second_crawl_of_a_source_is_answered_with_the_first(
    admin: TestClient, add: Callable[..., str], source: dict[str, Any]
):
    url = {"url": "https://example.com"}
    first = add("crawl", source_id="news", **url)
    again = admin.post("/api/v1/jobs", json={"task": "crawl", "priority": 9, **url, **source})
    assert (again.status_code, again.json()["id"], again.json()["duplicate"]) == (200, first, True)
    assert admin.get(JOBS).json()["total"] == 1
    add("crawl", source_id="other", **url)
    put(admin, first, "paused")
    assert admin.post("/api/v1/jobs", json=url | source).json()["id"] == first
    put(admin, first, "cancelled")
    assert add("crawl", **url, **source) != first


@pytest.mark.parametrize(
    "told",
    [
        {"dedup_key": None},
        {"dedup_key": "mine"},
        {"name": "mine"},
        {"schedule": "@daily"},
        {"source_id": None},
        {"task": "crawl_subreddit", "source_id": None, "payload": {"subreddit_id": 7}},
    ],
)
def test_what_was_meant_as_another_job_is_one(
    admin: TestClient, add: Callable[..., str], told: dict[str, Any]
):
    fields: dict[str, Any] = {"url": "https://example.com", "source_id": "news"}
    first = add("crawl", **fields)
    assert add(**({"task": "crawl"} | fields | told)) != first
    # A schedule for the source does not keep a crawl from being queued either.
    assert admin.post("/api/v1/jobs", json=fields).json()["id"] == first


def test_many_at_once_are_answered_with_the_one_that_is_live(admin: TestClient):
    crawl = {"url": "https://example.com", "source_id": "news"}
    answer = admin.post("/api/v1/jobs/bulk", json={"jobs": [crawl, crawl, {"task": "nothing"}]})
    assert answer.status_code in (200, 201), answer.text
    one, two, three = answer.json()["jobs"]
    assert (one["id"] == two["id"], two["created"], three["created"]) == (True, False, True)


# -- one job -------------------------------------------------------------------------------------


def put(client: TestClient, id_: str, status: str) -> Any:
    return client.put(f"{JOBS}/{id_}/status", json={"status": status})


def test_queued_retries_what_failed(admin: TestClient, failed: str):
    answer = put(admin, failed, "queued")
    assert answer.status_code == 200, answer.text
    assert (answer.json()["status"], answer.json()["retry_count"]) == ("queued", 0)
    assert state_of(admin, failed) == "pending"


def test_queued_runs_again_what_succeeded(
    app: Evenbeat, admin: TestClient, add: Callable[..., str]
):
    id_ = add()
    drain(app)
    assert put(admin, id_, "success").json()["status"] == "success"  # it is so already
    assert put(admin, id_, "queued").json()["state"] == "pending"
    drain(app)
    assert admin.get(f"/api/v1/jobs/{id_}").json()["run_count"] == 2


def test_queued_resumes_what_is_paused_and_leaves_alone_what_waits(
    admin: TestClient, add: Callable[..., str]
):
    id_ = add(delay="1h")
    before = admin.get(f"/api/v1/jobs/{id_}").json()
    assert put(admin, id_, "queued").json()["state"] == "scheduled"
    assert admin.get(f"/api/v1/jobs/{id_}").json() == before
    assert put(admin, id_, "paused").json()["status"] == "paused"
    assert put(admin, id_, "paused").json()["status"] == "paused"
    assert put(admin, id_, "queued").json()["state"] == "scheduled"
    assert put(admin, id_, "pending").json()["state"] == "pending"


def test_cancelled_cancels_and_queued_takes_up_again(admin: TestClient, add: Callable[..., str]):
    id_ = add("not_here")
    assert put(admin, id_, "cancelled").json()["status"] == "cancelled"
    assert put(admin, id_, "queued").json()["status"] == "queued"


@pytest.mark.parametrize("word", ["crawling", "success", "failed", "running", "completed"])
def test_what_cannot_be_set_is_a_conflict_that_lists_what_can(
    admin: TestClient, add: Callable[..., str], word: str
):
    id_ = add(delay="1h")
    answer = put(admin, id_, word)
    assert answer.status_code == 409
    problem = answer.json()
    assert (problem["state"], problem["allowed"]) == ("queued", ["cancelled", "paused", "pending"])
    assert state_of(admin, id_) == "scheduled"


def test_a_running_job_is_not_taken_from_its_worker(
    admin: TestClient, add: Callable[..., str], worker: Worker
):
    id_ = add("waits")
    wait_for(lambda: state_of(admin, id_) == "running")
    answer = put(admin, id_, "queued")
    assert (answer.status_code, answer.json()["state"]) == (409, "crawling")
    assert put(admin, id_, "crawling").json()["status"] == "crawling"
    assert put(admin, id_, "paused").json()["status"] == "crawling"  # after the run
    assert put(admin, id_, "paused").status_code == 200
    assert put(admin, id_, "cancelled").json()["status"] == "cancelled"


def test_retry(admin: TestClient, add: Callable[..., str], failed: str):
    answer = admin.post(f"{JOBS}/{failed}/retry")
    assert (answer.status_code, answer.json()["status"]) == (200, "queued")
    assert admin.post(f"{JOBS}/{failed}/retry").status_code == 409


def test_priority_and_boost(admin: TestClient, add: Callable[..., str]):
    id_ = add(delay="1h")

    def boosted(by: Any) -> Any:
        return admin.post(f"{JOBS}/{id_}/boost", json={"boost": by})

    assert admin.put(f"{JOBS}/{id_}/priority", json={"priority": 50}).json()["priority"] == 50
    assert boosted(20).json()["priority"] == 70
    assert boosted(90).json()["priority"] == 100
    for wrong in (0, -1, 101, "5", 1.5, None):
        assert boosted(wrong).status_code == 422
        answer = admin.put(f"{JOBS}/{id_}/priority", json={"priority": wrong})
        assert answer.status_code == (200 if wrong == 0 else 422)


@pytest.mark.parametrize(
    ("method", "place", "body"),
    [
        ("PUT", "{}/status", {"status": "queued"}),
        ("PUT", "{}/priority", {"priority": 1}),
        ("POST", "{}/boost", {"boost": 1}),
        ("POST", "{}/retry", None),
    ],
)
def test_an_unknown_job_is_not_found_and_a_number_is_no_id(
    admin: TestClient, method: str, place: str, body: Any
):
    unknown = admin.request(method, f"{JOBS}/{place.format(uuid4())}", json=body)
    assert unknown.status_code == 404
    number = admin.request(method, f"{JOBS}/{place.format(17)}", json=body)
    assert number.status_code == 422
    assert "ids are UUIDs" in number.json()["errors"][0]["message"]


# -- many jobs -----------------------------------------------------------------------------------


def test_bulk_status_goes_by_each_jobs_state(
    admin: TestClient, add: Callable[..., str], failed: str
):
    paused, waiting = add(delay="1h", paused=True), add(delay="1h")
    missing = str(uuid4())
    ids = [paused, waiting, failed, missing, waiting]
    answer = admin.put(f"{JOBS}/bulk/status", json={"job_ids": ids, "status": "queued"}).json()
    assert (answer["changed"], answer["unchanged"], answer["refused_count"]) == (2, 1, 1)
    assert answer["refused"][0]["id"] == missing
    assert [state_of(admin, id_) for id_ in (paused, waiting, failed)] == [
        "scheduled", "scheduled", "pending",
    ]  # fmt: skip
    body = {"job_ids": [paused, failed], "status": "success"}
    answer = admin.put(f"{JOBS}/bulk/status", json=body).json()
    assert (answer["changed"], answer["refused_count"]) == (0, 2)
    assert "cannot become success" in answer["refused"][0]["reason"]


def test_bulk_retry(admin: TestClient, add: Callable[..., str], failed: str):
    waiting = add(delay="1h")
    answer = admin.post(f"{JOBS}/bulk/retry", json={"job_ids": [failed, waiting]}).json()
    assert (answer["changed"], answer["refused_count"]) == (1, 1)
    assert answer["refused"][0]["id"] == waiting


@pytest.mark.parametrize("ids", [[1, 2, 3], [], ["x"], [str(uuid4())] * 1001, None, "all"])
def test_bulk_refuses_what_are_no_ids(admin: TestClient, ids: Any):
    answer = admin.put(f"{JOBS}/bulk/status", json={"job_ids": ids, "status": "queued"})
    assert answer.status_code == 422
    if ids == [1, 2, 3]:
        assert "ids are UUIDs as text, not numbers" in answer.json()["detail"]
        assert [error["field"] for error in answer.json()["errors"]] == [
            "job_ids.0", "job_ids.1", "job_ids.2",
        ]  # fmt: skip


# -- scheduled jobs ------------------------------------------------------------------------------


def test_a_scheduled_job_as_asked_for(admin: TestClient, daily: dict[str, Any]):
    for field, value in DAILY.items():
        assert daily[field] == value, field
    assert daily["payload"] == {"subreddit_id": 1}
    assert daily["next_run_at"].endswith("T00:00:00Z")
    assert daily["last_run_at"] is None
    assert daily["created_by"] == "a admin"
    assert "warnings" not in daily
    assert admin.get(f"{SCHEDULED}/{daily['id']}").json() == daily


def test_without_a_task_it_is_for_the_crawler(admin: TestClient):
    body = {"name": "news", "url": "https://example.com", "cron_expression": "@every 30m"}
    made = admin.post(SCHEDULED, json=body).json()
    assert (made["task"], made["payload"]) == ("crawl", {"url": "https://example.com"})
    assert made["cron_expression"] == "@every 30m"


def test_a_task_that_nobody_has_is_a_warning(admin: TestClient):
    answer = admin.post(SCHEDULED, json=DAILY | {"task": "later"})
    assert answer.status_code == 201
    assert "No worker has the task 'later'" in answer.json()["warnings"][0]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"cron_expression": "@nightly"}, "cron_expression"),
        ({"cron_expression": None}, "cron_expression"),
        ({"name": " "}, "name"),
        ({"priority": 101}, "priority"),
        ({"enabled": "yes"}, "enabled"),
        ({"subreddit_id": "AskReddit"}, "subreddit_id"),
        ({"payload": {"subreddit_id": 2}}, "subreddit_id"),
        ({"payload": {"depht": 2}}, "payload"),
        ({"timezone": "Mars/Phobos"}, "timezone"),
        ({"interval": 5}, "interval"),
    ],
)
def test_a_wrong_field_is_named(admin: TestClient, change: dict[str, Any], field: str):
    answer = admin.post(SCHEDULED, json=DAILY | change)
    assert answer.status_code == 422, answer.text
    assert field in {error["field"].rpartition(".")[2] for error in answer.json()["errors"]}
    assert admin.get(SCHEDULED).json()["total"] == 0


def test_a_name_is_taken_once(admin: TestClient, daily: dict[str, Any]):
    answer = admin.post(SCHEDULED, json=DAILY)
    assert (answer.status_code, answer.json()["job_id"]) == (409, daily["id"])


def test_the_same_key_adds_once(admin: TestClient):
    headers = {"Idempotency-Key": "one"}
    first = admin.post(SCHEDULED, json=DAILY, headers=headers)
    again = admin.post(SCHEDULED, json=DAILY, headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json()


def test_disabled_is_paused_and_toggled(admin: TestClient):
    made = admin.post(SCHEDULED, json=DAILY | {"enabled": False}).json()
    assert (made["enabled"], made["status"]) == (False, "paused")

    def toggled(enabled: bool) -> dict[str, Any]:
        answer = admin.post(f"{SCHEDULED}/{made['id']}/toggle", json={"enabled": enabled})
        assert answer.status_code == 200, answer.text
        return answer.json()

    assert toggled(True)["enabled"] is True
    assert toggled(True)["status"] == "queued"
    assert toggled(False)["enabled"] is False
    assert state_of(admin, made["id"]) == "paused"
    assert admin.post(f"{SCHEDULED}/{made['id']}/toggle", json={}).status_code == 422


def test_what_is_not_given_stays(admin: TestClient, daily: dict[str, Any]):
    place = f"{SCHEDULED}/{daily['id']}"
    body = {
        "name": "hourly-worldnews",
        "description": "Hourly crawl of WorldNews",
        "cron_expression": "@hourly",
        "enabled": True,
        "priority": 20,
    }
    edited = admin.put(place, json=body).json()
    assert {name: edited[name] for name in body} == body
    assert edited["subreddit_id"] == 1
    assert admin.put(place, json={"enabled": False}).json()["enabled"] is False
    changed = admin.put(place, json={"subreddit_id": 2, "url": "https://example.com"}).json()
    assert changed["payload"] == {"subreddit_id": 2, "url": "https://example.com"}
    changed = admin.put(place, json={"subreddit_id": 3, "url": "https://example.org"}).json()
    assert changed["payload"] == {"subreddit_id": 3, "url": "https://example.org"}
    assert (changed["name"], changed["enabled"]) == ("hourly-worldnews", False)


def test_another_schedule_keeps_the_time_zone(admin: TestClient):
    body = DAILY | {"cron_expression": "0 9 * * *", "timezone": "Europe/Berlin"}
    place = f"{SCHEDULED}/{admin.post(SCHEDULED, json=body).json()['id']}"
    edited = admin.put(place, json={"cron_expression": "30 9 * * *"}).json()
    assert (edited["cron_expression"], edited["timezone"]) == ("30 9 * * *", "Europe/Berlin")


def test_the_task_of_a_schedule_can_change(admin: TestClient, daily: dict[str, Any]):
    place = f"{SCHEDULED}/{daily['id']}"
    assert admin.put(place, json={"task": "later"}).json()["task"] == "later"


def test_a_schedule_that_has_ended_is_not_enabled_by_a_toggle(
    admin: TestClient, daily: dict[str, Any]
):
    admin.post(f"/api/v1/jobs/{daily['id']}/cancel")
    place = f"{SCHEDULED}/{daily['id']}"
    assert admin.get(place).json()["enabled"] is False
    answer = admin.put(place, json={"name": "other", "enabled": True})
    assert answer.status_code == 409
    assert "/retry" in answer.json()["detail"]
    assert admin.get(place).json()["name"] == "daily-askreddit"
    assert admin.post(f"{JOBS}/{daily['id']}/retry").status_code == 200
    assert admin.get(place).json()["enabled"] is True


def test_only_jobs_with_a_schedule_are_here(
    admin: TestClient, add: Callable[..., str], daily: dict[str, Any]
):
    once, every = add(), add(interval_seconds=3600)
    answer = admin.get(SCHEDULED, params={"limit": 100, "offset": 0}).json()
    assert [job["id"] for job in answer["scheduled_jobs"]] == [every, daily["id"]]
    assert (answer["total"], answer["limit"], answer["offset"]) == (2, 100, 0)
    place = f"{SCHEDULED}/{once}"
    assert admin.get(place).status_code == 404
    assert admin.put(place, json={"priority": 1}).status_code == 404
    assert admin.post(f"{place}/toggle", json={"enabled": False}).status_code == 404
    assert admin.delete(place).status_code == 404
    assert state_of(admin, once) == "pending"


def test_delete(admin: TestClient, daily: dict[str, Any]):
    place = f"{SCHEDULED}/{daily['id']}"
    assert admin.delete(place).status_code == 204
    assert admin.get(place).status_code == admin.delete(place).status_code == 404


def test_looking_takes_an_operator_and_changing_an_admin(
    client_for: Callable[[str], TestClient], daily: dict[str, Any]
):
    viewer, operator = client_for("viewer"), client_for("operator")
    assert viewer.get(f"{JOBS}/stats").status_code == 403
    assert operator.get(f"{JOBS}/stats").status_code == 200
    assert operator.get(SCHEDULED).status_code == 200
    assert operator.post(SCHEDULED, json=DAILY).status_code == 403
    assert put(operator, daily["id"], "cancelled").status_code == 403


def test_the_guide_names_every_route_and_word(api: FastAPI):
    guide = (Path(__file__).parents[2] / "docs" / "admin.md").read_text()
    for path, item in api.openapi()["paths"].items():
        for method in item if path.startswith("/api/admin") else ():
            place = f"`{method.upper()} {path}".replace("{job_id}", "{id}")
            assert re.search(re.escape(place) + "[`?]", guide), place
    for word in WORDS:
        assert f"`{word}`" in guide, word


# -- older words in jobs -------------------------------------------------------------------------


def test_a_disabled_schedule_is_paused_and_an_enabled_one_resumed(
    admin: TestClient, add: Callable[..., str]
):
    place = f"/api/v1/jobs/{add(interval_minutes=30)}"
    before = admin.get(place).json()
    for method in ("PUT", "PATCH"):
        for _ in range(2):
            off = admin.request(method, place, json={"schedule_enabled": False}).json()
            assert (off["status"], off["is_paused"]) == ("paused", True)
            assert (off["schedule_enabled"], off["interval_minutes"]) == (False, 30)
        for _ in range(2):
            on = admin.request(method, place, json={"schedule_enabled": True}).json()
            assert (on["status"], on["schedule_enabled"]) == ("scheduled", True)
            assert (on["interval_seconds"], on["run_count"]) == (1800, 0)
            assert on["next_run_at"] > before["created_at"]


def test_a_disabled_schedule_can_change_meanwhile(admin: TestClient, add: Callable[..., str]):
    place = f"/api/v1/jobs/{add(interval_minutes=30)}"
    edit = {"schedule_enabled": False, "schedule": "0 9 * * *"}
    off = admin.patch(place, json=edit).json()
    assert (off["status"], off["cron_expression"]) == ("paused", "0 9 * * *")
    on = admin.patch(place, json={"schedule_enabled": True}).json()
    assert (on["status"], on["cron_expression"]) == ("scheduled", "0 9 * * *")


def test_what_has_no_schedule_is_neither_paused_nor_resumed(
    admin: TestClient, add: Callable[..., str]
):
    place = f"/api/v1/jobs/{add(delay='1h')}"
    assert admin.patch(place, json={"schedule_enabled": False}).json()["status"] == "scheduled"
    refused = admin.patch(place, json={"schedule_enabled": True})
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "schedule_enabled")


WORDING = ("interval_minutes", "interval_type", "schedule_time")


def wording(client: TestClient, id_: str) -> tuple[Any, ...]:
    job = client.get(f"/api/v1/jobs/{id_}").json()
    return tuple(job[name] for name in WORDING)


@pytest.mark.parametrize(
    "written",
    [(60, "minutes", None), (1440, "minutes", None), (48, "hours", None), (1, "days", None),
     (360, "minutes", "0 */6 * * *"), (1, "hours", "@hourly"), (None, None, "0 9 * * mon")],
)  # fmt: skip
def test_a_schedule_is_answered_as_it_was_written(
    admin: TestClient, add: Callable[..., str], written: tuple[Any, ...]
):
    fields = {name: value for name, value in zip(WORDING, written, strict=True) if value}
    id_ = add(**fields)
    assert wording(admin, id_) == written
    job = admin.get(f"/api/v1/jobs/{id_}").json()
    assert admin.put(f"/api/v1/jobs/{id_}", json=job).status_code == 200
    assert wording(admin, id_) == written
    admin.patch(f"/api/v1/jobs/{id_}", json={"metadata": {"a": 1}, "priority": 3})
    assert wording(admin, id_) == written


@pytest.mark.parametrize("edit", [{"schedule": "@every 2h"}, {"interval_seconds": 7200}])
def test_another_schedule_in_other_words_forgets_the_older_ones(
    admin: TestClient, add: Callable[..., str], edit: dict[str, Any]
):
    id_ = add(interval_minutes=60, schedule_time="0 * * * *", metadata={"a": 1})
    admin.patch(f"/api/v1/jobs/{id_}", json=edit)
    assert wording(admin, id_) == (2, "hours", None)
    admin.patch(f"/api/v1/jobs/{id_}", json={"interval_seconds": 3600})
    assert wording(admin, id_) == (1, "hours", None)
    assert admin.get(f"/api/v1/jobs/{id_}").json()["metadata"] == {"a": 1}


def test_another_interval_keeps_the_way_back_to_cron(admin: TestClient, add: Callable[..., str]):
    id_ = add(interval_minutes=360, schedule_time="0 */6 * * *")
    for number, unit in ((12, "hours"), (720, "minutes"), (1, "days")):
        edit = {"interval_minutes": number, "interval_type": unit}
        assert admin.put(f"/api/v1/jobs/{id_}", json=edit).status_code == 200
        assert wording(admin, id_) == (number, unit, "0 */6 * * *")
    edit |= {"schedule_time": None}
    assert admin.put(f"/api/v1/jobs/{id_}", json=edit).json()["metadata"] == {}
    assert wording(admin, id_) == (1, "days", None)


def test_cron_becomes_an_interval_and_cron_again(admin: TestClient, add: Callable[..., str]):
    id_ = add(schedule_time="0 * * * *")
    place = f"/api/v1/jobs/{id_}"
    moved = {"interval_minutes": 60, "interval_type": "minutes", "schedule_time": "0 * * * *"}
    assert admin.put(place, json=moved).json()["schedule_kind"] == "interval"
    assert wording(admin, id_) == (60, "minutes", "0 * * * *")
    back = {"interval_minutes": None, "interval_type": None, "schedule_time": "0 * * * *"}
    assert admin.put(place, json=back).json()["cron_expression"] == "0 * * * *"
    assert wording(admin, id_) == (None, None, "0 * * * *")


def test_a_wrong_schedule_time_is_named(admin: TestClient):
    body = {"task": "nothing", "interval_minutes": 5, "schedule_time": "daily at noon"}
    answer = admin.post("/api/v1/jobs", json=body)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "schedule_time")
