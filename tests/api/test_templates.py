"""Templates over HTTP: keep, change, list, preview, use, and everything that is refused."""

from typing import Any

import pytest
from starlette.testclient import TestClient

PLACE = "/api/v1/templates"
JOBS = "/api/v1/jobs"

MAIL = {
    "name": "mail",
    "description": "A mail to somebody.",
    "parameters": {
        "to": {"type": "string", "pattern": ".+@.+", "description": "Whom."},
        "times": {"type": "integer", "default": 3, "min": 0, "max": 10},
        "city": {"enum": ["Rome", "Oslo"], "default": "Rome"},
    },
    "body": {
        "task": "send_email",
        "name": "mail-{{city}}",
        "payload": {"to": "{{to}}", "subject": "From {{city}}, {{times}} times"},
        "max_retries": "{{times}}",
        "schedule": "@daily",
        "tags": ["city:{{city}}"],
        "metadata": {"team": "post"},
    },
}


def keep(client: TestClient, **changes: Any) -> dict[str, Any]:
    response = client.post(PLACE, json=MAIL | changes)
    assert response.status_code == 201, response.text
    return response.json()


def test_a_template_is_kept_as_it_is(client: TestClient) -> None:
    kept = keep(client)
    assert (kept["name"], kept["version"], kept["body"]) == ("mail", 1, MAIL["body"])
    assert kept["parameters"]["to"]["required"] is True
    assert kept["parameters"]["times"] == {
        "type": "integer", "description": None, "default": 3, "required": False, "enum": None,
        "pattern": None, "min": 0, "max": 10,
    }  # fmt: skip
    assert client.get(f"{PLACE}/mail").json() == kept
    listed = client.get(PLACE).json()
    assert (listed["total"], listed["templates"]) == (1, [kept])
    assert client.get(PLACE, params={"search": "somebody"}).json()["total"] == 1
    assert client.get(PLACE, params={"search": "%"}).json()["total"] == 0


def test_a_job_is_made_from_it(client: TestClient) -> None:
    keep(client)
    response = client.post(f"{PLACE}/mail/jobs", json={"parameters": {"to": "a@b", "times": 1}})
    assert response.status_code == 201, response.text
    job = response.json()
    assert response.headers["Location"].endswith(job["id"])
    assert (job["name"], job["task"], job["max_retries"]) == ("mail-Rome", "send_email", 1)
    assert job["payload"] == {"to": "a@b", "subject": "From Rome, 1 times"}
    assert job["metadata"] == {
        "team": "post", "tags": ["city:Rome"], "template": "mail", "template_version": 1,
    }  # fmt: skip
    assert job["schedule"] == "@daily"
    taken = client.post(f"{PLACE}/mail/jobs", json={"parameters": {"to": "a@b"}})
    assert taken.status_code == 409


def test_the_same_request_twice_makes_one_job(client: TestClient) -> None:
    keep(client, body=MAIL["body"] | {"name": None})
    headers = {"Idempotency-Key": "once"}
    use = {"parameters": {"to": "a@b"}}
    first = client.post(f"{PLACE}/mail/jobs", json=use, headers=headers)
    client.put(f"{PLACE}/mail", json={"body": {"task": "nothing"}})
    again = client.post(f"{PLACE}/mail/jobs", json={"parameters": {}}, headers=headers)
    assert again.status_code == 422
    client.put(f"{PLACE}/mail", json={k: MAIL[k] for k in ("parameters", "body")})
    again = client.post(f"{PLACE}/mail/jobs", json=use, headers=headers)
    assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])
    assert client.get(JOBS).json()["total"] == 1


def test_a_preview_adds_nothing(client: TestClient) -> None:
    keep(client)
    told = client.post(f"{PLACE}/mail/preview", json={"parameters": {"to": "a@b"}}).json()
    assert told["job"]["payload"]["subject"] == "From Rome, 3 times"
    assert told["parameters"] == {"to": "a@b", "times": 3, "city": "Rome"}
    assert told["schedule_text"] == "daily at 00:00, UTC"
    assert client.get(JOBS).json()["total"] == 0
    assert client.post(JOBS, json=told["job"]).status_code == 201


def test_a_change_makes_a_new_version_and_leaves_jobs_alone(client: TestClient) -> None:
    keep(client)
    job = client.post(f"{PLACE}/mail/jobs", json={"parameters": {"to": "a@b"}}).json()
    same = {field: MAIL[field] for field in ("description", "parameters", "body")}
    assert client.put(f"{PLACE}/mail", json=same).json()["version"] == 1
    changed = client.put(f"{PLACE}/mail", json={"body": {"task": "nothing"}}).json()
    assert (changed["version"], changed["parameters"]) == (2, {})
    assert client.get(f"{JOBS}/{job['id']}").json()["task"] == "send_email"
    assert client.put(f"{PLACE}/new-one", json={"body": {"task": "nothing"}}).json()["version"] == 1
    assert client.delete(f"{PLACE}/mail").status_code == 204
    assert client.get(f"{PLACE}/mail").status_code == 404
    assert client.delete(f"{PLACE}/mail").status_code == 404
    assert client.get(f"{JOBS}/{job['id']}").status_code == 200


def test_a_name_is_taken_once(client: TestClient) -> None:
    keep(client)
    taken = client.post(PLACE, json=MAIL)
    assert taken.status_code == 409
    assert "exists already" in taken.json()["detail"]


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"name": "a/b"}, "name", "letters, digits, dots"),
        ({"name": ""}, "name", ""),
        ({"body": {"task": "x", "payload": {"to": "{{who}}"}}}, "body", "no parameter 'who'"),
        ({"body": {"task": "x"}}, "parameters.city", "stands nowhere in the body"),
        ({"body": {"tusk": "x", "a": "{{to}}{{times}}{{city}}"}}, "task", "needs a task"),
        ({"body": {"task": "x", "a": "{{to}}{{times}}{{city}}"}}, "body.a", "no such field"),
        (
            {"body": MAIL["body"] | {"schedule": "@daily", "timezone": "Mars"}},
            "body.timezone",
            "Mars",
        ),
        ({"body": MAIL["body"] | {"priority": 101}}, "body.priority", ""),
        ({"body": "no"}, "body", ""),
        ({"parameters": {"to": {"type": "date"}}}, "parameters.to", "type must be one of"),
        ({"parameters": {"to": {"pattern": "("}}}, "parameters.to", "no regular expression"),
        ({"parameters": {"to": {"nonsense": 1}}}, "parameters.to", ""),
        ({"parameters": [1]}, "parameters", ""),
        ({"surplus": 1}, "surplus", ""),
        ({"description": "\u0000"}, "description", ""),
    ],
)
def test_a_wrong_template_is_refused(
    client: TestClient, changes: dict[str, Any], field: str, words: str
) -> None:
    response = client.post(PLACE, json=MAIL | changes)
    assert response.status_code == 422, response.text
    assert words in response.text
    assert any(one["field"].startswith(field) for one in response.json()["errors"]), response.text
    assert client.get(PLACE).json()["total"] == 0


def test_with_defaults_for_all_the_whole_job_is_checked_when_it_is_kept(client: TestClient) -> None:
    body = {"task": "nothing", "schedule": "{{when}}"}
    wrong = {"name": "x", "parameters": {"when": {"default": "@sometimes"}}, "body": body}
    response = client.post(PLACE, json=wrong)
    assert response.status_code == 422
    assert "@sometimes" in response.text


@pytest.mark.parametrize(
    ("values", "field", "words"),
    [
        ({}, "parameters.to", "1 parameter must be given: to"),
        ({"to": "a@b", "cc": "c@d"}, "parameters.cc", "There is no parameter 'cc'"),
        ({"to": 7}, "parameters.to", "it must be a text"),
        ({"to": "nobody"}, "parameters.to", "must match"),
        ({"to": "a@b", "times": 11}, "parameters.times", "at most 10"),
        ({"to": "a@b", "city": "Bern"}, "parameters.city", "one of 'Rome', 'Oslo'"),
        ({"to": "a@\u0000b"}, "parameters", "U+0000"),
        ("x", "parameters", ""),
    ],
)
def test_wrong_values_are_refused(client: TestClient, values: Any, field: str, words: str) -> None:
    keep(client)
    for verb in ("preview", "jobs"):
        response = client.post(f"{PLACE}/mail/{verb}", json={"parameters": values})
        assert response.status_code == 422, response.text
        assert words in response.text
        assert any(one["field"].startswith(field) for one in response.json()["errors"])
    assert client.get(JOBS).json()["total"] == 0


def test_values_that_make_no_job_say_which_field(client: TestClient) -> None:
    body = {"task": "nothing", "window": "{{window}}"}
    kept = {"name": "x", "parameters": {"window": {}}, "body": body}
    assert client.post(PLACE, json=kept).status_code == 201
    response = client.post(f"{PLACE}/x/jobs", json={"parameters": {"window": "never"}})
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == "body.window"


def test_what_is_not_there(client: TestClient) -> None:
    for verb in ("preview", "jobs"):
        assert client.post(f"{PLACE}/nobody/{verb}", json={}).status_code == 404


def test_jobs_of_templates_can_wait_for_each_other(client: TestClient) -> None:
    body = {"task": "nothing", "name": "{{name}}", "after": ["{{before}}"], "after_on": "any"}
    kept = {"name": "step", "parameters": {"name": {}, "before": {}}, "body": body}
    assert client.post(PLACE, json=kept).status_code == 201
    client.post(JOBS, json={"task": "nothing", "name": "a", "delay": "1h"})
    values = {"parameters": {"name": "b", "before": "a"}}
    job = client.post(f"{PLACE}/step/jobs", json=values).json()
    assert job["schedule_text"] == "after a has ended"
