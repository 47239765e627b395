"""What GET answers can be sent back, and what is exported can be imported, as the same job."""

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from evenbeat import Evenbeat
from evenbeat.domain.schedule.slack import without_place
from evenbeat.importers.files import definition_of
from setting_values import settings_strategy

JOBS = "/api/v1/jobs"
HAPPENS = {"updated_at"}  # what writing itself changes
ELSEWHERE = {"id", "created_at", "updated_at", "placed_at", "next_run_at", "plan_time",
             "schedule_text"}  # fmt: skip

KINDS: dict[str, list[dict[str, Any]]] = {
    "once": [{}, {"run_at": "2040-01-01T00:00:00Z"}, {"delay": "5d"}],
    "interval": [{"schedule": "@every 90m"}, {"interval_minutes": 30}, {"interval_seconds": 77}],
    "cron": [
        {"schedule": "0 9 * * mon-fri", "timezone": "Europe/Berlin"},
        {"schedule": "@daily"},
        {"schedule": "0 1 * * * within 4h", "timezone": "Europe/Berlin"},
    ],
    "after": [{"after": "first"}, {"after": [{"job": "first", "on": "any"}]}],
}
schedules = st.sampled_from([fields for kind in KINDS.values() for fields in kind])
quickly = settings(
    max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)


def alone(**_: int) -> None: ...


@pytest.fixture
def first(client: TestClient, app: Evenbeat) -> None:
    """What other jobs may wait for; and a task that can have any setting."""
    app.task(alone, isolate=True)
    assert client.post(JOBS, json={"task": "nothing", "name": "first"}).status_code in (200, 201)


def add(client: TestClient, fields: dict[str, Any]) -> dict[str, Any]:
    payload = dict.fromkeys(fields.get("unique_by", ()), 1)
    response = client.post(JOBS, json={"task": "alone", "payload": payload} | fields)
    assert response.status_code == 201, response.text
    return client.get(f"{JOBS}/{response.json()['id']}").json()


def without(document: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in names}


def wherever_it_runs(document: dict[str, Any]) -> dict[str, Any]:
    """The document without what the load decides."""
    rest = without(document, ELSEWHERE)
    texts = ("schedule", "cron_expression", "schedule_time")
    return rest | {name: without_place(rest[name]) for name in texts if rest.get(name)}


@quickly
@given(settings_strategy(), schedules)
@pytest.mark.usefixtures("first")
def test_an_answer_can_be_sent_back_unchanged(
    client: TestClient, values: dict[str, Any], schedule: dict[str, Any]
) -> None:
    assume("after" not in schedule or "debounce" not in values)  # which is refused
    job = add(client, values | schedule)
    for method in ("PATCH", "PUT"):
        response = client.request(method, f"{JOBS}/{job['id']}", json=job)
        assert response.status_code == 200, response.text
        answered = client.get(f"{JOBS}/{job['id']}").json()
        assert without(answered, HAPPENS) == without(job, HAPPENS)
    client.delete(f"{JOBS}/{job['id']}")


@quickly
@given(settings_strategy(), schedules)
@pytest.mark.usefixtures("first")
def test_an_exported_job_is_imported_as_the_same(
    client: TestClient, values: dict[str, Any], schedule: dict[str, Any]
) -> None:
    for wait in ("schedule_delay", "debounce"):
        assume(not 0 < values.get(wait, 0) < 60)  # else it is due between the two
    assume("after" not in schedule or "debounce" not in values)  # which is refused
    job = add(client, values | schedule)
    definition = definition_of(job)
    client.delete(f"{JOBS}/{job['id']}")
    again = add(client, definition)
    assert wherever_it_runs(again) == wherever_it_runs(job)
    assert definition_of(again) == definition
    client.delete(f"{JOBS}/{again['id']}")


def test_a_field_that_cannot_be_changed_is_refused_alone(client: TestClient) -> None:
    job = add(client, {})
    for change in ({"status": "cancelled"}, {"run_count": 5}, {"prioritty": 5}):
        response = client.patch(f"{JOBS}/{job['id']}", json=change)
        assert response.status_code == 422, response.text
        assert response.json()["errors"][0]["field"] in change


def test_a_misspelt_field_is_refused_beside_the_id_too(client: TestClient) -> None:
    job = add(client, {})
    response = client.patch(f"{JOBS}/{job['id']}", json=job | {"prioritty": 5})
    assert response.status_code == 422, response.text
