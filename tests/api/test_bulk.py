"""Many jobs at once: all or none when adding, each by its own state when changing."""

from typing import Any
from uuid import uuid4

from starlette.testclient import TestClient

JOBS = "/api/v1/jobs"
BULK = "/api/v1/jobs/bulk"


def add(client: TestClient, *jobs: dict[str, Any]) -> list[str]:
    response = client.post(BULK, json={"jobs": [{"task": "nothing"} | job for job in jobs]})
    assert response.status_code == 201, response.text
    return [job["id"] for job in response.json()["jobs"]]


def states(client: TestClient, ids: list[str]) -> list[str]:
    return [client.get(f"{JOBS}/{id_}").json()["status"] for id_ in ids]


def test_many_are_added_in_order(client: TestClient) -> None:
    jobs = [{"task": "nothing", "name": f"job {n}", "delay": "1h"} for n in range(300)]
    jobs += [{"task": "nowhere"}, {"task": "nowhere"}, {"task": "nothing", "name": "job 7"}]
    jobs += [{"task": "nothing", "paused": True}]
    answer = client.post(BULK, json={"jobs": jobs}).json()
    assert answer["created"] == 303
    assert [job["created"] for job in answer["jobs"]] == [True] * 302 + [False, True]
    assert answer["jobs"][302]["id"] == answer["jobs"][7]["id"]
    assert len(answer["warnings"]) == 1
    assert client.get(f"{JOBS}/{answer['jobs'][42]['id']}").json()["name"] == "job 42"
    assert states(client, [answer["jobs"][303]["id"]]) == ["paused"]


def test_one_wrong_job_keeps_all_out(client: TestClient) -> None:
    jobs = [{"task": "nothing"}, {"task": "send_email", "payload": {"too": "x"}}]
    response = client.post(BULK, json={"jobs": jobs})
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == "jobs.1.payload"
    response = client.post(BULK, json={"jobs": [{"task": "nothing"}, {"priority": 101}]})
    assert response.json()["errors"][0]["field"] == "jobs.1.priority"
    large = {"task": "nothing", "metadata": {"a": "x" * 270_000}}
    assert client.post(BULK, json={"jobs": [{"task": "nothing"}, large]}).status_code == 413
    huge = [{"task": "nothing", "metadata": {"a": "x" * 200_000}}] * 50
    assert client.post(BULK, json={"jobs": huge}).status_code == 413
    assert client.get(JOBS).json()["total"] == 0
    assert client.post(BULK, json={"jobs": []}).status_code == 422
    assert client.post(BULK, json={"jobs": [{"task": "nothing"}] * 1001}).status_code == 422


def test_a_bulk_request_can_be_sent_again(client: TestClient) -> None:
    body, headers = {"jobs": [{"task": "nothing"}] * 3}, {"Idempotency-Key": "k"}
    first = client.post(BULK, json=body, headers=headers)
    again = client.post(BULK, json=body, headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.content == first.content
    assert client.get(JOBS).json()["total"] == 3


def test_each_verb_changes_what_it_can_and_says_what_it_left(client: TestClient) -> None:
    ids = add(client, {"delay": "1h"}, {"schedule": "@daily"}, {"paused": True})

    def change(verb: str, *chosen: str) -> tuple[int, int]:
        answer = client.post(f"{BULK}/{verb}", json={"ids": list(chosen)}).json()
        assert answer["refused_count"] == len(answer["refused"])
        return answer["changed"], answer["refused_count"]

    assert change("pause", *ids, str(uuid4())) == (2, 2)
    assert states(client, ids) == ["paused"] * 3
    assert change("resume", *ids, ids[0]) == (3, 0)
    assert change("retry", *ids) == (0, 3)
    assert change("cancel", *ids) == (3, 0)
    assert change("retry", ids[0]) == (1, 0)
    assert change("run", ids[1], ids[2]) == (2, 0)
    assert states(client, ids) == ["pending"] * 3
    answer = client.post(f"{BULK}/retry", json={"ids": ids[:1]}).json()
    assert answer["refused"][0]["id"] == ids[0]
    assert "cannot be retried" in answer["refused"][0]["reason"]
    assert change("delete", *ids, str(uuid4())) == (3, 1)
    assert client.get(JOBS).json()["total"] == 0


def test_by_filter_in_chunks_that_need_no_more_room(client: TestClient) -> None:
    add(client, *[{"queue": "a", "delay": "1h"}] * 700, {"queue": "b", "delay": "1h"})
    answer = client.post(f"{BULK}/pause", json={"filter": {"queue": "a"}}).json()
    assert answer == {"changed": 700, "refused": [], "refused_count": 0}
    answer = client.post(
        f"{BULK}/pause", json={"filter": {"status": ["paused", "scheduled"], "task": "nothing"}}
    ).json()
    assert (answer["changed"], answer["refused_count"], len(answer["refused"])) == (1, 700, 100)


def test_deleting_by_filter_takes_an_admin(client: TestClient, client_for: Any) -> None:
    add(client, {"tags": ["old"]}, {})
    body = {"filter": {"tag": "old"}}
    assert client.post(f"{BULK}/delete", json=body).status_code == 403
    assert client_for("admin").post(f"{BULK}/delete", json=body).json()["changed"] == 1
    assert client.get(JOBS).json()["total"] == 1


def test_a_selection_that_is_none_is_refused(client_for: Any) -> None:
    client = client_for("admin")
    bodies: list[Any] = [
        {}, {"ids": []}, {"ids": ["x"]}, {"ids": [str(uuid4())] * 1001}, {"filter": {}},
        {"ids": [str(uuid4())], "filter": {"queue": "a"}}, {"filter": {"colour": "red"}},
        {"filter": {"status": "asleep"}}, {"filter": {"created_after": "2020-01-01"}}, [], None,
        {"filter": {"queue": "a\x00"}}, {"filter": {"is_paused": "true"}}, {"ids": [5]},
    ]  # fmt: skip
    for body in bodies:
        for verb in ("pause", "delete"):
            response = client.post(f"{BULK}/{verb}", json=body)
            assert response.status_code == 422, (body, response.text)
    assert client.post(f"{BULK}/explode", json={"ids": [str(uuid4())]}).status_code == 422


def test_many_jobs_may_be_larger_than_one(client: TestClient) -> None:
    jobs = [{"metadata": {"a": "x" * 200_000}}] * 10
    assert len(add(client, *jobs)) == 10
