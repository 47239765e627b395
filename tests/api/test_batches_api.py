"""Batches over HTTP: how far they are, and the verbs over a whole one."""

from uuid import uuid4

import pytest
from starlette.testclient import TestClient

from evenbeat import Evenbeat
from evenbeat.batch import Batch


def made(app: Evenbeat, count: int = 3, **options: object) -> Batch:
    task = app.task_named("nothing")
    return app.batch([task.job() for _ in range(count)], then=task, **options)  # type: ignore[arg-type]


def test_a_batch_shows_how_far_it_is(app: Evenbeat, client: TestClient) -> None:
    batch = made(app, name="nightly")
    answer = client.get(f"/api/v1/batches/{batch.id}").json()
    assert answer["name"] == "nightly"
    assert answer["status"] == "running"
    assert answer["counts"]["pending"] == answer["counts"]["total"] == 3
    assert batch.callback is not None
    assert answer["callback_id"] == str(batch.callback.id)
    assert client.get(f"/api/v1/batches/{uuid4()}").status_code == 404


def test_batches_are_listed_by_name_and_state(app: Evenbeat, client: TestClient) -> None:
    first, second = made(app, name="a"), made(app, name="b")
    second.cancel()

    def ids(**query: str) -> list[str]:
        page = client.get("/api/v1/batches", params=query).json()
        assert page["total"] == len(page["batches"])
        return [one["id"] for one in page["batches"]]

    assert ids() == [str(second.id), str(first.id)]
    assert ids(name="a") == [str(first.id)]
    assert ids(status="cancelled,failed") == [str(second.id)]
    assert client.get("/api/v1/batches", params={"status": "over"}).status_code == 422


def test_its_jobs_are_listed_and_chosen_by_the_batch(app: Evenbeat, client: TestClient) -> None:
    batch, _ = made(app), made(app)
    page = client.get("/api/v1/jobs", params={"batch": str(batch.id)}).json()
    assert [job["batch_id"] for job in page["jobs"]] == [str(batch.id)] * 3
    body = {"filter": {"batch": str(batch.id)}}
    assert client.post("/api/v1/jobs/bulk/pause", json=body).json()["changed"] == 3


@pytest.mark.parametrize(
    ("verb", "changed", "state"), [("pause", 3, "paused"), ("cancel", 4, "cancelled")]
)
def test_a_verb_over_a_whole_batch(
    app: Evenbeat, client: TestClient, verb: str, changed: int, state: str
) -> None:
    batch = made(app)
    answer = client.post(f"/api/v1/batches/{batch.id}/{verb}")
    assert (answer.status_code, answer.json()["changed"]) == (200, changed)
    assert getattr(batch.counts(), state) == 3
    assert client.post(f"/api/v1/batches/{batch.id}/shred").status_code == 422


def test_an_open_batch_is_closed(app: Evenbeat, client: TestClient) -> None:
    batch = app.open_batch()
    assert client.get(f"/api/v1/batches/{batch.id}").json()["status"] == "open"
    assert client.post(f"/api/v1/batches/{batch.id}/close").json()["status"] == "completed"


def test_what_waits_for_a_batch_says_so(app: Evenbeat, client: TestClient) -> None:
    batch = app.open_batch(name="import")
    job = app.task_named("nothing").options(after=batch).enqueue()
    path = f"/api/v1/jobs/{job.id}"
    document = client.get(path).json()
    (awaited,) = document["after"]
    assert (awaited["job"], awaited["name"], awaited["batch"]) == (str(batch.id), "import", True)
    assert awaited["status"] == "open"
    assert client.patch(path, json=document).status_code == 200
    assert "import" in str(client.get(f"{path}/explain").json()["facts"])
    batch.close()
    assert client.get(path).json()["after"][0]["satisfied"]
