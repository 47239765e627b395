"""/healthz, /readyz and /metrics: who may ask, and what they hear."""

import asyncio
import re
from datetime import timedelta

import httpx
import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from evenbeat import Evenbeat
from evenbeat.api.app import create
from evenbeat.api.auth.tokens import Access, Role
from evenbeat.api.dependencies import COOKIE
from evenbeat.asgi import asgi
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.retry import RetryPolicy
from evenbeat.domain.schedule import Interval
from evenbeat.errors import DatabaseUnavailable
from loopback import SECRET
from proxy import read_only
from waiting import wait_for


def sample(text: str, name: str, **labels: str) -> float | None:
    found = (s for family in text_string_to_metric_families(text) for s in family.samples)
    return next((s.value for s in found if s.name == name and s.labels == labels), None)


def test_health_needs_no_token(client_for):
    anonymous = client_for(None)
    assert anonymous.get("/healthz").json() == {"status": "ok"}
    ready = anonymous.get("/readyz")
    assert ready.status_code == 200
    assert ready.json() == {"status": "ready", "checks": {"database": "ok", "schema": "ok"}}


def test_health_is_answered_while_the_openapi_document_is_rendered(api):
    answered = []

    async def ask(path):
        transport = httpx.ASGITransport(api)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answered.append((path, (await client.get(path)).status_code))

    async def ask_both():
        async with asyncio.TaskGroup() as requests:
            for path in ("/openapi.json", "/healthz"):
                requests.create_task(ask(path))

    asyncio.run(ask_both())
    assert answered == [("/healthz", 200), ("/openapi.json", 200)]


def test_metrics_need_a_viewer(client_for):
    refused = client_for(None).get("/metrics")
    assert refused.status_code == 401
    assert refused.headers["content-type"] == "application/problem+json"
    assert "WWW-Authenticate" in refused.headers
    assert "evenbeat_" not in refused.text
    bad = client_for(None).get("/metrics", headers={"Authorization": "Bearer x.y.z"})
    assert bad.status_code == 401
    for role in ("viewer", "operator", "admin"):
        answer = client_for(role).get("/metrics")
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert sample(answer.text, "evenbeat_database_up") == 1


def test_metrics_are_open_to_all_where_the_setting_says_so(database_url, access):
    with Evenbeat(database_url, metrics_public=True) as app:
        anonymous = TestClient(create(app, access=access))
        assert sample(anonymous.get("/metrics").text, "evenbeat_database_up") == 1


def test_open_metrics_are_had_by_asking(client_for):
    accept = {"Accept": "application/openmetrics-text; version=1.0.0, text/plain;q=0.5"}
    answer = client_for("viewer").get("/metrics", headers=accept)
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert answer.text.endswith("# EOF\n")


def test_what_ran_is_in_the_metrics(app, client_for, worker):
    before = client_for("viewer").get("/metrics").text
    counted = {"task": "fails", "outcome": "failed"}
    assert sample(before, "evenbeat_executions_total", **counted) == 0
    job = app.add(_job("fails"))
    wait_for(lambda: app.store.read.job(job.id).status == "failed")
    after = client_for("viewer").get("/metrics").text
    assert sample(after, "evenbeat_executions_total", **counted) == 1
    assert sample(after, "evenbeat_process_workers") == 1


def test_what_needs_a_person_is_in_the_metrics_and_the_findings(app, client_for, worker):
    client = client_for("viewer")
    calm = client.get("/api/v1/scheduler/doctor").json()["findings"]
    assert {"on_time", "tasks_are_well"} <= {finding["code"] for finding in calm}
    app.store.add_many([NewJob(JobSpec("elsewhere", priority=40))] * 1001)
    hourly = JobSpec("fails", schedule=Interval(timedelta(hours=1)), retry=RetryPolicy(0))
    flaky = app.add(NewJob(hourly, name="flaky")).id
    for _ in range(10):
        app.store.control.run_now([flaky])
        wait_for(lambda: app.store.read.job(flaky).status == "scheduled", "the run")
    app.store.upkeep.count_outcomes(now=app.store.clock() + timedelta(minutes=1))

    def scraped() -> str | None:  # what an earlier look found is shown for five seconds
        text = client.get("/metrics").text
        return text if sample(text, "evenbeat_unreliable_jobs", task="fails") == 1 else None

    text = wait_for(scraped, "the next count")
    assert sample(text, "evenbeat_due_priority_bucket", le="30.0") == 0
    assert sample(text, "evenbeat_due_priority_bucket", le="40.0") == 1001
    assert sample(text, "evenbeat_queue_due", queue="default") == 1001
    assert sample(text, "evenbeat_retry_ends_total", task="fails", outcome="failed") == 0
    findings = client.get("/api/v1/scheduler/doctor").json()["findings"]
    titles = {finding["code"]: finding["title"] for finding in findings}
    assert titles["queue_depth"] == "Long queue: 1,001 jobs due in 'default'"
    assert titles["failure_rate"] == "Failing: 100% of the runs of 'fails'"
    assert titles["success_rate"] == "Fewer than 80% of the runs succeed: 1 job of 'fails'"
    assert "tasks_are_well" not in titles


def test_a_worker_here_must_be_at_work(app: Evenbeat, access: Access):
    made = app.worker()
    client = TestClient(create(app, access=access, worker=made))

    def check() -> tuple[int, str]:
        answer = client.get("/readyz")
        return answer.status_code, answer.json()["checks"]["worker"]

    assert check() == (503, "The worker has not started, or has stopped.")
    made.start()
    try:
        assert check() == (200, "ok")
        made.claimer._checked_at -= 3600
        made.keeper.stop()  # or it would send its next heartbeat
        made.keeper.join(timeout=20)
        made.keeper._last_beat -= 3600
        wait_for(lambda: "claim" not in check()[1])  # it claims again by itself
        status, trouble = check()
        assert status == 503
        assert re.fullmatch(
            r"The worker has not been able to renew its leases for 36\d\d s\.", trouble
        )
        made.drain()
        assert check() == (503, "The worker drains: it takes no more jobs.")
    finally:
        made.stop(grace=0)
    assert check() == (503, "The worker has not started, or has stopped.")
    assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize(("change", "complaint"), [(1000, "upgrade"), (-1000, "migrate")])
def test_a_schema_of_another_version_is_not_ready(client_for, database_url, change, complaint):
    with psycopg.connect(database_url, autocommit=True) as connection:
        update = (
            "UPDATE evenbeat.migrations SET version = version + %s, oldest_code = oldest_code + %s"
        )
        connection.execute(update, (change, change))
        try:
            answer = client_for(None).get("/readyz")
        finally:
            connection.execute(update, (-change, -change))
    assert answer.status_code == 503
    assert answer.json()["status"] == "not ready"
    assert complaint in answer.json()["checks"]["schema"]


def test_without_a_database_it_is_not_ready_and_tells_no_secrets(database_url, access):
    with Evenbeat(database_url, metrics_public=True) as app:
        anonymous = TestClient(create(app, access=access))
        app.store.clock()
        app.store.database.rows("schema_version", {"known": 1})
        app.store.database.close()
        answer = anonymous.get("/readyz")
        assert answer.status_code == 503
        assert answer.json()["checks"] == {
            "database": "The database does not answer; the log says why."
        }
        assert anonymous.get("/healthz").status_code == 200
        scraped = anonymous.get("/metrics")
        assert scraped.status_code == 200
        assert sample(scraped.text, "evenbeat_database_up") == 0
        assert sample(scraped.text, "evenbeat_jobs", state="pending") is None
        assert sample(scraped.text, "evenbeat_leases_reaped_total") == 0


def test_they_answer_only_to_get(client_for):
    for path in ("/healthz", "/readyz", "/metrics"):
        assert client_for("admin").post(path).status_code == 405


def _job(task: str) -> NewJob:
    return NewJob(JobSpec(task, retry=RetryPolicy(max_retries=0)))


def test_an_outage_is_in_the_metrics_and_above_every_page(database_url, access):
    """With `any` server, pages can be read from one that takes no writes."""
    joiner = "&" if "?" in database_url else "?"
    url = f"{database_url}{joiner}target_session_attrs=any"
    app = Evenbeat(url, auth_secret=SECRET, database_timeout_seconds=1)
    banner = "takes no writes right now"
    with app, TestClient(asgi(app, access=access)) as client:
        token = access.issue(Role.ADMIN, timedelta(hours=1), subject="an admin").token
        client.cookies.set(COOKIE, token)

        def outage_seconds() -> float:
            headers = {"Authorization": f"Bearer {token}"}
            families = text_string_to_metric_families(client.get("/metrics", headers=headers).text)
            return next(
                family.samples[0].value
                for family in families
                if family.name == "evenbeat_database_outage_seconds"
            )

        assert banner not in client.get("/jobs").text
        assert outage_seconds() == 0
        with read_only(database_url):
            with pytest.raises(DatabaseUnavailable):
                app.store.add(NewJob(JobSpec("nothing")))
            page = client.get("/jobs")
            assert page.status_code == 200
            assert banner in page.text
            assert outage_seconds() > 0
        # Nobody writes, but whether writes are taken is looked at.
        wait_for(lambda: banner not in client.get("/jobs").text, "the banner goes")
        assert outage_seconds() == 0
