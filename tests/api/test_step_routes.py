"""Steps and events over HTTP."""

import time
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import jwt
import pytest

from evenbeat import Context, Evenbeat
from evenbeat.api import event_links
from evenbeat.api.auth.signing import TokenKeys
from evenbeat.api.event_links import read_link, sign_link
from evenbeat.errors import InvalidInput, NotAuthenticated
from waiting import wait_for


@pytest.fixture
def job(app: Evenbeat) -> Iterator[str]:
    """A job that has done a step and waits for an event."""

    @app.task
    def buy(ctx: Context) -> object:
        ctx.step("charge", lambda: 5)
        return ctx.wait_event("approved", timeout="3d")

    other = app.worker()
    other.start()
    job = buy.enqueue()
    wait_for(lambda: len(job.steps()) == 2 and job.status() == "scheduled", "it waits")
    yield str(job.id)
    other.stop(grace=0)


def test_an_event_is_sent_to_who_waits_for_it(app: Evenbeat, client, job: str):
    path = f"/api/v1/jobs/{job}"
    steps = client.get(f"{path}/steps").json()["steps"]
    assert [(one["kind"], one["name"], one["result"]) for one in steps] == [
        ("step", "charge", 5),
        ("event", "approved", None),
    ]
    assert steps[0]["duration_ms"] >= 0
    assert steps[1]["completed_at"] is None
    facts = client.get(f"{path}/explain").json()["facts"]
    assert facts[0]["code"] == "waits_for_event"
    assert "put off" in str(facts)

    sent = client.post(f"{path}/events/approved", json={"payload": {"by": "ann"}})
    assert (sent.status_code, sent.json()) == (200, {"awaited": True})
    assert app.job(job).result(timeout=30) == {"by": "ann"}
    event = client.get(f"{path}/steps").json()["steps"][1]
    assert event["sent_by"] == "a operator"
    late = client.post(f"{path}/events/approved", json={})
    assert late.status_code == 409
    assert "is completed" in late.json()["detail"]


def test_what_cannot_be_sent_is_refused(client, client_for, job: str):
    path = f"/api/v1/jobs/{job}/events"
    assert client.post(f"{path}/approved", json={"payload": "x" * 70_000}).status_code == 413
    assert client.post(f"{path}/approved", json={"paylod": 1}).status_code == 422
    assert client.post(f"{path}/{'x' * 300}", json={}).status_code == 422
    assert client.post(f"{path}/a/link", json={"expires": "3000d"}).status_code == 422
    assert client.post(f"{path}/a/link", json={"payload": "x" * 3000}).status_code == 413
    assert client_for("viewer").post(f"{path}/approved", json={}).status_code == 403
    early = client.post(f"{path}/other", json={})
    assert early.json() == {"awaited": False}


def test_a_link_is_made_and_leads_to_the_page(app: Evenbeat, client, client_for, job: str):
    body = {"payload": {"ok": True}, "expires": "3d"}
    made = client.post(f"/api/v1/jobs/{job}/events/approved/link", json=body).json()
    assert made["url"].startswith("http://testserver/event?link=")
    link = parse_qs(urlsplit(made["url"]).query)["link"][0]
    read = read_link(app.settings, link)
    assert (str(read.job_id), read.name, read.payload) == (job, "approved", {"ok": True})
    # A link opens no other door, and a token is no link.
    nobody = client_for(None)
    assert (
        nobody.get("/api/v1/jobs", headers={"Authorization": f"Bearer {link}"}).status_code == 401
    )
    with pytest.raises(NotAuthenticated):
        read_link(app.settings, TokenKeys.load(app.settings).sign({"sub": job, "exp": 4e9}))
    claims = jwt.decode(link, options={"verify_signature": False}) | {"exp": time.time() - 60}
    with pytest.raises(NotAuthenticated, match="expired"):
        read_link(app.settings, event_links._keys(app.settings).sign(claims))
    entries = client_for("admin").get("/api/v1/audit").json()["entries"]
    assert (entries[0]["action"], entries[0]["ids"]) == ("job.event_link", [job])


def test_a_link_says_what_a_link_can(app: Evenbeat):
    for options in (
        {"name": ""},
        {"expires": "0s"},
        {"expires": "soon"},
        {"payload": float("nan")},
    ):
        values = {"name": "approved", "payload": None, "expires": "1d", **options}
        with pytest.raises(InvalidInput):
            sign_link(app.settings, UUID(int=1), **values)
