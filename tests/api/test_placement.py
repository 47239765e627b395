"""Distribution and rebalances over HTTP, with the fields that the first design promised."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from starlette.testclient import TestClient

from evenbeat import Evenbeat

DISTRIBUTION = "/api/v1/scheduler/distribution"
REBALANCE = "/api/v1/scheduler/rebalance"


@pytest.fixture
def crowd(app: Evenbeat, client: TestClient) -> list[str]:
    """Twelve jobs that all run at the same moment every six hours, placed long ago."""
    start = (datetime.now(UTC) + timedelta(hours=3)).replace(microsecond=0)
    jobs = [
        {
            "task": "nothing",
            "name": f"crowd-{n}",
            "interval_seconds": 6 * 3600,
            "anchor_at": start.isoformat(),
            "run_at": start.isoformat(),
            "cost": "10m",
        }
        for n in range(12)
    ]
    answer = client.post("/api/v1/jobs/bulk", json={"jobs": jobs})
    assert answer.status_code == 201, answer.text
    with app.store.database.connect() as connection:
        connection.execute(
            "UPDATE evenbeat.jobs SET next_run_at = %(at)s, plan_time = %(at)s, anchor_at = %(at)s,"
            " placement = 'balanced', placed_at = now() - interval '2 hours'",
            {"at": start},
        )
        connection.commit()
    return [job["id"] for job in answer.json()["jobs"]]


def next_runs(client: TestClient) -> dict[str, str]:
    jobs = client.get("/api/v1/jobs", params={"limit": 1000}).json()["jobs"]
    return {job["id"]: job["next_run_at"] for job in jobs}


def test_the_distribution_has_the_seeds_fields_and_more(client: TestClient, crowd: list[str]):
    told = client.get(DISTRIBUTION).json()

    assert (told["window_hours"], told["slot_minutes"], told["total_jobs"]) == (24, 15, 12)
    assert [hour["hour"] for hour in told["hourly_distribution"]] == list(range(24))
    assert told["peak_count"] == 12
    assert told["hourly_distribution"][told["peak_hour"]]["job_count"] == 12
    assert 0 < told["distribution_score"] < 0.2
    assert told["expected_peak"] == 12
    assert (told["workers_needed"], told["workers_sufficient"]) == (12, 1)
    assert len(told["starts_per_slot"]) == 96
    assert sum(told["starts_per_slot"]) == 48
    assert len(told["week_load"]) == len(told["week_peak"]) == 7 * 96
    assert max(told["week_peak"]) == 12
    assert told["suggestion"]


def test_an_empty_schedule_is_answered_too(client: TestClient):
    told = client.get(DISTRIBUTION).json()
    assert told["total_jobs"] == 0
    assert client.post(f"{REBALANCE}/preview").json()["would_move"] == 0
    assert client.post(REBALANCE).json()["moved"] == []


def test_preview_apply_and_undo_without_a_body(client: TestClient, crowd: list[str]):
    before = next_runs(client)

    preview = client.post(f"{REBALANCE}/preview").json()
    assert preview["would_move"] == len(preview["preview"]) > 0
    assert preview["would_skip"] == len(preview["skipped"])
    assert preview["projected_score"] > preview["current_score"]
    assert all(move["reason"] for move in preview["preview"])
    assert next_runs(client) == before

    done = client.post(REBALANCE).json()
    assert {move["job_id"] for move in done["moved"]} == {
        move["job_id"] for move in preview["preview"]
    }
    assert done["new_distribution_score"] == preview["projected_score"]
    assert done["after"]["expected_peak"] < done["before"]["expected_peak"]
    moved = next_runs(client)
    for move in done["moved"]:
        assert moved[move["job_id"]] == move["new_time"] != before[move["job_id"]]

    listed = client.get(f"{REBALANCE}s").json()["rebalances"]
    assert [one["id"] for one in listed] == [done["id"]]
    assert (listed[0]["created_by"], listed[0]["undone_at"]) == ("a operator", None)

    undone = client.post(f"{REBALANCE}/{done['id']}/undo").json()
    assert set(undone["restored"]) == {move["job_id"] for move in done["moved"]}
    assert undone["left_alone"] == []
    assert next_runs(client) == before
    again = client.post(f"{REBALANCE}/{done['id']}/undo")
    assert again.status_code == 409
    assert client.get(f"{REBALANCE}s").json()["rebalances"][0]["undone_by"] == "a operator"


def test_moves_can_be_limited_and_a_preview_applied(client: TestClient, crowd: list[str]):
    preview = client.post(f"{REBALANCE}/preview", json={"max_moves": 3}).json()
    assert 0 < preview["would_move"] <= 3

    done = client.post(REBALANCE, json={"plan_id": preview["plan_id"]}).json()

    assert {move["job_id"] for move in done["moved"]} == {
        move["job_id"] for move in preview["preview"]
    }


WRONG: list[Any] = [
    {"max_moves": 0},
    {"max_moves": -1},
    {"max_moves": "3"},
    {"max_moves": 1.5},
    {"moves": 3},
    [],
]


def test_a_wrong_body_is_refused(client: TestClient):
    for path in (REBALANCE, f"{REBALANCE}/preview"):
        for body in WRONG:
            answer = client.post(path, json=body)
            assert answer.status_code == 422, (path, body)
            assert answer.json()["errors"]


def test_an_unknown_plan_or_rebalance_is_refused(client: TestClient):
    assert client.post(REBALANCE, json={"plan_id": "nonsense"}).status_code == 409
    assert client.post(f"{REBALANCE}/{uuid4()}/undo").status_code == 404


def test_the_history_of_the_distribution_is_told(
    app: Evenbeat, client: TestClient, crowd: list[str]
):
    assert client.get(f"{DISTRIBUTION}/history").json() == {"points": []}
    app.balancer.watch()

    (point,) = client.get(f"{DISTRIBUTION}/history").json()["points"]
    assert (point["total_jobs"], point["peak_load"]) == (12, 12)
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert client.get(f"{DISTRIBUTION}/history", params={"since": later}).json()["points"] == []
    assert client.get(f"{DISTRIBUTION}/history?since=yesterday").status_code == 422


def test_an_interval_that_meets_all_others_is_advised_against_and_never_refused(
    app: Evenbeat, client: TestClient
):
    usual = [
        {"task": "nothing", "schedule": every, "cost": "60s"}
        for every in ("30m", "1h", "2h", "1d")
        for _ in range(10)
    ]
    assert client.post("/api/v1/jobs/bulk", json={"jobs": usual}).status_code == 201
    new = {"task": "nothing", "schedule": "37m", "cost": "60s"}
    answer = client.post("/api/v1/jobs", json=new)
    assert answer.status_code == 201
    (hint,) = answer.json()["warnings"]
    assert hint == (
        "Every 37m meets other runs about 46 times a day wherever it starts; every 36m hardly ever."
    )
    other = client.post("/api/v1/jobs", json=new | {"schedule": "36m"})
    assert "warnings" not in other.json()

    (advice,) = client.get(DISTRIBUTION).json()["advice"]
    assert (advice["every"], advice["jobs"], advice["instead"]) == (2220, 1, 2160)
    assert advice["meetings"] > 45
    assert advice["text"].startswith("Every 37m meets other runs about")
    preview = client.post(f"{REBALANCE}/preview").json()
    assert preview["before"]["advice"] == [advice]
