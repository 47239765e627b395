"""Trying schedules out, a job's next plans, and why it does not run."""

from typing import Any

from starlette.testclient import TestClient

from evenbeat import Evenbeat
from evenbeat.testing import Harness, VirtualClock

PREVIEW = "/api/v1/schedules/preview"


def test_a_schedule_in_words_and_times(client: TestClient) -> None:
    body = {"schedule": "0 9 * * mon-fri", "timezone": "Europe/Berlin", "count": 3,
            "after": "2030-01-04T12:00:00Z"}  # fmt: skip
    answer = client.post(PREVIEW, json=body).json()
    assert answer["plans"] == [
        "2030-01-07T08:00:00Z", "2030-01-08T08:00:00Z", "2030-01-09T08:00:00Z",
    ]  # fmt: skip
    assert "09:00" in answer["explanation"]
    assert "placement" not in answer


def test_intervals_windows_and_where_a_job_would_go(client: TestClient, app: Evenbeat) -> None:
    app.clock = VirtualClock()
    answer = client.post(PREVIEW, json={"interval_minutes": 6, "interval_type": "hours"}).json()
    assert answer["schedule"] == "@every 6h"
    assert answer["explanation"] == "every 6 hours"
    assert answer["plans"][0] == "2030-01-01T06:00:00Z"
    assert len(answer["plans"]) == 5
    assert "2030-01-01T00:00:00Z" < answer["placement"]["at"] <= "2030-01-01T06:00:00Z"
    body = {"schedule": "0 12 * * *", "window": "22:00-06:00", "count": 1}
    assert client.post(PREVIEW, json=body).json()["plans"] == ["2030-01-01T22:00:00Z"]


def test_a_viewer_may_try_schedules_out(client_for: Any) -> None:
    answer = client_for("viewer").post(PREVIEW, json={"schedule": "@hourly"})
    assert answer.status_code == 200


def test_what_is_no_schedule(client: TestClient) -> None:
    for body, field in [
        ({}, "schedule"),
        ({"schedule": "whenever"}, "schedule"),
        ({"schedule": "0 0 31 2 *"}, "schedule"),
        ({"schedule": "@daily", "interval_seconds": 5}, "interval_seconds"),
        ({"schedule": "@daily", "timezone": "Mars"}, "timezone"),
        ({"schedule": "@daily", "count": 0}, "count"),
        ({"schedule": "@daily", "count": 101}, "count"),
        ({"schedule": "@daily", "after": "2030-01-01T00:00:00"}, "after"),
        ({"schedule": "@daily", "window": "never"}, "window"),
        ({"schedule": "@daily", "colour": "red"}, "colour"),
        ({"schedule": "\x00"}, "schedule"),
    ]:
        response = client.post(PREVIEW, json=body)
        assert response.status_code == 422, (body, response.text)
        assert response.json()["errors"][0]["field"] == field, response.text


def test_a_jobs_next_plans(client: TestClient, app: Evenbeat) -> None:
    app.clock = VirtualClock()
    job = client.post(
        "/api/v1/jobs", json={"task": "nothing", "schedule": "@every 90m", "placement": "grid"}
    ).json()
    place = f"/api/v1/jobs/{job['id']}/plans"
    answer = client.get(place, params={"count": 2}).json()
    assert answer["plans"] == ["2030-01-01T01:30:00Z", "2030-01-01T03:00:00Z"]
    assert len(client.get(place).json()["plans"]) == 5
    client.post(f"/api/v1/jobs/{job['id']}/cancel")
    assert client.get(place).json()["plans"] == []
    assert client.get(place, params={"count": 0}).status_code == 422


def test_why_a_job_does_not_run(client: TestClient) -> None:
    job = client.post("/api/v1/jobs", json={"task": "nothing"}).json()
    told = client.get(f"/api/v1/jobs/{job['id']}/explain").json()
    assert told["facts"][0]["code"] == "no_worker"
    assert told["summary"] == told["facts"][0]["text"]


def test_plans_of_the_past_are_run_once(client: TestClient, app: Evenbeat) -> None:
    with Harness(app) as harness:
        job = client.post("/api/v1/jobs", json={"task": "nothing", "schedule": "@daily"}).json()
        place = f"/api/v1/jobs/{job['id']}/backfill"
        body = {"from": "2029-12-01T00:00:00Z", "to": "2029-12-11T00:00:00Z"}
        answer = client.post(place, json=body).json()
        assert (answer["created"], answer["existing"]) == (10, 0)
        assert answer["plans"][0] == "2029-12-01T00:00:00Z"
        assert client.post(place, json=body).json()["created"] == 0
        assert harness.drain() == 10
        children = client.get("/api/v1/jobs", params={"parent_id": job["id"]}).json()
        assert children["total"] == 10
        for wrong, field in [
            ({"to": "2029-12-11T00:00:00Z"}, "from"),
            (body | {"to": "2029-11-01T00:00:00Z"}, "from"),
            (body | {"to": "2039-11-01T00:00:00Z"}, "to"),
            (body | {"limit": 0}, "limit"),
            (body | {"limit": 5}, "from"),
            (body | {"colour": "red"}, "colour"),
        ]:
            response = client.post(place, json=wrong)
            assert response.status_code == 422, (wrong, response.text)
            assert response.json()["errors"][0]["field"] == field, response.text


def test_off_peak_is_answered_with_its_hours_everywhere(client: TestClient, app: Evenbeat) -> None:
    app.clock = VirtualClock()
    body = {"task": "nothing", "schedule": "@every 1d", "window": "off_peak", "name": "quiet"}
    job_id = client.post("/api/v1/jobs", json=body).json()["id"]
    place = f"/api/v1/jobs/{job_id}"
    job = client.get(place).json()
    assert job["window"] == "off_peak 00:00-04:00 UTC"
    assert job["next_run_at"] < "2030-01-01T04:00:00Z"
    assert "only off_peak 00:00-04:00 UTC" in client.get(f"{place}/plans").json()["schedule_text"]
    assert "00:00-04:00 UTC" in client.get(f"{place}/explain").text
    again = client.patch(place, json={"window": "off_peak 10:00-12:00 UTC"}).json()
    assert (again["window"], again["next_run_at"]) == (job["window"], job["next_run_at"])
    assert client.patch(place, json={"window": None}).json()["window"] is None
    for schedule in ("@every 1d", "0 12 * * *"):
        answer = client.post(PREVIEW, json={"schedule": schedule, "window": "off_peak"}).json()
        assert all(plan[11:13] in ("00", "01", "02", "03") for plan in answer["plans"])
    wrong = client.post("/api/v1/jobs", json=body | {"window": "off_peak always"})
    assert wrong.status_code == 422
    assert '"off_peak"' in wrong.json()["errors"][0]["message"]
