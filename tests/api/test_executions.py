"""History over HTTP, of runs that really ran."""

from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from starlette.testclient import TestClient

from evenbeat import Evenbeat
from evenbeat.engine.worker import Worker
from evenbeat.testing import Harness
from waiting import wait_for

JOBS = "/api/v1/jobs"


def add(client: TestClient, **fields: Any) -> str:
    response = client.post(JOBS, json=fields)
    assert response.status_code == 201, response.text
    return response.json()["id"]


def test_the_seeds_history_stats_and_metrics(client: TestClient, app: Evenbeat) -> None:
    with Harness(app) as harness:
        job_id = add(client, task="send_email", payload={"to": "a@b.c"}, interval_minutes=30)
        bad_id = add(client, task="fails")
        harness.advance("2h")
        page = client.get(f"{JOBS}/{job_id}/executions", params={"limit": 3}).json()
        assert (page["total"], page["limit"], page["offset"]) == (4, 3, 0)
        newest = page["executions"][0]
        seeds = {"execution_number": 4, "status": "completed", "items_crawled": 0,
                 "items_indexed": 0, "error_message": None, "retry_attempt": 0, "metadata": {},
                 "job_id": job_id}  # fmt: skip
        assert {field: newest[field] for field in seeds} == seeds
        assert {"started_at", "completed_at", "duration_ms", "cpu_time_ms",
                "memory_peak_mb", "plan_time", "worker_id", "wait_ms"} <= newest.keys()  # fmt: skip
        assert newest["result"] == {"to": "a@b.c", "subject": "hi"}
        assert client.get(f"/api/v1/executions/{newest['id']}").json() == newest

        stats = client.get(f"{JOBS}/{job_id}/stats").json()
        assert (stats["total_executions"], stats["successful_runs"]) == (4, 4)
        assert (stats["failed_runs"], stats["success_rate"]) == (0, 1)
        assert stats["next_scheduled_at"] > stats["last_execution_at"]

        failed = client.get(f"{JOBS}/{bad_id}/executions?status=failed").json()["executions"]
        assert failed[0]["error_message"] == "It was meant to."
        assert "Fail" in failed[0]["stack_trace"]

        metrics = client.get("/api/v1/scheduler/metrics").json()
        assert metrics["jobs"] == {"pending": 0, "scheduled": 1, "running": 0, "paused": 0,
                                   "completed": 0, "failed": 1, "cancelled": 0}  # fmt: skip
        assert metrics["executions"]["total"] == 5
        assert metrics["executions"]["success_rate"] == 0.8
        assert metrics["stale_locks_cleared"] == 0
        assert {"last_check_at", "last_metrics_update"} <= metrics.keys()


def test_what_a_handler_reports_and_what_a_follower_is_for_is_answered(
    client: TestClient, app: Evenbeat
) -> None:
    app.task(lambda ctx: ctx.report(rows_affected=2, skipped=[1, "x"]), name="load")
    with Harness(app) as harness:
        job_id = add(client, task="load")
        after_id = add(client, task="load", after=[job_id])
        harness.drain()
        (run,) = client.get(f"{JOBS}/{job_id}/executions").json()["executions"]
        assert (run["rows_affected"], run["figures"]) == (2, {"skipped": [1, "x"]})
        after = client.get(f"{JOBS}/{after_id}").json()
        assert after["predecessor_plan_time"] == run["plan_time"]


def test_the_last_check_is_the_last_poll_and_no_heartbeat(
    client: TestClient, database_url: str
) -> None:
    def figures() -> tuple[datetime, datetime]:
        check = client.get("/api/v1/scheduler/metrics").json()["last_check_at"]
        (worker,) = client.get("/api/v1/workers").json()["workers"]
        return datetime.fromisoformat(check), datetime.fromisoformat(worker["heartbeat_at"])

    with Evenbeat(database_url, poll_seconds=0.2, renew_seconds=0.2) as other:
        worker = other.worker()
        worker.start()
        try:
            began = figures()[0]
            wait_for(lambda: figures()[0] > began + timedelta(seconds=1), "polls go on")
            worker.drain()  # it polls no more, and lives on until it is stopped
            worker.claimer.join(timeout=5)
            last = figures()[1]
            wait_for(lambda: figures()[1] > last + timedelta(seconds=1), "heartbeats go on")
            check, heartbeat = figures()
            assert check < heartbeat - timedelta(seconds=0.5)
        finally:
            worker.stop(grace=0)


def test_executions_of_all_jobs_page_newest_first(client: TestClient, app: Evenbeat) -> None:
    with Harness(app) as harness:
        for _ in range(3):
            add(client, task="nothing")
        harness.drain()
        harness.skip("1h")
        add(client, task="fails")
        harness.drain()
        place = "/api/v1/executions"
        first = client.get(place, params={"limit": 2}).json()
        assert (first["total"], first["total_is_estimate"]) == (3, True)
        assert first["executions"][0]["status"] == "failed"
        last = client.get(place, params={"limit": 2, "offset": 3}).json()
        assert (last["total"], last["total_is_estimate"], len(last["executions"])) == (4, False, 1)
        assert client.get(place, params={"status": "failed"}).json()["total"] == 1
        since = harness.clock.now().isoformat()
        assert len(client.get(place, params={"since": since}).json()["executions"]) == 1


def test_what_does_not_exist_and_what_is_not_allowed(client: TestClient) -> None:
    nobody = uuid4()
    for place in (f"{JOBS}/{nobody}/executions", f"{JOBS}/{nobody}/stats",
                  f"/api/v1/executions/{nobody}", f"{JOBS}/{nobody}/explain"):  # fmt: skip
        assert client.get(place).status_code == 404, place
    for query in ({"status": "asleep"}, {"limit": 0}, {"offset": -1}, {"since": "now"},
                  {"colour": "red"}):  # fmt: skip
        assert client.get("/api/v1/executions", params=query).status_code == 422, query
    assert client.get("/api/v1/executions/first").status_code == 404
    retried = client.post("/api/v1/executions/retry", json={"ids": [str(nobody)]})
    paths = client.get("/openapi.json").json()["paths"]
    assert retried.status_code == 404
    assert "404" in paths["/api/v1/executions/retry"]["post"]["responses"]
    for verb in ("cancel", "retry"):
        asked = client.get(f"/api/v1/executions/{verb}")
        assert (asked.status_code, asked.headers["allow"]) == (405, "POST")


def test_a_running_job_is_cancelled_and_its_run_ends(client: TestClient, worker: Worker) -> None:
    job_id = add(client, task="waits")
    wait_for(lambda: client.get(f"{JOBS}/{job_id}").json()["status"] == "running")
    running = client.get(f"{JOBS}/{job_id}/executions").json()["executions"][0]
    assert running["status"] == "running"
    assert client.get(f"{JOBS}/{job_id}/explain").json()["facts"][0]["code"] == "running"
    assert client.post(f"{JOBS}/{job_id}/cancel").json()["status"] == "cancelled"
    ended = client.get(f"/api/v1/executions/{running['id']}").json()
    assert (ended["status"], ended["error_code"]) == ("cancelled", "cancelled")
    wait_for(lambda: worker.running == 0)


def test_a_job_is_answered_as_it_was_added(client: TestClient, worker: Worker) -> None:
    for _ in range(20):
        answer = client.post(JOBS, json={"task": "nothing"}).json()
        assert (answer["status"], answer["run_count"]) == ("pending", 0)
    ended = {"status": "completed", "limit": 1}
    wait_for(lambda: client.get(JOBS, params=ended).json()["total"] == 20)


def test_queues_workers_and_tasks(client: TestClient, worker: Worker) -> None:
    tasks = {task["name"]: task for task in client.get("/api/v1/tasks").json()["tasks"]}
    ours = {"send_email", "fails", "waits", "crawl", "nothing"}
    assert tasks.keys() == ours | {"evenbeat:webhook"}  # every worker delivers webhooks
    mail = tasks["send_email"]
    assert (mail["queue"], mail["runner"], mail["doc"]) == ("mail", "async", "Send a mail.")
    assert mail["schema"]["required"] == ["to"]

    paused = client.post("/api/v1/queues/a%2Fb c/pause").json()
    assert paused["name"] == "a/b c"
    assert paused["paused_at"] is not None
    job_id = add(client, task="nothing", queue="a/b c")
    queues = client.get("/api/v1/queues").json()["queues"]
    assert [(queue["name"], queue["due"]) for queue in queues] == [("a/b c", 1)]
    assert client.get(f"{JOBS}/{job_id}/explain").json()["facts"][0]["code"] == "queue_paused"
    assert client.post("/api/v1/queues/a%2Fb c/resume").json()["paused_at"] is None
    wait_for(lambda: client.get(f"{JOBS}/{job_id}").json()["status"] == "completed")
    assert client.post("/api/v1/queues/%20/pause").status_code == 422

    (known,) = client.get("/api/v1/workers").json()["workers"]
    assert (known["status"], known["alive"]) == ("active", True)
    drained = client.post(f"/api/v1/workers/{known['id']}/drain").json()
    assert drained["status"] == "draining"
    assert client.post(f"/api/v1/workers/{uuid4()}/drain").status_code == 404


def test_the_doctor_over_http(client: TestClient) -> None:
    told = client.get("/api/v1/scheduler/doctor").json()
    by_code = {finding["code"]: finding for finding in told["findings"]}
    assert told["worst"] in ("warning", "error")
    assert any("worker" in code for code in by_code), by_code
    assert all({"severity", "title", "detail", "remedy"} <= one.keys() for one in told["findings"])


def test_runs_are_found_grouped_and_run_again(client: TestClient, app: Evenbeat) -> None:
    place = "/api/v1/executions"
    with Harness(app) as harness:
        bad = add(client, task="fails", name="the bad one")
        good = add(client, task="nothing")
        harness.drain()
        begun = harness.clock.now()
        failed = {"status": "failed", "task": "fails"}
        (run,) = client.get(place, params=failed).json()["executions"]
        assert (run["job_id"], run["job_name"], run["task"]) == (bad, "the bad one", "fails")
        (group,) = client.get(f"{place}/errors").json()["groups"]
        assert (group["task"], group["error_code"], group["runs"]) == (
            "fails", run["error_code"], 1,
        )  # fmt: skip
        assert (group["jobs"], group["newest"]) == (1, run["id"])
        for query, ids in (
            ({"search": "BAD ONE"}, [bad]), ({"error_code": run["error_code"]}, [bad]),
            ({"worker_id": run["worker_id"]}, [good, bad]), ({"job_id": good}, [good]),
            ({"until": (begun - timedelta(days=1)).isoformat()}, []), ({"tag": "none"}, []),
        ):  # fmt: skip
            listed = client.get(place, params=query).json()["executions"]
            assert sorted(one["job_id"] for one in listed) == sorted(ids), query
        page = client.get(place, params={"limit": 1}).json()
        rest = client.get(place, params={"before": page["further"]}).json()
        assert [one["id"] for one in rest["executions"]] != [page["executions"][0]["id"]]
        assert "further" not in rest

        harness.skip("1m")
        again = client.post(f"{place}/{run['id']}/retry")
        assert (again.status_code, again.json()["id"]) == (200, bad)
        harness.drain()
        harness.skip("1m")
        changed = client.post(f"{place}/retry", json={"filter": {"status": ["failed"]}}).json()
        assert changed == {"changed": 1, "refused": [], "refused_count": 0}  # two runs, one job
        harness.drain()
        assert client.get(f"{place}/errors").json()["groups"][0]["runs"] == 3
        changed = client.post(f"{place}/retry", json={"ids": [run["id"]]}).json()
        assert changed["changed"] == 1


@pytest.mark.parametrize("body", [{}, {"filter": {}}, {"ids": []}, {"filter": {"hue": "red"}}])
def test_a_selection_of_runs_must_say_which(client: TestClient, body: dict[str, object]) -> None:
    assert client.post("/api/v1/executions/retry", json=body).status_code == 422
