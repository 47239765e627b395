"""What a run has logged, over HTTP."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from evenbeat import Context, Evenbeat
from evenbeat.testing import Harness


@pytest.fixture
def run(app: Evenbeat) -> Iterator[str]:
    """A run that has logged five lines."""

    @app.task
    async def talk(ctx: Context) -> None:
        for n in range(5):
            ctx.logger.info("line %d", n)

    with Harness(app) as harness:
        job = talk.enqueue()
        harness.drain()
        yield str(harness.executions(job)[0].id)


def log(client: Any, run: str, **query: int) -> dict[str, Any]:
    response = client.get(f"/api/v1/executions/{run}/log", params=query)
    assert response.status_code == 200, response.text
    return response.json()


def test_a_log_is_read_by_pages_and_followed_by_a_cursor(client, run):
    whole = log(client, run)
    assert [(one["number"], one["text"]) for one in whole["lines"]] == [
        (n + 1, f"line {n}") for n in range(5)
    ]
    first = whole["lines"][0]
    assert (first["level"], first["logger"]) == ("INFO", "evenbeat.task.talk")
    rest = {name: whole[name] for name in whole if name != "lines"}
    assert rest == {"left_out": 0, "after": 5, "has_more": False, "status": "completed"}
    page = log(client, run, limit=2)
    assert (len(page["lines"]), page["after"], page["has_more"]) == (2, 2, True)
    page = log(client, run, limit=3, after=2)
    assert page["lines"] == whole["lines"][2:]
    assert (page["after"], page["has_more"]) == (5, False)
    assert log(client, run, after=5)["lines"] == []


def test_viewers_read_logs_and_others_do_not(client_for, run):
    path = f"/api/v1/executions/{run}/log"
    assert client_for("viewer").get(path).status_code == 200
    assert client_for(None).get(path).status_code == 401


def test_what_makes_no_sense_is_refused(client, run):
    path = f"/api/v1/executions/{run}/log"
    for query in ("after=-1", "after=99999999999", "limit=0", "limit=5000", "befor=1"):
        assert client.get(f"{path}?{query}").status_code == 422, query
    assert client.get(f"/api/v1/executions/{uuid4()}/log").status_code == 404
