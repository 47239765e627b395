"""A request that is sent again is done once, however often and however close together."""

import threading
from datetime import timedelta
from typing import Any

from starlette.testclient import TestClient

from evenbeat import Evenbeat
from evenbeat.engine.maintenance import Retention
from evenbeat.testing import VirtualClock

JOBS = "/api/v1/jobs"


def test_the_same_key_and_request_get_the_same_answer(client: TestClient, app: Evenbeat) -> None:
    headers = {"Idempotency-Key": "order 1"}
    first = client.post(JOBS, json={"task": "nothing", "name": "a"}, headers=headers)
    again = client.post(JOBS, json={"name": "a", "task": "nothing"}, headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    assert again.content == first.content
    other = client.post(JOBS, json={"task": "nothing", "name": "b"}, headers=headers)
    assert other.status_code == 422
    assert other.json()["errors"][0]["field"] == "Idempotency-Key"
    assert client.get(JOBS).json()["total"] == 1


def test_keys_are_each_callers_own_and_last_a_day(
    client: TestClient, client_for: Any, app: Evenbeat
) -> None:
    app.clock = clock = VirtualClock()
    headers = {"Idempotency-Key": "k"}
    first = client.post(JOBS, json={"task": "nothing"}, headers=headers).json()
    foreign = client_for("admin").post(JOBS, json={"task": "nothing"}, headers=headers)
    assert foreign.status_code == 201
    assert foreign.json()["id"] != first["id"]
    clock.move_to(clock.now() + timedelta(hours=24))
    late = client.post(JOBS, json={"task": "nothing", "name": "new"}, headers=headers)
    assert late.status_code == 201
    clock.move_to(clock.now() + timedelta(seconds=1))
    Retention(app.store, clock, days=30, executions=100).run_once()
    with app.store.database.transaction() as connection:
        rows = connection.execute("SELECT principal FROM evenbeat.idempotency_keys").fetchall()
    assert rows == [("a operator",)]


def test_a_refused_request_leaves_its_key_free(client: TestClient) -> None:
    headers = {"Idempotency-Key": "k"}
    client.post(JOBS, json={"task": "nothing", "name": "taken"})
    refused_ = client.post(JOBS, json={"task": "nothing", "name": "taken"}, headers=headers)
    assert refused_.status_code == 409
    assert client.post(JOBS, json={"task": "nothing"}, headers=headers).status_code == 201


def test_a_key_is_printable_ascii(client: TestClient) -> None:
    for key in ("", "x" * 256, "\x01", "é"):
        headers = {"Idempotency-Key": key.encode("latin-1")}
        response = client.post(JOBS, json={"task": "nothing"}, headers=headers)
        assert response.status_code == 422, key


def test_identical_requests_at_once_make_one_job(client: TestClient) -> None:
    answers: list[tuple[int, str]] = []
    together = threading.Barrier(8)

    def ask() -> None:
        together.wait()
        headers = {"Idempotency-Key": "all at once"}
        response = client.post(JOBS, json={"task": "nothing"}, headers=headers)
        answers.append((response.status_code, response.json()["id"]))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(status for status, _ in answers) == [200] * 7 + [201]
    assert len({job_id for _, job_id in answers}) == 1
    assert client.get(JOBS).json()["total"] == 1


def test_many_keys_at_once_do_not_wait_for_each_other(client: TestClient) -> None:
    statuses: list[int] = []
    together = threading.Barrier(24)

    def ask(number: int) -> None:
        together.wait()
        headers = {"Idempotency-Key": f"key {number}"}
        body = {"task": "nothing", "interval_minutes": 30}
        statuses.append(client.post(JOBS, json=body, headers=headers).status_code)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [201] * 24
