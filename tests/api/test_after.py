"""Jobs that run after others over HTTP: creation, edits, answers, refusals, deletion, export."""

from typing import Any
from uuid import uuid4

import pytest
from starlette.testclient import TestClient

from evenbeat import Evenbeat
from evenbeat.domain.decision import decide
from evenbeat.domain.execution import Outcome
from evenbeat.domain.states import ExecutionStatus
from evenbeat.importers.files import definition_of

JOBS = "/api/v1/jobs"


def add(client: TestClient, name: str, **fields: Any) -> dict[str, Any]:
    response = client.post(JOBS, json={"task": "nothing", "name": name} | fields)
    assert response.status_code == 201, response.text
    return response.json()


def run_all(app: Evenbeat, status: ExecutionStatus = ExecutionStatus.COMPLETED) -> list[str]:
    jobs = app.store.claim(uuid4(), 100)
    outcome, now = Outcome(status), app.store.clock()
    app.store.finish([decide(job, outcome, now) for job in jobs])
    return sorted(job.name or "" for job in jobs)


@pytest.mark.parametrize(
    ("after", "after_on", "found"),
    [
        ("a", None, [("a", "success")]),
        ("a", "any", [("a", "any")]),
        (["a", "b"], "failure", [("a", "failure"), ("b", "failure")]),
        ([{"job": "b", "on": "any"}, "a"], None, [("b", "any"), ("a", "success")]),
        ([{"job": "b"}, {"job": "a", "on": "success"}], "any", [("b", "any"), ("a", "success")]),
    ],
)
def test_every_form_of_after(client: TestClient, after: Any, after_on: Any, found: Any) -> None:
    for name in ("a", "b"):
        add(client, name, delay="1h")
    fields = {"after": after} | ({"after_on": after_on} if after_on else {})
    job = add(client, "c", **fields)
    assert (job["schedule_kind"], job["status"], job["next_run_at"]) == ("after", "pending", None)
    assert job["schedule_enabled"] is False
    assert [(one["name"], one["on"]) for one in job["after"]] == found
    assert not any(one["satisfied"] for one in job["after"])


def test_what_is_answered_of_both_sides(client: TestClient, app: Evenbeat) -> None:
    a = add(client, "a")
    b = add(client, "b", after=a["id"])
    assert b["schedule_text"] == "after a has completed"
    (dependent,) = client.get(f"{JOBS}/{a['id']}").json()["dependents"]
    assert dependent == {"job": b["id"], "name": "b", "on": "success", "status": "pending"}
    listed = {job["name"]: job for job in client.get(JOBS, params={"kind": "after"}).json()["jobs"]}
    assert [one["job"] for one in listed["b"]["after"]] == [a["id"]]
    assert "after" not in client.get(f"{JOBS}/{a['id']}").json()
    told = client.get(f"{JOBS}/{b['id']}/explain").json()["summary"]
    assert told == "It is waiting for a, which is pending (it must succeed)."
    assert run_all(app) == ["a"]
    assert run_all(app) == ["b"]
    done = client.get(f"{JOBS}/{b['id']}").json()
    assert done["status"] == "completed"
    assert done["after"][0]["satisfied"] is True
    assert client.get(f"{JOBS}/{b['id']}/executions").json()["total"] == 1


def test_what_ended_before_starts_it_at_once(client: TestClient, app: Evenbeat) -> None:
    add(client, "a")
    run_all(app)
    assert add(client, "b", after="a")["next_run_at"] is not None
    assert add(client, "c", after="a", paused=True)["status"] == "paused"
    assert run_all(app) == ["b"]


def test_verbs_work_while_it_waits(client: TestClient, app: Evenbeat) -> None:
    add(client, "a", delay="1h")
    job = add(client, "b", after="a")
    place = f"{JOBS}/{job['id']}"
    assert client.post(f"{place}/pause").json()["status"] == "paused"
    assert client.post(f"{place}/resume").json()["next_run_at"] is None
    assert client.post(f"{place}/run").json()["next_run_at"] is not None
    assert run_all(app) == ["b"]
    assert client.get(place).json()["status"] == "pending"
    assert client.post(f"{place}/cancel").json()["status"] == "cancelled"
    assert client.post(f"{place}/retry").json()["status"] == "pending"


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"after": "nobody"}, "after", "There is no job 'nobody' to wait for"),
        ({"after": str(uuid4())}, "after", "There is no job"),
        ({"after": "a", "schedule": "@daily"}, "after", "after and schedule both"),
        ({"after": "a", "interval_seconds": 60}, "after", "after and interval_seconds both"),
        ({"after": "a", "delay": "5m"}, "after", "not at a time"),
        ({"after": "a", "run_at": "2040-01-01T00:00:00Z"}, "after", "not at a time"),
        ({"after_on": "any"}, "after_on", "that is missing"),
        ({"after": "new", "name": "new"}, "after", "forever: new → new"),
        ({"after": ["a", {"job": "a", "on": "any"}]}, "after", "in two ways"),
        ({"after": []}, "after", ""),
        ({"after": ["x"] * 101}, "after", ""),
        ({"after": 7}, "after", ""),
        ({"after": [{"job": "a", "on": "maybe"}]}, "after", ""),
        ({"after": [{"job": "a", "when": "now"}]}, "after", ""),
        ({"after": ""}, "after", ""),
        ({"after": "a\u0000"}, "after", ""),
    ],
)
def test_what_is_wrong_is_named(
    client: TestClient, fields: dict[str, Any], field: str, words: str
) -> None:
    add(client, "a", delay="1h")
    response = client.post(JOBS, json={"task": "nothing"} | fields)
    assert response.status_code == 422, response.text
    assert any(str(one["field"]).startswith(field) for one in response.json()["errors"])
    assert words in response.text
    assert "[" not in response.json()["detail"], "no words of the machinery"
    assert client.get(JOBS).json()["total"] == 1


def test_an_edit_can_make_it_wait_and_end_that(client: TestClient) -> None:
    a, b = add(client, "a", delay="1h"), add(client, "b", delay="1h")
    edited = client.patch(f"{JOBS}/{b['id']}", json={"after": "a", "after_on": "any"}).json()
    assert (edited["schedule_kind"], edited["after"][0]["on"]) == ("after", "any")
    closing = client.patch(f"{JOBS}/{a['id']}", json={"after": "b"})
    assert closing.status_code == 422
    assert "a → b → a" in closing.text
    kept = client.patch(f"{JOBS}/{b['id']}", json={"priority": 9}).json()
    assert kept["after"] == edited["after"]
    hourly = client.patch(f"{JOBS}/{b['id']}", json={"schedule": "@hourly"}).json()
    assert hourly["schedule_kind"] == "cron"
    assert "after" not in hourly
    assert "dependents" not in client.get(f"{JOBS}/{a['id']}").json()


def test_an_edit_of_its_delay_leaves_it_waiting(client: TestClient) -> None:
    add(client, "a", delay="1h")
    place = f"{JOBS}/{add(client, 'b', after='a')['id']}"
    edited = client.patch(place, json={"schedule_delay": "5m", "window": "00:00-06:00"})
    assert edited.status_code == 200, edited.text
    assert [one["name"] for one in edited.json()["after"]] == ["a"]


def test_null_ends_the_waiting(client: TestClient) -> None:
    add(client, "a", delay="1h")
    b = add(client, "b", after="a")
    edited = client.patch(f"{JOBS}/{b['id']}", json={"after": None}).json()
    assert (edited["schedule_kind"], edited["status"]) == ("once", "pending")
    assert edited["next_run_at"] is not None


def test_deleting_what_is_waited_for(client: TestClient) -> None:
    a = add(client, "a", delay="1h")
    b = add(client, "b", after="a")
    kept = client.delete(f"{JOBS}/{a['id']}")
    assert kept.status_code == 409
    assert "waited for by b" in kept.json()["detail"]
    bulk = client.post(f"{JOBS}/bulk/delete", json={"ids": [a["id"]]}).json()
    assert (bulk["changed"], bulk["refused_count"]) == (0, 1)
    assert "waited for by b" in bulk["refused"][0]["reason"]
    assert client.delete(f"{JOBS}/{a['id']}", params={"force": "true"}).status_code == 204
    left = client.get(f"{JOBS}/{b['id']}").json()
    assert left["after"][0]["status"] is None
    assert "was deleted" in client.get(f"{JOBS}/{b['id']}/explain").json()["summary"]


def test_many_at_once_may_name_each_other(client: TestClient) -> None:
    jobs = [
        {"task": "nothing", "name": "last", "after": ["first"]},
        {"task": "nothing", "name": "first", "delay": "1h"},
    ]
    assert client.post(f"{JOBS}/bulk", json={"jobs": jobs}).json()["created"] == 2
    both = {"ids": [job["id"] for job in client.get(JOBS).json()["jobs"]]}
    assert client.post(f"{JOBS}/bulk/delete", json=both).json()["changed"] == 2


def test_an_export_names_what_is_waited_for(client: TestClient) -> None:
    add(client, "a", delay="1h")
    tenant = {"kind": "tenant", "id": "1"}
    add(client, "own", delay="1h", scope=tenant)
    waiting = add(client, "b", after=["a", {"job": "own", "on": "any"}], scope=tenant)
    definition = definition_of(client.get(f"{JOBS}/{waiting['id']}").json())
    assert definition["after"] == [
        {"job": "a", "on": "success"},
        {"job": "own", "on": "any"},
    ]
    assert "run_at" not in definition
