"""Webhooks over HTTP and on the command line: who may, what is shown, and what is refused."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from starlette.testclient import TestClient

from evenbeat import Evenbeat
from evenbeat.cli import main
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.webhooks import key_of, message_id

URL = "https://receiver.example/hooks/T0/secret?key=hidden"
NEW = {"url": URL, "events": ["job.completed", "job.failed"]}


@pytest.fixture
def admin(client_for: Callable[..., TestClient]) -> TestClient:
    return client_for("admin")


@pytest.fixture
def hook(admin: TestClient) -> dict[str, Any]:
    answer = admin.post("/api/v1/webhooks", json=NEW)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def test_an_endpoint_is_made_read_changed_and_deleted(admin: TestClient, app: Evenbeat) -> None:
    job_id = str(app.add(NewJob(JobSpec("nothing"))).id)
    made = admin.post("/api/v1/webhooks", json=NEW | {"job_id": job_id, "description": "one"})
    assert made.status_code == 201
    hook = made.json()
    assert len(key_of(hook.pop("secret"))) == 32
    assert (hook["url"], hook["job_id"], hook["enabled"]) == (URL, job_id, True)
    assert hook["created_by"] == "a admin"
    place = f"/api/v1/webhooks/{hook['id']}"
    assert admin.get(place).json() == hook
    assert admin.get("/api/v1/webhooks", params={"job_id": job_id}).json()["webhooks"] == [hook]
    assert admin.get("/api/v1/webhooks", params={"job_id": str(uuid4())}).json()["total"] == 0
    changed = admin.patch(place, json={"tags": ["money"], "enabled": False}).json()
    assert (changed["tags"], changed["enabled"], changed["events"]) == (
        ["money"], False, NEW["events"],
    )  # fmt: skip
    assert admin.patch(place, json={"tags": None}).json()["tags"] is None
    assert admin.delete(place).status_code == 204
    assert admin.get(place).status_code == 404


def test_only_admins_see_where_it_leads_and_nobody_sees_the_secret_again(
    admin: TestClient, client_for: Callable[..., TestClient], hook: dict[str, Any]
) -> None:
    place = f"/api/v1/webhooks/{hook['id']}"
    for role in ("viewer", "operator"):
        for found in (
            client_for(role).get(place).json(),
            client_for(role).get("/api/v1/webhooks").json()["webhooks"][0],
        ):
            assert found["url"] == "https://receiver.example/…"
    for answer in (
        admin.get(place),
        admin.get("/api/v1/webhooks"),
        admin.patch(place, json={"description": "x"}),
        admin.post(f"{place}/test"),
        admin.get(f"{place}/deliveries"),
    ):
        assert hook["secret"] not in answer.text
    rotated = admin.post(f"{place}/rotate").json()
    assert rotated["secret"] != hook["secret"]
    until = datetime.fromisoformat(rotated["old_secret_until"])
    assert timedelta(hours=23) < until - datetime.now(UTC) <= timedelta(hours=24)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "url"),
        ({"url": URL}, "events"),
        (NEW | {"events": []}, "events"),
        (NEW | {"events": ["job.exploded"]}, "events.0"),
        (NEW | {"events": "job.failed"}, "events"),
        (NEW | {"events": ["webhook.test"]}, "events.0"),
        (NEW | {"url": "not a url"}, "url"),
        (NEW | {"url": "ftp://receiver.example"}, "url"),
        (NEW | {"url": "https://u:p@receiver.example"}, "url"),
        (NEW | {"url": "http://127.0.0.1/hook"}, "url"),
        (NEW | {"url": "http://169.254.169.254/hook"}, "url"),
        (NEW | {"url": "http://2130706433/hook"}, "url"),
        (NEW | {"url": "http://[::ffff:10.0.0.1]/hook"}, "url"),
        (NEW | {"url": "http://localhost/hook"}, "url"),
        (NEW | {"url": "https://receiver.example/" + "x" * 3000}, "url"),
        (NEW | {"url": "https://receiver.example/\u0000"}, "url"),
        (NEW | {"job_id": "7"}, "job_id"),
        (NEW | {"job_id": str(uuid4())}, "job_id"),
        (NEW | {"tasks": [""]}, "tasks.0"),
        (NEW | {"tags": ["x"] * 101}, "tags"),
        (NEW | {"enabled": "yes"}, "enabled"),
        (NEW | {"description": "x" * 10_001}, "description"),
        (NEW | {"secret": "whsec_mine"}, "secret"),
        (NEW | {"events": ["balance.low"], "tasks": ["a"]}, "events"),
    ],
)
def test_what_makes_no_endpoint_is_refused_by_its_field(
    admin: TestClient, body: dict[str, Any], field: str
) -> None:
    answer = admin.post("/api/v1/webhooks", json=body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["field"] == field
    assert admin.get("/api/v1/webhooks").json()["total"] == 0


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"url": None}, "url"),
        ({"events": None}, "events"),
        ({"enabled": None}, "enabled"),
        ({"url": "http://10.0.0.1/"}, "url"),
        ({"job_id": str(uuid4())}, "job_id"),
        ({"events": ["balance.low"], "queues": ["a"]}, "events"),
    ],
)
def test_a_bad_change_changes_nothing(
    admin: TestClient, hook: dict[str, Any], change: dict[str, Any], field: str
) -> None:
    place = f"/api/v1/webhooks/{hook['id']}"
    answer = admin.patch(place, json=change)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["field"] == field
    assert admin.get(place).json()["updated_at"] == hook["updated_at"]


def test_messages_are_listed_looked_at_and_sent_again(
    client: TestClient, hook: dict[str, Any], app: Evenbeat
) -> None:
    place = f"/api/v1/webhooks/{hook['id']}"
    sent = client.post(f"{place}/test").json()
    assert (sent["event"], sent["state"], sent["attempts"]) == ("webhook.test", "pending", 0)
    assert client.get(f"{place}/deliveries").json() == {
        "deliveries": [sent], "total": 1, "total_is_estimate": False, "limit": 50, "offset": 0,
    }  # fmt: skip
    assert client.get(f"{place}/deliveries", params={"state": "failed"}).json()["total"] == 0
    whole = client.get(f"/api/v1/webhook-messages/{sent['id']}").json()
    assert whole["payload"]["type"] == "webhook.test"
    assert whole["payload"]["data"]["webhook"]["id"] == hook["id"]
    assert whole["deliveries"] == []
    again = client.post(f"/api/v1/webhook-messages/{sent['id']}/redeliver")
    assert again.json()["id"] == sent["id"]
    app.store.control.cancel([job.id for job in app.store.read.jobs().jobs])
    assert client.get(f"/api/v1/webhook-messages/{sent['id']}").json()["state"] == "failed"
    since = {"since": (datetime.now(UTC) - timedelta(hours=1)).isoformat()}
    assert client.post(f"{place}/redeliver", json=since).json() == {"redelivered": 1}
    assert client.post(f"{place}/redeliver", json=since).json() == {"redelivered": 0}


def test_bad_questions_get_clear_answers(client: TestClient, hook: dict[str, Any]) -> None:
    place = f"/api/v1/webhooks/{hook['id']}"
    nobody = uuid4()
    for path, status in (
        (f"{place}/deliveries?state=lost", 422),
        (f"{place}/deliveries?limit=0", 422),
        (f"{place}/deliveries?colour=red", 422),
        (f"/api/v1/webhooks/{nobody}/deliveries", 404),
        (f"/api/v1/webhook-messages/{message_id(nobody)}", 404),
        (f"/api/v1/webhook-messages/{'x' * 32}", 422),
        ("/api/v1/webhook-messages/msg_1", 422),
    ):
        answer = client.get(path)
        assert answer.status_code == status, (path, answer.text)
    assert client.post(f"{place}/redeliver", json={"since": "yesterday"}).status_code == 422
    assert client.post(f"{place}/redeliver", json={}).status_code == 422


def test_nothing_is_sent_to_a_disabled_endpoint(
    admin: TestClient, client: TestClient, hook: dict[str, Any]
) -> None:
    place = f"/api/v1/webhooks/{hook['id']}"
    admin.patch(place, json={"enabled": False})
    refused = client.post(f"{place}/test")
    assert refused.status_code == 409
    assert "disabled" in refused.json()["detail"]


# -- the command line ------------------------------------------------------------------------------


def test_deliveries_are_not_exported(
    app: Evenbeat,
    database_url: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Elsewhere there is no such message; here it is on its way already."""
    monkeypatch.setenv("EVENBEAT_DATABASE_URL", database_url)
    app.store.webhooks.test(app.store.webhooks.add(URL, ["job.failed"]).id)
    app.store.add(NewJob(JobSpec("report"), name="kept"))
    with pytest.raises(SystemExit):
        main(["export"])
    exported = capsys.readouterr().out
    assert "kept" in exported
    assert "webhook" not in exported


def test_the_command_line_does_the_same(
    database_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENBEAT_DATABASE_URL", database_url)
    monkeypatch.delenv("COLUMNS", raising=False)

    def run(*words: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["webhook", *words])
        out, err = capsys.readouterr()
        assert (ended.value.code or 0) == code, err
        return out if code == 0 else err

    assert run("list") == ""
    secret = run("add", URL, "--event", "job.failed", "--task", "a", "--description", "pager")
    assert len(key_of(secret.strip())) == 32
    (hook,) = json.loads(run("list", "--json"))["webhooks"]
    short = hook["id"][:18]
    assert "pager" in run("list")
    assert "tasks a" in run("show", short)
    assert secret not in run("show", short)
    assert key_of(run("rotate", short).strip()) != key_of(secret.strip())
    message = json.loads(run("test", short, "--json"))["id"]
    assert message in run("deliveries", short)
    assert "webhook.test" in run("message", message)
    assert run("deliveries", short, "--state", "failed") == ""
    assert message in run("redeliver", message)
    assert "0 messages" in run("redeliver", short, "--since", "2030-01-01T00:00:00Z")
    assert "disabled" in run("disable", short)
    assert "is disabled" in run("test", short, code=1)
    assert "enabled" in run("enable", short)
    assert "msg_" in run("redeliver", short, code=2)
    assert "no webhook" in run("show", "ffff", code=4)
    assert "job.completed" in run("add", URL, "--event", "job.done", code=2)
    assert "give --yes" in run("delete", short, code=1)
    assert hook["id"] in run("delete", short, "--yes")
    assert run("list") == ""
