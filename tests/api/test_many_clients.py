"""Many clients at once, while a worker runs what they add.

`benchmarks/http_create.py` has the sizes of a real day.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
from fastapi import FastAPI

from evenbeat import Evenbeat
from evenbeat.engine.worker import Worker
from evenbeat.store.runs import RunFilter
from loopback import served
from waiting import PATIENCE, wait_for

CLIENTS, EACH = 8, 40


def test_no_job_is_lost_and_none_runs_twice(
    api: FastAPI, app: Evenbeat, worker: Worker, token_for: Callable[[str], str]
) -> None:
    headers = {"Authorization": f"Bearer {token_for('operator')}"}
    with served(api) as url:

        def add_some(number: int) -> list[str]:
            with httpx.Client(base_url=url, headers=headers, timeout=PATIENCE) as client:
                wanted = [
                    {"task": "send_email", "payload": {"to": f"{number}-{n}"}} for n in range(EACH)
                ]
                answers = [client.post("/api/v1/jobs", json=one) for one in wanted]
            assert {answer.status_code for answer in answers} == {201}
            return [answer.json()["id"] for answer in answers]

        with ThreadPoolExecutor(CLIENTS) as clients:
            ids = {one for share in clients.map(add_some, range(CLIENTS)) for one in share}
        assert len(ids) == CLIENTS * EACH
        wait_for(lambda: app.store.read.counts_by_status() == {"completed": len(ids)}, "all runs")
        page = httpx.get(f"{url}/api/v1/jobs?limit=1000&status=completed", headers=headers).json()
    assert {job["id"] for job in page["jobs"]} == ids
    runs = [run.execution for run in app.store.runs.page(RunFilter(), 1000).runs]
    people = [run.result["to"] for run in runs if run.result]
    assert len(people) == len(set(people)) == len(ids)
