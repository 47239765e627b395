"""Limits over HTTP: jobs that have them, and keys that operators look after."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from evenbeat import Evenbeat
from waiting import wait_for

EMAIL = {"task": "send_email", "payload": {"to": "a@b.c"}}


def created(client: TestClient, **fields: Any) -> dict[str, Any]:
    answer = client.post("/api/v1/jobs", json=EMAIL | fields)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def limits_of(job: dict[str, Any]) -> tuple[Any, ...]:
    return job["concurrency_key"], job["concurrency_limit"], job["rate_limit"]


def test_a_job_is_made_with_limits_and_answers_them(client: TestClient):
    assert limits_of(created(client)) == (None, None, None)
    assert limits_of(created(client, concurrency_key="k")) == ("k", 1, None)
    assert limits_of(created(client, concurrency_limit=3)) == ("send_email", 3, None)
    job = created(client, concurrency_key="{to}/x", rate_limit="5 per 30s")
    assert limits_of(job) == ("{to}/x", None, "5/30s"), "a key in a request is meant literally"
    assert limits_of(client.get(f"/api/v1/jobs/{job['id']}").json()) == limits_of(job)
    several = client.post("/api/v1/jobs/bulk", json={"jobs": [EMAIL | {"rate_limit": "1/s"}] * 2})
    assert several.status_code == 201


def test_limits_are_edited_and_lifted(client: TestClient):
    job = created(client, concurrency_key="k", concurrency_limit=2)
    path = f"/api/v1/jobs/{job['id']}"
    assert limits_of(client.patch(path, json={"rate_limit": "10/s"}).json()) == ("k", 2, "10/s")
    assert limits_of(client.patch(path, json={"priority": 3}).json()) == ("k", 2, "10/s")
    lift = {"concurrency_key": None, "concurrency_limit": None, "rate_limit": None}
    assert limits_of(client.patch(path, json=lift).json()) == (None, None, None)


def test_a_task_s_own_key_is_filled_from_the_payload(app: Evenbeat, client: TestClient):
    @app.task(concurrency_key="customer:{customer_id}", concurrency_limit=2)
    def bill(customer_id: int | None = None) -> None: ...

    def post(payload: dict[str, Any], **fields: Any) -> Any:
        return client.post("/api/v1/jobs", json={"task": "bill", "payload": payload} | fields)

    job = post({"customer_id": 42}).json()
    assert limits_of(job) == ("customer:42", 2, None)
    missing = post({})
    assert missing.status_code == 422
    assert "customer_id" in missing.text
    other = post({}, concurrency_key="other").json()
    assert limits_of(other) == ("other", 2, None)
    path = f"/api/v1/jobs/{other['id']}"
    again = client.patch(path, json={"concurrency_key": None, "payload": {"customer_id": 7}})
    assert limits_of(again.json()) == ("customer:7", 2, None)
    again = client.patch(path, json={"payload": {"customer_id": 8}})
    assert limits_of(again.json()) == ("customer:8", 2, None)
    own = client.patch(path, json={"concurrency_key": "own", "payload": {"customer_id": 9}})
    assert limits_of(own.json()) == ("own", 2, None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"concurrency_key": ""},
        {"concurrency_key": " k"},
        {"concurrency_key": "k" * 201},
        {"concurrency_key": "a\u0000b"},
        {"concurrency_key": 5},
        {"concurrency_limit": 0},
        {"concurrency_limit": -3},
        {"concurrency_limit": 1.5},
        {"concurrency_limit": "2"},
        {"concurrency_limit": 10**30},
        {"rate_limit": "often"},
        {"rate_limit": "0/s"},
        {"rate_limit": "10/0s"},
        {"rate_limit": "1" * 99 + "/s"},
        {"rate_limit": 10},
    ],
)
def test_wrong_limits_are_refused_by_name(client: TestClient, wrong: dict[str, Any]):
    answer = client.post("/api/v1/jobs", json=EMAIL | wrong)
    assert answer.status_code == 422
    assert next(iter(wrong)) in answer.text
    if wrong.get("rate_limit") in ("0/s", "10/0s"):
        assert f"{wrong['rate_limit']!r} is not a rate" in answer.json()["detail"]
    assert client.get("/api/v1/jobs").json()["total"] == 0


def test_keys_are_listed_set_and_reset(client: TestClient):
    assert client.get("/api/v1/limits").json() == {
        "limits": [], "total": 0, "limit": 50, "offset": 0,
    }  # fmt: skip
    for _ in range(3):
        created(client, concurrency_key="host/a b", concurrency_limit=2)
    created(client, rate_limit="10/s")
    found = client.get("/api/v1/limits", params={"limit": 1}).json()
    assert (found["total"], found["limits"][0]["key"]) == (2, "host/a b")
    path = "/api/v1/limits/host%2Fa%20b"
    one = client.get(path).json()
    assert (one["concurrency_limit"], one["running"], one["waiting"]) == (2, 0, 3)
    assert (one["is_set"], one["rate_limit"], one["next_start_at"]) == (False, None, None)

    changed = client.put(path, json={"concurrency_limit": 9, "rate_limit": "100/min"}).json()
    assert (changed["concurrency_limit"], changed["rate_limit"]) == (9, "100/m")
    assert changed["is_set"]
    created(client, concurrency_key="host/a b", concurrency_limit=1)
    assert client.get(path).json()["concurrency_limit"] == 9
    assert client.delete(path).json()["is_set"] is False
    assert client.put("/api/v1/limits/new", json={"concurrency_limit": 1}).status_code == 200


def test_what_cannot_be_set_is_refused(client: TestClient):
    for wrong in ({}, {"concurrency_limit": 0}, {"rate_limit": "x"}, {"unknown": 1}, []):
        assert client.put("/api/v1/limits/k", json=wrong).status_code == 422
    assert client.put("/api/v1/limits/%20", json={"concurrency_limit": 1}).status_code == 422
    assert client.put("/api/v1/limits/a%00b", json={"concurrency_limit": 1}).status_code == 422
    assert client.get("/api/v1/limits/k").status_code == 404
    assert client.delete("/api/v1/limits/k").status_code == 404
    assert client.get("/api/v1/limits").json()["total"] == 0


def test_explain_names_the_limit(app: Evenbeat, client: TestClient, worker: Any):
    del worker
    running = {"task": "waits", "concurrency_key": "k"}
    first = client.post("/api/v1/jobs", json=running).json()
    second = client.post("/api/v1/jobs", json=running).json()
    wait_for(lambda: client.get("/api/v1/limits/k").json()["running"], "a run")
    states = {job.id: job.status for job in app.store.read.jobs().jobs}
    waiting = next(job for job in (first, second) if states_of(states, job) != "running")
    told = client.get(f"/api/v1/jobs/{waiting['id']}/explain").json()
    assert told["facts"][0]["code"] == "concurrency_limit"
    assert "1 of 1 of the key 'k' are running" in told["summary"]


def states_of(states: dict[Any, str], job: dict[str, Any]) -> str:
    return next(status for id_, status in states.items() if str(id_) == job["id"])
