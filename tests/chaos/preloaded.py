"""A WSGI application that opens its database before gunicorn forks (`--preload`): it tells a job's
number by its id."""

import json
import os
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from evenbeat import Evenbeat

app = Evenbeat()


@app.task
def number(n: int) -> None: ...


JOBS = {str(number.enqueue(n).id): n for n in range(200)}
assert all(app.store.read.job(UUID(id_)) for id_ in JOBS)  # both pools are open


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """`/` lists the ids; `/ID` answers with the process, and the job as the database has it."""
    id_ = environ["PATH_INFO"].strip("/")
    body: Any = list(JOBS)
    if id_:
        job = app.store.read.job(UUID(id_))
        body = {"pid": os.getpid(), "id": str(job.id), "expected": JOBS[id_], **job.payload}
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(body).encode()]
