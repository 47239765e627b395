"""The audit log: who changed what, when and from where, with before and after."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from starlette.testclient import TestClient

from evenbeat import Evenbeat
from evenbeat.api.auth.tokens import Access
from evenbeat.asgi import asgi
from evenbeat.cli import main
from evenbeat.crawl.child import CrawledPage
from evenbeat.crawl.documents import Documents, Lease
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.schedule import Interval
from evenbeat.engine.maintenance import Retention
from evenbeat.store.audit import ACTIONS
from evenbeat.testing import VirtualClock

from .conftest import ClientFor
from .test_routes import ROLES

EMAIL = {"task": "send_email", "payload": {"to": "ada@example.org"}}
HOOK = {"url": "https://receiver.example/geheim", "events": ["job.failed"]}
HOUR = timedelta(hours=1)
HOURLY = EMAIL | {"schedule": "@every 1h", "name": "news"}


@pytest.fixture
def admin(client_for: ClientFor) -> TestClient:
    return client_for("admin")


def entries(admin: TestClient, **query: Any) -> list[dict[str, Any]]:
    response = admin.get("/api/v1/audit", params=query)
    assert response.status_code == 200, response.text
    return response.json()["entries"]


def added(client: TestClient, **fields: Any) -> str:
    response = client.post("/api/v1/jobs", json=HOURLY | fields)
    assert response.status_code == 201, response.text
    return response.json()["id"]


def test_a_verb_says_who_did_what_from_where_and_what_was_before(client, admin):
    job = added(client)
    client.post(f"/api/v1/jobs/{job}/pause").raise_for_status()
    latest = entries(admin)[0]
    assert (latest["actor"], latest["role"], latest["via"]) == ("a operator", "operator", "api")
    assert latest["address"] == "testclient"
    assert (latest["action"], latest["ids"], latest["name"]) == ("job.pause", [job], "news")
    assert latest["before"] == {"status": "scheduled"}
    assert latest["after"] == {"status": "paused"}


def test_an_edit_shows_what_is_different_and_nothing_else(client, admin):
    job = added(client)
    body = {"priority": 70, "payload": {"to": "bob@example.org"}}
    client.patch(f"/api/v1/jobs/{job}", json=body).raise_for_status()
    latest = entries(admin, action="job.edit")[0]
    assert latest["before"] == {"priority": 0, "payload": {"to": "ada@example.org"}}
    assert latest["after"] == {"priority": 70, "payload": {"to": "bob@example.org"}}


def test_a_deleted_job_is_there_as_it_was(client, admin):
    job = added(client)
    client.delete(f"/api/v1/jobs/{job}").raise_for_status()
    latest = entries(admin)[0]
    assert (latest["action"], latest["after"]) == ("job.delete", None)
    assert latest["before"]["payload"] == {"to": "ada@example.org"}
    assert latest["before"]["schedule"] == "@every 1h"
    assert latest["before"]["created_by"] == "a operator"


def test_what_is_refused_leaves_no_entry(client, client_for, admin):
    job = added(client)
    before = entries(admin)
    assert client.post(f"/api/v1/jobs/{job}/resume").status_code == 409
    assert client_for("viewer").post(f"/api/v1/jobs/{job}/pause").status_code == 403
    assert client.patch(f"/api/v1/jobs/{job}", json={"priority": 1000}).status_code == 422
    assert entries(admin) == before


def test_many_jobs_are_one_entry_with_their_states(client, admin):
    jobs = [added(client, name=f"job {number}") for number in range(3)]
    client.post(f"/api/v1/jobs/{jobs[0]}/pause").raise_for_status()
    client.post("/api/v1/jobs/bulk/cancel", json={"ids": jobs}).raise_for_status()
    latest = entries(admin)[0]
    assert (latest["action"], latest["changed"], sorted(latest["ids"])) == (
        "job.cancel",
        3,
        sorted(jobs),
    )
    assert latest["before"] == {"status": {"paused": 1, "scheduled": 2}}
    assert latest["after"] == {"status": {"cancelled": 3}}


def test_jobs_that_a_filter_means_are_noted_too(client, admin):
    for number in range(3):
        added(client, name=f"job {number}")
    body = {"filter": {"task": ["send_email"]}}
    client.post("/api/v1/jobs/bulk/pause", json=body).raise_for_status()
    assert entries(admin, action="job.pause")[0]["changed"] == 3


def test_schedules_and_named_jobs_are_noted_when_they_are_added_and_others_are_not(client, admin):
    job = added(client)
    client.post("/api/v1/jobs", json=EMAIL).raise_for_status()
    bulk = {"jobs": [EMAIL, EMAIL, HOURLY | {"name": "other"}]}
    client.post("/api/v1/jobs/bulk", json=bulk).raise_for_status()
    latest, first = entries(admin, action="job.add")
    assert (first["ids"], first["after"]["schedule"]) == ([job], "@every 1h")
    assert (latest["name"], latest["changed"]) == ("other", 1)


def test_other_things_that_change_are_noted(client, admin):
    client.post("/api/v1/queues/mail/pause").raise_for_status()
    client.put("/api/v1/limits/customer-7", json={"concurrency_limit": 2}).raise_for_status()
    client.put("/api/v1/limits/customer-7", json={"concurrency_limit": 3}).raise_for_status()
    template = {"name": "mail", "body": {"task": "send_email"}, "parameters": {}}
    client.post("/api/v1/templates", json=template).raise_for_status()
    client.delete("/api/v1/templates/mail").raise_for_status()
    admin.post("/api/v1/tokens", json={"role": "viewer", "expires": "1h"}).raise_for_status()
    noted = entries(admin)
    assert [one["action"] for one in noted] == [
        "token.create",
        "template.delete",
        "template.save",
        "limit.set",
        "limit.set",
        "queue.pause",
    ]
    changed = next(one for one in noted if one["action"] == "limit.set")
    assert changed["before"]["max_running"] == 2
    assert changed["after"]["max_running"] == 3


def test_the_log_can_be_narrowed(client, admin):
    job, other = added(client), added(client, name="other")
    client.post(f"/api/v1/jobs/{job}/pause").raise_for_status()
    admin.post(f"/api/v1/jobs/{other}/pause").raise_for_status()
    assert [one["name"] for one in entries(admin, object_id=job)] == ["news", "news"]
    assert [one["name"] for one in entries(admin, actor="a admin")] == ["other"]
    assert [one["name"] for one in entries(admin, action="job.pause")] == ["other", "news"]
    assert len(entries(admin, action="job")) == 4
    assert entries(admin, action="queue") == []
    assert [one["name"] for one in entries(admin, search="OTH")] == ["other", "other"]
    assert entries(admin, until="2020-01-01T00:00:00Z") == []
    assert len(entries(admin, since="2020-01-01T00:00:00Z")) == 4
    assert len(entries(admin, limit=1)) == 1
    wrong = admin.get("/api/v1/audit", params={"action": "job.explode"})
    assert wrong.status_code == 422
    assert "job.pause" in wrong.json()["detail"]


def test_only_an_admin_may_read_it(client, client_for):
    assert client.get("/api/v1/audit").status_code == 403
    assert client_for("viewer").get("/api/v1/audit").status_code == 403
    assert client_for(None).get("/api/v1/audit").status_code == 401


def test_the_command_line_and_the_dashboard_are_told_apart(client, admin):
    job = added(client)
    agent = {"User-Agent": "evenbeat/1.0"}
    client.post(f"/api/v1/jobs/{job}/pause", headers=agent).raise_for_status()
    assert entries(admin)[0]["via"] == "command line"


def test_an_applications_own_code_leaves_no_entries(app: Evenbeat, admin):
    job = app.add(NewJob(JobSpec("nothing", schedule=Interval(HOUR)), name="own"))
    app.store.control.pause([job.id])
    assert entries(admin) == []


def test_a_change_and_its_entry_are_one_transaction(app: Evenbeat, client, admin, monkeypatch):
    job = added(client)

    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("no entry")

    monkeypatch.setattr(app.store.control._audit, "add", fails)
    assert client.post(f"/api/v1/jobs/{job}/pause").status_code == 500
    assert client.get(f"/api/v1/jobs/{job}").json()["status"] == "scheduled"


def test_old_entries_go(app: Evenbeat, client, admin):
    added(client)
    with app.store.database.transaction() as connection:
        connection.execute(
            "UPDATE evenbeat.audit_entries SET created_at = now() - interval '400 days'"
        )
    added(client, name="fresh")
    Retention(app.store, VirtualClock(datetime.now(UTC)), days=30, executions=100).run_once()
    assert [one["name"] for one in entries(admin)] == ["fresh"]


NOTED = {
    "POST /api/v1/jobs": "job.add",
    "PATCH /api/v1/jobs/{job_id}": "job.edit",
    "PUT /api/v1/jobs/{job_id}": "job.edit",
    "DELETE /api/v1/jobs/{job_id}": "job.delete",
    "POST /api/v1/jobs/{job_id}/pause": "job.pause",
    "POST /api/v1/jobs/{job_id}/resume": "job.resume",
    "POST /api/v1/jobs/{job_id}/cancel": "job.cancel",
    "POST /api/v1/jobs/{job_id}/retry": "job.retry",
    "POST /api/v1/jobs/{job_id}/run": "job.run",
    "POST /api/v1/jobs/{job_id}/backfill": "job.backfill",
    "POST /api/v1/executions/{execution_id}/cancel": "execution.cancel",
    "POST /api/v1/executions/cancel": "execution.cancel",
    "POST /api/v1/executions/retry": "job.run",
    "POST /api/v1/executions/{execution_id}/retry": "job.run",
    "POST /api/v1/batches/{batch_id}/close": "batch.close",
    "POST /api/v1/batches/{batch_id}/{verb}": "batch.cancel",
    "PUT /api/v1/pause": "fleet.pause",
    "DELETE /api/v1/pause": "fleet.resume",
    "POST /api/v1/templates": "template.save",
    "PUT /api/v1/templates/{name}": "template.save",
    "DELETE /api/v1/templates/{name}": "template.delete",
    "POST /api/v1/templates/{name}/jobs": "job.add",
    "POST /api/v1/jobs/bulk": "job.add",
    "POST /api/v1/jobs/bulk/delete": "job.delete",
    "POST /api/v1/jobs/bulk/{verb}": "job.cancel",
    "DELETE /api/v1/documents/{document_id}": "document.delete",
    "POST /api/v1/queues/{name}/pause": "queue.pause",
    "POST /api/v1/queues/{name}/resume": "queue.resume",
    "PUT /api/v1/limits/{key}": "limit.set",
    "DELETE /api/v1/limits/{key}": "limit.reset",
    "POST /api/v1/workers/{worker_id}/drain": "worker.drain",
    "POST /api/v1/jobs/{job_id}/events/{name}": "job.event",
    "POST /api/v1/jobs/{job_id}/events/{name}/link": "job.event_link",
    "POST /api/v1/scheduler/rebalance": "rebalance.apply",
    "POST /api/v1/scheduler/rebalance/{rebalance_id}/undo": "rebalance.undo",
    "POST /api/v1/webhooks": "webhook.add",
    "PATCH /api/v1/webhooks/{webhook_id}": "webhook.edit",
    "DELETE /api/v1/webhooks/{webhook_id}": "webhook.delete",
    "POST /api/v1/webhooks/{webhook_id}/rotate": "webhook.rotate",
    "POST /api/v1/webhooks/{webhook_id}/test": "webhook.test",
    "POST /api/v1/webhooks/{webhook_id}/redeliver": "webhook.redeliver",
    "POST /api/v1/webhook-messages/{message_id}/redeliver": "webhook.redeliver",
    "PUT /api/admin/jobs/bulk/status": "job.pause",
    "POST /api/admin/jobs/bulk/retry": "job.retry",
    "PUT /api/admin/jobs/{job_id}/status": "job.pause",
    "PUT /api/admin/jobs/{job_id}/priority": "job.edit",
    "POST /api/admin/jobs/{job_id}/boost": "job.edit",
    "POST /api/admin/jobs/{job_id}/retry": "job.retry",
    "POST /api/admin/scheduled-jobs": "job.add",
    "PUT /api/admin/scheduled-jobs/{job_id}": "job.edit",
    "DELETE /api/admin/scheduled-jobs/{job_id}": "job.delete",
    "POST /api/admin/scheduled-jobs/{job_id}/toggle": "job.pause",
    "POST /api/v1/tokens": "token.create",
    "DELETE /api/v1/tokens/{token_id}": "token.revoke",
}
"""What each route that changes something leaves in the log."""


def test_every_route_that_changes_something_is_here():
    """Who adds one says what it leaves in the log, and has a test of it below or above."""
    changing = {
        route
        for route, role in ROLES.items()
        if role in ("operator", "admin") and not route.startswith("GET ")
    }
    assert changing == NOTED.keys()
    others = {"job.undo"} | {f"batch.{verb}" for verb in ("pause", "resume", "retry")}
    assert set(NOTED.values()) | others == set(ACTIONS)  # the dashboard alone offers to undo


@pytest.mark.parametrize("verb", ["pause", "resume", "cancel", "retry", "run"])
def test_each_verb_on_one_job(client, admin, verb):
    job = added(client, paused=verb == "resume")
    if verb == "retry":
        client.post(f"/api/v1/jobs/{job}/cancel").raise_for_status()
    client.post(f"/api/v1/jobs/{job}/{verb}").raise_for_status()
    latest = entries(admin)[0]
    assert (latest["action"], latest["ids"]) == (f"job.{verb}", [job])
    assert latest["before"]["status"] != latest["after"]["status"]


def test_the_rest_that_operators_change(app: Evenbeat, client, admin):
    worker = app.worker()
    worker.start()
    try:
        workers = client.get("/api/v1/workers").json()["workers"]
        client.post(f"/api/v1/workers/{workers[0]['id']}/drain").raise_for_status()
    finally:
        worker.stop(grace=0)
    client.post("/api/v1/queues/mail/pause").raise_for_status()
    client.post("/api/v1/queues/mail/resume").raise_for_status()
    client.put("/api/v1/limits/k", json={"rate_limit": "5/s"}).raise_for_status()
    client.delete("/api/v1/limits/k").raise_for_status()
    done = client.post("/api/v1/scheduler/rebalance").json()
    client.post(f"/api/v1/scheduler/rebalance/{done['id']}/undo").raise_for_status()
    job = added(client, schedule="*/5 * * * *")
    day = {"from": "2025-01-01T00:00:00Z", "to": "2025-01-01T01:00:00Z"}
    client.post(f"/api/v1/jobs/{job}/backfill", json=day).raise_for_status()
    token = admin.post("/api/v1/tokens", json={"role": "viewer", "expires": "1h"}).json()
    admin.delete(f"/api/v1/tokens/{token['id']}").raise_for_status()
    assert [one["action"] for one in reversed(entries(admin))] == [
        "worker.drain",
        "queue.pause",
        "queue.resume",
        "limit.set",
        "limit.reset",
        "rebalance.apply",
        "rebalance.undo",
        "job.add",
        "job.backfill",
        "token.create",
        "token.revoke",
    ]


@pytest.mark.parametrize("verb", ["pause", "resume", "retry", "cancel"])
def test_each_verb_on_a_batch_is_noted_beside_what_becomes_of_its_jobs(app, client, admin, verb):
    task = app.task_named("nothing")
    batch = app.batch([task.job(), task.job()], name="newsletter")
    for earlier in {"resume": ["pause"], "retry": ["cancel"]}.get(verb, []):
        client.post(f"/api/v1/batches/{batch.id}/{earlier}").raise_for_status()
    client.post(f"/api/v1/batches/{batch.id}/{verb}").raise_for_status()
    of_jobs, of_batch = entries(admin)[:2]
    assert (of_batch["action"], of_batch["ids"]) == (f"batch.{verb}", [str(batch.id)])
    assert (of_batch["name"], of_batch["actor"]) == ("newsletter", "a operator")
    assert (of_jobs["action"], of_jobs["changed"]) == (f"job.{verb}", 2)


def test_closing_a_batch_is_noted(app, client, admin):
    batch = app.open_batch(name="newsletter")
    client.post(f"/api/v1/batches/{batch.id}/close").raise_for_status()
    assert entries(admin)[0]["action"] == "batch.close"
    unknown = client.post(f"/api/v1/batches/{UUID(int=1)}/close")
    assert unknown.status_code == 404


def test_taking_back_in_the_dashboard(app: Evenbeat, access: Access, client, admin, token_for):
    job = added(client)
    headers = {"Authorization": f"Bearer {token_for('operator')}"}
    pages = TestClient(asgi(app, access=access), headers=headers, follow_redirects=False)
    form = {"only": f"pause:{job}"}
    assert pages.post("/jobs/actions", data=form).status_code == 303
    (undo,) = app.store.database.query("undos", "SELECT id FROM evenbeat.undos", {})[0]
    assert pages.post(f"/undo/{undo}", data={"next": "/jobs"}).status_code == 303
    noted = [(one["action"], one["via"], one["ids"]) for one in entries(admin)[:2]]
    assert noted == [("job.undo", "dashboard", [job]), ("job.pause", "dashboard", [job])]


def test_what_is_done_with_webhooks(client, admin):
    webhook = admin.post("/api/v1/webhooks", json=HOOK).json()
    path = f"/api/v1/webhooks/{webhook['id']}"
    admin.patch(path, json={"description": "for ops"}).raise_for_status()
    message = client.post(f"{path}/test").json()
    since = {"since": "2025-01-01T00:00:00Z"}
    client.post(f"{path}/redeliver", json=since).raise_for_status()
    client.post(f"/api/v1/webhook-messages/{message['id']}/redeliver").raise_for_status()
    admin.post(f"{path}/rotate").raise_for_status()
    admin.delete(path).raise_for_status()
    noted = list(reversed(entries(admin)))
    assert [one["action"].removeprefix("webhook.") for one in noted] == [
        "add",
        "edit",
        "test",
        "redeliver",
        "redeliver",
        "rotate",
        "delete",
    ]
    assert (noted[1]["before"], noted[1]["after"]) == (
        {"description": ""},
        {"description": "for ops"},
    )
    assert {one["name"] for one in noted if one["name"]} == {"receiver.example"}
    text = admin.get("/api/v1/audit").text
    assert "geheim" not in text
    assert "whsec" not in text


def test_the_words_of_the_admin_api_are_noted_as_the_same_verbs(client, admin):
    job = added(client)
    for method, path, body in (
        ("PUT", f"jobs/{job}/status", {"status": "paused"}),
        ("PUT", f"jobs/{job}/priority", {"priority": 50}),
        ("POST", f"jobs/{job}/boost", {"boost": 10}),
        ("POST", f"scheduled-jobs/{job}/toggle", {"enabled": True}),
    ):
        response = admin.request(method, f"/api/admin/{path}", json=body)
        assert response.status_code < 300, response.text
    noted = [one["action"] for one in reversed(entries(admin))]
    assert noted == ["job.add", "job.pause", "job.edit", "job.edit", "job.resume"]


def test_a_removed_page_of_a_crawl_is_noted(app: Evenbeat, client_for: ClientFor, admin):
    store = app.store
    store.add(NewJob(JobSpec("crawl"), {"url": "https://a.b"}))
    (job,) = store.claim(UUID(int=1), 1)
    assert job.lock_token is not None
    lease, documents = Lease(job.id, job.lock_token), Documents(store.database)
    documents.begin(lease, "news", "https://a.b", "News")
    documents.save(lease, "news", [CrawledPage("a.b/1", "https://a.b/1", "One", "Text.", 1)])
    listed = client_for("viewer").get("/api/v1/documents", params={"q": "text"})
    (document,) = listed.json()["documents"]
    admin.delete(f"/api/v1/documents/{document['id']}").raise_for_status()
    assert entries(admin)[0]["ids"] == [document["id"]]


def test_every_action_is_documented():
    text = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    assert [action for action in ACTIONS if f"`{action}`" not in text] == []


def test_the_command_shows_what_the_log_has(
    database_url: str, client, capsys: pytest.CaptureFixture[str], monkeypatch
):
    job = added(client)
    monkeypatch.setenv("EVENBEAT_DATABASE_URL", database_url)
    monkeypatch.setenv("COLUMNS", "80")
    bulk = {"jobs": [HOURLY | {"name": f"job {n}"} for n in range(2)]}
    client.post("/api/v1/jobs/bulk", json=bulk).raise_for_status()
    for arguments in (["job", "pause", "news"], ["audit", "--job", "news", "--json"], ["audit"]):
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 0
        if "--json" in arguments:
            latest = json.loads(capsys.readouterr().out)["entries"][0]
            assert (latest["via"], latest["action"]) == ("command line", "job.pause")
            assert latest["ids"] == [job]
    shown = capsys.readouterr().out
    assert "job.pause" in shown
    assert "news" in shown
    assert "2 jobs" in shown
