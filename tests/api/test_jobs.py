"""One job over HTTP: the seed's requests as printed, every refusal, and idempotent creation."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from starlette.testclient import TestClient

from evenbeat import Evenbeat
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.window import parse_window
from evenbeat.errors import InvalidInput
from evenbeat.named_task import ResolvedTask
from evenbeat.store.upkeep import KnownTask, NewWorker
from evenbeat.testing import VirtualClock

JOBS = "/api/v1/jobs"
IS_JSON = {"Content-Type": "application/json"}


def add(client: TestClient, **fields: Any) -> dict[str, Any]:
    response = client.post(JOBS, json={"task": "nothing"} | fields)
    assert response.status_code == 201, response.text
    return response.json()


def refused(client: TestClient, status: int = 422, **fields: Any) -> dict[str, Any]:
    """The problem that a creation is answered with, and that it left nothing behind."""
    response = client.post(JOBS, json={"task": "nothing"} | fields)
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert client.get(JOBS).json()["total"] == 0
    return response.json()


# -- the seed's requests -------------------------------------------------------------------------


def test_the_seeds_interval_job(client: TestClient) -> None:
    response = client.post(
        JOBS,
        json={
            "source_id": "news-site",
            "source_name": "example.com",
            "url": "https://example.com",
            "interval_minutes": 30,
            "interval_type": "minutes",
            "schedule_enabled": True,
            "max_retries": 3,
            "retry_backoff_seconds": 60,
            "metadata": {"category": "news", "priority": "high"},
        },
    )
    assert response.status_code == 201
    job = response.json()
    assert response.headers["location"] == f"{JOBS}/{job['id']}"
    assert job["task"] == "crawl"
    assert job["status"] == "scheduled"
    assert (job["interval_minutes"], job["interval_type"]) == (30, "minutes")
    assert job["schedule_text"] == "every 30 minutes"
    assert job["url"] == "https://example.com"
    assert (job["source_id"], job["source_name"]) == ("news-site", "example.com")
    assert job["next_run_at"] is not None
    assert (job["max_retries"], job["retry_backoff_seconds"]) == (3, 60)
    assert job["metadata"] == {"category": "news", "priority": "high"}
    assert job["created_by"] == "a operator"
    assert "warnings" not in job
    assert client.get(f"{JOBS}/{job['id']}").json() == job


def test_the_seeds_immediate_job_runs_once_whatever_the_interval(client: TestClient) -> None:
    job = add(client, url="https://example.com", task=None, schedule_enabled=False,
              interval_minutes=5)  # fmt: skip
    assert (job["status"], job["schedule_kind"]) == ("pending", "once")


@pytest.mark.parametrize(
    ("number", "unit", "seconds"), [(30, "minutes", 1800), (6, "hours", 21600), (1, "days", 86400)]
)
def test_the_seeds_units(client: TestClient, number: int, unit: str, seconds: int) -> None:
    job = add(client, interval_minutes=number, interval_type=unit)
    assert (job["interval_minutes"], job["interval_type"]) == (number, unit)
    assert job["interval_seconds"] == seconds


def test_the_seeds_control_verbs(client: TestClient) -> None:
    job = add(client, interval_minutes=30)
    place = f"{JOBS}/{job['id']}"
    paused = client.post(f"{place}/pause").json()
    assert (paused["status"], paused["is_paused"]) == ("paused", True)
    assert paused["paused_at"] is not None
    resumed = client.post(f"{place}/resume").json()
    assert (resumed["status"], resumed["is_paused"]) == ("scheduled", False)
    assert resumed["next_run_at"] is not None
    cancelled = client.post(f"{place}/cancel").json()
    assert cancelled["status"] == "cancelled"
    assert cancelled["cancelled_at"] is not None
    retried = client.post(f"{place}/retry").json()
    assert (retried["status"], retried["current_retry_count"]) == ("pending", 0)


def test_the_seeds_update(client: TestClient) -> None:
    job = add(client)
    response = client.put(
        f"{JOBS}/{job['id']}", json={"max_retries": 5, "retry_backoff_seconds": 120}
    )
    assert response.status_code == 200
    assert response.json()["max_retries"] == 5
    assert response.json()["retry_backoff_seconds"] == 120
    assert response.json()["task"] == "nothing"


def test_the_older_schedule_field_comes_after_an_interval(client: TestClient) -> None:
    assert add(client, schedule_time="0 * * * *")["cron_expression"] == "0 * * * *"
    job = add(client, schedule_time="0 * * * *", interval_minutes=60)
    assert (job["schedule_kind"], job["interval_seconds"]) == ("interval", 3600)


# -- the wider design ----------------------------------------------------------------------------


def test_everything_that_can_be_said_of_a_job_comes_back(client: TestClient) -> None:
    job = add(
        client,
        task="send_email",
        payload={"to": "a@b.c"},
        name="morning mail",
        description="A mail.",
        tags=["mail", "daily", "mail"],
        metadata={"owner": "me"},
        queue="slow",
        priority=70,
        schedule="0 9 * * mon-fri",
        timezone="Europe/Berlin",
        window="Mon-Fri 08:00-18:00 Europe/Berlin",
        schedule_delay="5m",
        catch_up="every_plan",
        catch_up_window="6h",
        max_plans_per_tick=3,
        max_retries=2,
        retry_delays=["10s", 60],
        on_failure="stop",
        timeout=90,
        lease="2m",
        cost="30s",
        allow_stale_reentry=False,
        scope={"kind": "tenant", "id": "acme"},
        dedup_key="mail",
    )
    expected = {
        "name": "morning mail",
        "description": "A mail.",
        "tags": ["mail", "daily"],
        "metadata": {"owner": "me", "description": "A mail.", "tags": ["mail", "daily"]},
        "queue": "slow",
        "priority": 70,
        "schedule": "0 9 * * mon-fri",
        "timezone": "Europe/Berlin",
        "window": "Mon-Fri 08:00-18:00 Europe/Berlin",
        "schedule_delay": 300,
        "catch_up": "every_plan",
        "catch_up_window": 21600,
        "max_plans_per_tick": 3,
        "max_retries": 2,
        "retry_delays": [10, 60],
        "on_failure": "stop",
        "timeout": 90,
        "lease": 120,
        "cost": 30,
        "allow_stale_reentry": False,
        "scope": {"kind": "tenant", "id": "acme"},
        "dedup_key": "mail",
    }
    assert {field: job[field] for field in expected} == expected


def test_a_tasks_own_settings_are_the_defaults(client: TestClient) -> None:
    job = add(client, task="send_email", payload={"to": "a@b.c"})
    assert (job["queue"], job["max_retries"], job["timeout"]) == ("mail", 5, 30)
    edited = client.patch(f"{JOBS}/{job['id']}", json={"max_retries": 1, "timeout": "1m"}).json()
    assert (edited["max_retries"], edited["timeout"]) == (1, 60)
    restored = client.patch(f"{JOBS}/{job['id']}", json={"max_retries": None, "timeout": None})
    assert restored.json()["max_retries"] == 5
    assert restored.json()["timeout"] == 30


def test_limits_are_taken_for_tasks_that_can_keep_them(client: TestClient) -> None:
    job = add(client, task="elsewhere", memory_limit="512MB", cpu_limit="90s")
    assert (job["memory_limit"], job["cpu_limit"]) == (512 * 2**20, 90)
    kept = client.patch(f"{JOBS}/{job['id']}", json={"task": "nothing"})
    assert kept.status_code == 422
    assert kept.json()["errors"][0]["field"] == "memory_limit"
    freed = {"task": "nothing", "memory_limit": None, "cpu_limit": None}
    assert client.patch(f"{JOBS}/{job['id']}", json=freed).json()["memory_limit"] is None


def test_a_later_start_and_a_delay(client: TestClient) -> None:
    at = add(client, run_at="2999-01-01T10:00:00+01:00")
    assert (at["status"], at["next_run_at"]) == ("scheduled", "2999-01-01T09:00:00Z")
    assert add(client, delay="1h")["status"] == "scheduled"
    moved = client.patch(f"{JOBS}/{at['id']}", json={"run_at": "2998-01-01T00:00:00Z"}).json()
    assert moved["next_run_at"] == "2998-01-01T00:00:00Z"


def test_a_job_can_be_created_paused(client: TestClient) -> None:
    job = add(client, paused=True, schedule="@every 90m")
    assert (job["status"], job["is_paused"]) == ("paused", True)


def test_an_unknown_task_is_taken_with_a_warning(client: TestClient) -> None:
    job = add(client, task="not_here", payload={"any": 1})
    assert "No worker has the task 'not_here'" in job["warnings"][0]


def test_a_task_of_other_workers_is_checked_by_its_schema(
    client: TestClient, app: Evenbeat
) -> None:
    schema = {
        "type": "object",
        "properties": {"to": {"type": "string"}},
        "required": ["to"],
        "additionalProperties": False,
    }
    app.store.upkeep.know_tasks(
        [KnownTask("remote", "far", "async", schema, defaults={"max_retries": 0, "timeout": 5})]
    )
    worker = NewWorker(uuid4(), "host", 1, 0.0, "1", 10, tasks=["remote"])
    app.store.upkeep.register_worker(worker)
    problem = client.post(JOBS, json={"task": "remote", "payload": {}}).json()
    assert problem["detail"] == "remote: the argument 'to' is missing."
    problem = client.post(JOBS, json={"task": "remote", "payload": {"to": "x", "cc": 1}}).json()
    assert problem["detail"] == "remote: there is no argument 'cc'."
    problem = client.post(JOBS, json={"task": "remote", "payload": {"to": 1}}).json()
    assert problem["detail"] == "remote: argument 'to' must be of type string."
    job = add(client, task="remote", payload={"to": "x"})
    assert (job["queue"], job["max_retries"], job["timeout"]) == ("far", 0, 5)
    assert "warnings" not in job


def test_a_dedup_key_answers_with_the_live_job(client: TestClient) -> None:
    first = add(client, dedup_key="one", delay="1h")
    again = client.post(JOBS, json={"task": "nothing", "dedup_key": "one"})
    assert again.status_code == 200
    assert again.json()["id"] == first["id"]
    assert again.json()["duplicate"] is True


def test_calls_that_another_job_stands_for(client: TestClient, app: Evenbeat) -> None:
    app.clock = VirtualClock()
    for way in ({"unique_for": "1h"}, {"throttle": 3600}, {"unique_by": ["n"], "delay": "1h"}):
        fields = {"task": "echo", "payload": {"n": 1}} | way
        first = add(client, **fields)
        again = client.post(JOBS, json=fields)
        assert (again.status_code, again.json()["duplicate"]) == (200, True), again.text
        assert again.json()["id"] == first["id"]
    assert (first["unique_by"], first["dedup_key"]) == (["n"], 'unique:echo:{"n": 1}')

    waiting = add(client, task="echo", payload={"n": 1}, debounce="5m", debounce_max="1h")
    assert waiting["next_run_at"] == "2030-01-01T00:05:00Z"
    app.clock.move_to(app.clock.now() + timedelta(minutes=4))
    wanted = {"task": "echo", "payload": {"n": 2}, "debounce": "5m", "debounce_max": "1h"}
    (answer,) = client.post(f"{JOBS}/bulk", json={"jobs": [wanted]}).json()["jobs"]
    assert (answer["id"], answer["created"]) == (waiting["id"], False)
    now = client.get(f"{JOBS}/{waiting['id']}").json()
    assert (now["payload"], now["next_run_at"]) == ({"n": 2}, "2030-01-01T00:09:00Z")
    # What GET answers is taken back.
    assert client.patch(f"{JOBS}/{waiting['id']}", json=now).json()["debounce_max"] == 3600


def test_a_changed_schedule_is_planned_anew_and_an_unchanged_one_is_not(
    client: TestClient, app: Evenbeat
) -> None:
    app.clock = VirtualClock()
    job = add(client, interval_minutes=30, placement="grid")
    assert job["next_run_at"] == "2030-01-01T00:30:00Z"
    place = f"{JOBS}/{job['id']}"
    same = client.patch(place, json={"interval_minutes": 30, "priority": 9}).json()
    assert (same["next_run_at"], same["priority"]) == (job["next_run_at"], 9)
    changed = client.patch(place, json={"schedule": "0 9 * * *", "timezone": "Europe/Berlin"})
    assert changed.json()["next_run_at"] == "2030-01-01T08:00:00Z"
    moved = client.patch(place, json={"timezone": "UTC"}).json()
    assert moved["next_run_at"] == "2030-01-01T09:00:00Z"
    once = client.patch(place, json={"schedule": None}).json()
    assert (once["schedule_kind"], once["next_run_at"]) == ("once", "2030-01-01T00:00:00Z")


def test_payload_and_metadata_can_be_edited_in_parts(client: TestClient) -> None:
    job = add(client, task="crawl", url="https://a.example", source_id="a", metadata={"x": 1})
    place = f"{JOBS}/{job['id']}"
    edited = client.patch(place, json={"url": "https://b.example", "tags": ["t"]}).json()
    assert edited["payload"] == {"url": "https://b.example", "source_id": "a"}
    assert edited["metadata"] == {"x": 1, "tags": ["t"]}
    edited = client.patch(place, json={"source_id": None, "tags": None}).json()
    assert edited["payload"] == {"url": "https://b.example"}
    assert edited["metadata"] == {"x": 1}
    edited = client.patch(place, json={"metadata": {"y": 2}}).json()
    assert edited["metadata"] == {"y": 2}
    wrong = client.patch(place, json={"payload": {"uri": "https://b.example"}})
    assert wrong.status_code == 422
    assert client.get(place).json()["payload"] == {"url": "https://b.example"}


def test_editing_what_is_declared_in_code_warns(client: TestClient, app: Evenbeat) -> None:
    @app.every("1h")
    def declared() -> None: ...

    app.sync_schedules()
    (job,) = client.get(JOBS, params={"name": "declared"}).json()["jobs"]
    edited = client.patch(f"{JOBS}/{job['id']}", json={"priority": 5}).json()
    assert "declared in code" in edited["warnings"][0]


def test_deleting_a_job(client: TestClient) -> None:
    job = add(client)
    response = client.delete(f"{JOBS}/{job['id']}")
    assert (response.status_code, response.content) == (204, b"")
    assert client.get(f"{JOBS}/{job['id']}").status_code == 404
    assert client.delete(f"{JOBS}/{job['id']}").status_code == 404


# -- lists ---------------------------------------------------------------------------------------


def test_lists_filter_sort_and_page(client: TestClient) -> None:
    for number in range(5):
        add(client, name=f"job {number}", queue="a" if number % 2 else "b", priority=number,
            tags=["odd"] if number % 2 else ["even", "all"], delay="1h")  # fmt: skip
    add(client, task="send_email", payload={"to": "x"}, schedule="@daily")

    def names(**query: Any) -> list[str]:
        return [job["name"] for job in client.get(JOBS, params=query).json()["jobs"]]

    page = client.get(JOBS, params={"limit": 2, "offset": 1, "sort": "priority"}).json()
    assert (page["total"], page["limit"], page["offset"]) == (6, 2, 1)
    assert page["total_is_estimate"] is False
    assert names(queue="a", sort="name") == ["job 1", "job 3"]
    assert names(queue="a,b", sort="-name", limit=1) == ["job 4"]
    assert len(names(queue=["a", "b"])) == 5
    assert names(tag="odd", sort="name") == ["job 1", "job 3"]
    assert names(tag="even,all", sort="name") == ["job 0", "job 2", "job 4"]
    assert names(kind="cron") == [None]
    assert names(search="JOB 3") == ["job 3"]
    assert names(name="job 2") == ["job 2"]
    assert names(status="running,failed") == []
    assert names(is_paused="true") == []
    assert len(names(created_after="2020-01-01T00:00:00+00:00")) == 6
    assert names(created_before="2020-01-01T00:00:00Z") == []


WRONG_QUERIES: list[dict[str, Any]] = [
    {"limit": 0}, {"limit": -1}, {"limit": 1001}, {"limit": "many"}, {"offset": -1},
    {"offset": 2**63}, {"status": "asleep"}, {"kind": "sometimes"}, {"sort": "colour"},
    {"created_after": "yesterday"}, {"created_after": "2020-01-01T00:00:00"},
    {"due_before": "99999-01-01T00:00:00Z"}, {"parent_id": "one"}, {"is_paused": "maybe"},
    {"colour": "red"}, {"name": "x" * 201}, {"status": "a\x00b"},
]  # fmt: skip


def test_a_wrong_query_is_refused_with_its_field(client: TestClient) -> None:
    for query in WRONG_QUERIES:
        response = client.get(JOBS, params=query)
        assert response.status_code == 422, (query, response.text)
        field = response.json()["errors"][0]["field"]
        assert field.split(".")[0] == next(iter(query)), response.text
    assert client.get(JOBS, params={"search": "a\x00b"}).status_code == 422


# -- refusals ------------------------------------------------------------------------------------


def nested(levels: int) -> Any:
    return json.loads('{"a":' * levels + "1" + "}" * levels)


WRONG_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"task": None}, "task"),
    ({"task": ""}, "task"),
    ({"task": " padded "}, "task"),
    ({"task": "x" * 201}, "task"),
    ({"colour": "red"}, "colour"),
    ({"payload": []}, "payload"),
    ({"payload": {"surplus": 1}}, "payload"),
    ({"payload": nested(33)}, "payload"),
    ({"metadata": nested(200)}, "metadata"),
    ({"metadata": {"a": "\x00"}}, "metadata"),
    ({"metadata": {"\x00": 1}}, "metadata"),
    ({"metadata": {"a": ["\ud800"]}}, "metadata"),
    ({"name": "\x00"}, "name"),
    ({"name": "\ud800"}, "name"),
    ({"name": "two\nlines"}, "name"),
    ({"description": "\x00"}, "description"),
    ({"tags": ["\udfff"]}, "tags"),
    ({"tags": ["ok", ""]}, "tags.1"),
    ({"url": "ftp://example.com"}, "url"),
    ({"url": "https://"}, "url"),
    ({"url": "https://exa mple.com"}, "url"),
    ({"url": "https://example.com:99999"}, "url"),
    ({"url": "http://[::1"}, "url"),
    ({"source_name": "a\nb"}, "source_name"),
    ({"priority": 101}, "priority"),
    ({"priority": -1}, "priority"),
    ({"priority": "5"}, "priority"),
    ({"priority": True}, "priority"),
    ({"priority": 2**70}, "priority"),
    ({"max_retries": 2**63}, "max_retries"),
    ({"max_retries": -1}, "max_retries"),
    ({"retry_backoff": -1}, "retry_backoff"),
    ({"retry_backoff": 86401}, "retry_backoff"),
    ({"interval_seconds": 0}, "interval_seconds"),
    ({"interval_seconds": 2**62}, "interval_seconds"),
    ({"interval_minutes": 3651, "interval_type": "days"}, "interval_minutes"),
    ({"interval_minutes": 5256000, "interval_type": "days"}, "interval_minutes"),
    ({"interval_minutes": 5, "interval_type": "weeks"}, "interval_type"),
    ({"interval_type": "hours"}, "interval_minutes"),
    ({"interval_minutes": 5, "schedule": "@daily"}, "interval_seconds"),
    ({"interval_minutes": 5, "interval_type": []}, "interval_type"),
    ({"interval_minutes": 5, "interval_seconds": 60}, "interval_minutes"),
    ({"schedule": "whenever"}, "schedule"),
    ({"schedule": "* * * * * *"}, "schedule"),
    ({"schedule": "0 0 31 2 *"}, "schedule"),
    ({"schedule": "@every 0s"}, "schedule"),
    ({"schedule": "@daily", "timezone": "Mars/Olympus"}, "timezone"),
    ({"schedule_enabled": True}, "schedule_enabled"),
    ({"run_at": "2030-01-01T00:00:00"}, "run_at"),
    ({"run_at": "10000-01-01T00:00:00Z"}, "run_at"),
    ({"run_at": "9999-12-31T23:59:59Z"}, "run_at"),
    ({"run_at": "0001-01-01T00:00:00+14:00"}, "run_at"),
    ({"run_at": 5}, "run_at"),
    ({"run_at": "2030-01-01T00:00:00Z", "delay": "1h"}, "delay"),
    ({"delay": "-1s"}, "delay"),
    ({"delay": 1e300}, "delay"),
    ({"delay": "soon"}, "delay"),
    ({"anchor_at": "2030-01-01T00:00:00Z"}, "anchor_at"),
    ({"placement": "anywhere"}, "placement"),
    ({"window": "at night"}, "window"),
    ({"catch_up": "all"}, "catch_up"),
    ({"catch_up_window": 0}, "catch_up_window"),
    ({"max_plans_per_tick": 0}, "max_plans_per_tick"),
    ({"timeout": 0}, "timeout"),
    ({"memory_limit": 512}, "memory_limit"),
    ({"memory_limit": "a lot"}, "memory_limit"),
    ({"memory_limit": "1GB"}, "memory_limit"),  # the task runs in a thread
    ({"cpu_limit": "1m"}, "cpu_limit"),
    ({"lease": 0}, "lease"),
    ({"cost": 0}, "cost"),
    ({"on_failure": "explode"}, "on_failure"),
    ({"scope": {"kind": "a/b", "id": "c"}}, "scope"),
    ({"scope": {"kind": "a"}, "dedup_key": ""}, "dedup_key"),
    ({"scope": "tenant"}, "scope"),
    ({"paused": "yes"}, "paused"),
    ({"retry_delays": ["10s", "never"]}, "retry_delays.1"),
    ({"unique_by": "n"}, "unique_by"),
    ({"unique_by": ["n"]}, "unique_by"),  # which the payload has not
    ({"unique_for": "1h", "throttle": "1h"}, "throttle"),
    ({"debounce_max": "1h"}, "debounce_max"),
    ({"debounce": "1h", "name": "x"}, "debounce"),
    ({"debounce": "1h", "after": "x"}, "debounce"),
]  # fmt: skip


def test_a_wrong_field_is_refused_by_its_name(client: TestClient) -> None:
    for fields, field in WRONG_FIELDS:
        content = json.dumps({"task": "nothing"} | fields)
        response = client.post(JOBS, content=content, headers=IS_JSON)
        assert response.status_code == 422, (fields, response.text)
        assert [error["field"] for error in response.json()["errors"]] == [field], response.text
    assert client.get(JOBS).json()["total"] == 0


NO_JOBS = [
    b"", b"{", b"[]", b"null", b"5", b'"x"', b"\xff\xfe", b'{"priority": 1e400}',
    b'{"metadata": {"a": NaN}, "task": "nothing"}', b'{"metadata": ' + b"[" * 5000,
    b'{"task": "nothing", "metadata": {"n": ' + b"9" * 5000 + b"}}",
]  # fmt: skip


def test_a_body_that_is_no_job_is_refused(client: TestClient) -> None:
    for body in NO_JOBS:
        response = client.post(JOBS, content=body, headers=IS_JSON)
        assert response.status_code in (400, 422), (body[:50], response.text)
        assert response.headers["content-type"] == "application/problem+json"


def test_sizes_are_capped(client: TestClient) -> None:
    large = "x" * 300_000
    assert refused(client, 413, metadata={"a": large})["errors"][0]["field"] == "metadata"
    refused(client, 413, metadata={"a": "x" * 2_000_000})
    chunks = (b"x" * 65_536 for _ in range(40))
    response = client.post(JOBS, content=chunks, headers={"Content-Type": "application/json"})
    assert response.status_code == 413


def test_what_a_state_forbids_is_a_conflict_that_names_the_way_out(client: TestClient) -> None:
    job = add(client, delay="1h")
    response = client.post(f"{JOBS}/{job['id']}/resume")
    assert response.status_code == 409
    assert response.json()["state"] == "scheduled"
    assert response.json()["allowed"] == ["cancelled", "paused", "pending", "running"]
    client.post(f"{JOBS}/{job['id']}/cancel")
    moved = client.patch(f"{JOBS}/{job['id']}", json={"delay": "2h"})
    assert moved.status_code == 409


def test_a_taken_name_is_a_conflict_that_names_its_holder(client: TestClient) -> None:
    first = add(client, name="mine")
    response = client.post(JOBS, json={"task": "nothing", "name": "mine"})
    assert response.status_code == 409
    assert response.json()["job_id"] == first["id"]
    add(client, name="mine", scope={"kind": "tenant", "id": "b"})
    other = add(client, name="other")
    assert client.patch(f"{JOBS}/{other['id']}", json={"name": "mine"}).status_code == 409


def test_verbs_on_no_job(client: TestClient) -> None:
    for verb in ("pause", "resume", "cancel", "retry", "run"):
        assert client.post(f"{JOBS}/{uuid4()}/{verb}").status_code == 404
        assert client.post(f"{JOBS}/not-an-id/{verb}").status_code == 404


@pytest.mark.parametrize("body", [{"delay": "1h"}, {"window": "closed"}, {"schedule_delay": "1h"}])
def test_a_one_off_that_has_to_wait_is_scheduled_whatever_it_waits_for(
    client: TestClient, body: dict[str, Any]
) -> None:
    if "window" in body:
        opens = datetime.now(UTC) + timedelta(hours=2)
        body = {"window": f"{opens:%H:%M}-{opens + timedelta(hours=1):%H:%M}"}
    job = add(client, **body)
    assert job["status"] == "scheduled"
    assert datetime.fromisoformat(job["next_run_at"]) > datetime.now(UTC) + timedelta(minutes=50)
    assert client.post(f"{JOBS}/{job['id']}/run").json()["status"] == "pending"
    assert add(client)["status"] == "pending"


def test_one_behind_a_closed_window_is_scheduled_when_it_is_added_in_bulk(
    app: Evenbeat,
) -> None:
    opens = datetime.now(UTC) + timedelta(hours=2)
    window = f"{opens:%H:%M}-{opens + timedelta(hours=1):%H:%M}"
    app.enqueue_many(NewJob(JobSpec("nothing", window=parse_window(window))) for _ in range(3))
    assert {job.status for job in app.store.read.jobs().jobs} == {"scheduled"}


def test_a_schema_of_a_worker_takes_no_time_that_a_caller_chooses():
    """By way of `re`, and by comparing each item with each other, both would take hours."""
    schema = {"properties": {"name": {"pattern": "(a+)+$"}, "all": {"uniqueItems": True}}}
    task = ResolvedTask("far", recorded=KnownTask("far", "q", "async", schema))
    many = [[n, {}, "x", None][n % 4] for n in range(40_000)]
    assert task.checked({"name": "é" + "a" * 30, "all": many})["all"] == many
    with pytest.raises(InvalidInput, match="'name' does not fit pattern"):
        task.checked({"name": "a" * 30 + "!"})
    broken = {"properties": {"name": {"pattern": "(?=a)"}}}
    task = ResolvedTask("far", recorded=KnownTask("far", "q", "async", broken))
    assert task.checked({"name": "b"}) == {"name": "b"}


def test_a_whole_number_may_be_written_with_a_fraction_of_nothing(client):
    body = '{"task": "nothing", "priority": 7.0, "interval_seconds": 60.0, "timeout": 1.5}'
    answer = client.post(
        "/api/v1/jobs", content=body, headers={"Content-Type": "application/json"}
    ).json()
    assert (answer["priority"], answer["interval_seconds"], answer["timeout"]) == (7, 60, 1.5)
    refused = client.post("/api/v1/jobs", json={"task": "nothing", "priority": 7.5})
    assert refused.status_code == 422
