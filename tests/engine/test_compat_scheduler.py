"""Handlers of (payload, job), registered as an older worker registers them."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from evenbeat import JobRecord
from evenbeat.compat.scheduler import Scheduler
from evenbeat.domain.job import NewJob
from evenbeat.errors import InvalidInput


def test_handlers_get_the_payload_and_the_job(evenbeat_harness):
    seen: list[tuple[str, dict[str, Any]]] = []

    def archive(payload: dict[str, Any], job: JobRecord) -> None:
        seen.append((job.task, payload))

    async def send_email(payload: dict[str, Any], job: JobRecord) -> dict[str, Any]:
        """Send a mail."""
        await asyncio.sleep(0)
        seen.append((job.task, payload))
        return {"sent": True, "to": payload["to"], "id": str(job.id)}

    class Count:
        async def __call__(self, payload: dict[str, Any], job: JobRecord) -> int:
            return len(payload) + job.priority

    scheduler = Scheduler(name="chronos", task_handlers={"archive": archive, "count": Count()})
    send = scheduler.register_handler("sendEmail", send_email, max_retries=1, queue="mail")
    completed = []
    scheduler.on("job:complete")(completed.append)
    harness = evenbeat_harness(scheduler)

    # Any name may be in a payload, even those that Python or a context have.
    mail = {"to": "a@b.c", "ctx": 1, "class": "x", "first-name": "Ada", "self": None, "args": []}
    added = scheduler.add(NewJob(send.spec, mail))
    harness.drain()
    job = scheduler.store.read.job(added.id)
    assert (job.status, job.queue, job.max_retries) == ("completed", "mail", 1)
    assert seen == [("sendEmail", mail)]
    assert completed[0].result == {"sent": True, "to": "a@b.c", "id": str(added.id)}
    assert scheduler.registry.get("sendEmail").description == "Send a mail."

    for task in ("archive", "count"):
        scheduler.add(NewJob(scheduler.registry.get(task).spec, {"a": 1, "b": 2}))
    harness.drain()
    assert ("archive", {"a": 1, "b": 2}) in seen
    assert 2 in [event.result for event in completed]


def test_a_handler_that_fails_is_retried_like_any_other(evenbeat_harness):
    tries = []

    def breaks(payload: dict[str, Any], job: JobRecord) -> None:
        tries.append(job.current_retry_count)
        raise OSError("no line")

    scheduler = Scheduler(name="chronos")
    task = scheduler.register_handler("breaks", breaks, max_retries=1)
    harness = evenbeat_harness(scheduler)
    added = scheduler.add(NewJob(task.spec))
    harness.advance("1h")
    assert tries == [0, 1]
    assert scheduler.store.read.job(added.id).error_message == "no line"


@pytest.mark.parametrize("handler", [lambda payload: payload, lambda: None, "sendEmail", None])
def test_what_cannot_be_called_so_is_refused_by_name(handler):
    with pytest.raises(InvalidInput, match=r"'sendEmail' must be a function of \(payload, job\)"):
        Scheduler(task_handlers={"sendEmail": handler})


def test_two_handlers_of_one_name_are_told_apart():
    def one(payload: dict[str, Any], job: JobRecord) -> None: ...
    def two(payload: dict[str, Any], job: JobRecord) -> None: ...

    scheduler = Scheduler(task_handlers={"same": one})
    with pytest.raises(InvalidInput, match=r"named 'same': .*\.one and .*\.two"):
        scheduler.register_handler("same", two)


def test_a_worker_with_such_handlers_loads_no_api():
    code = "import sys, evenbeat.compat.scheduler; sys.exit('fastapi' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
