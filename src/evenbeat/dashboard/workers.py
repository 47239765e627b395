"""Screen 6, workers and queues: which workers are alive, what they run, and what is waiting."""

from collections import Counter, defaultdict
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from fastapi import Request, Response

from evenbeat.api.dependencies import Operator, Service, ServiceDep, Viewer
from evenbeat.dashboard import pages
from evenbeat.dashboard.forms import Form, FormDep, id_of
from evenbeat.dashboard.pages import Notice
from evenbeat.domain.job import Job
from evenbeat.domain.states import JobStatus
from evenbeat.errors import InvalidInput, NotFound
from evenbeat.store.filters import JobFilter
from evenbeat.store.reads import QueueDepth
from evenbeat.store.summaries import SILENT_AFTER
from evenbeat.store.upkeep import WorkerRecord

router = pages.router()

MOST_WORKERS = 100
_MOST_QUEUES = 200
_MOST_TASKS = 200
_MOST_RUNNING = 500
_JOBS_NAMED = 6


class WorkerRow(NamedTuple):
    """A worker with its state in a word, the jobs it runs, and how many these are."""

    worker: WorkerRecord
    state: str
    jobs: list[Job]
    running: int

    @property
    def name(self) -> str:
        """The worker as people call it."""
        return name_of(self.worker)

    @property
    def is_alive(self) -> bool:
        """Whether it has sent a heartbeat recently."""
        return self.state != "lost"


@router.get("/workers", name="workers")
def workers(request: Request, _viewer: Viewer, service: ServiceDep) -> Response:
    """Workers, queues and tasks."""
    read, now = service.app.store.read, pages.now_of(request)
    rows = _rows(service, now)
    alive = [row for row in rows if row.is_alive]
    # Workers that take from every queue count under the empty name.
    served = Counter(name for row in alive for name in row.worker.queues or ("",))
    tasks = read.tasks(now=service.now)
    depths = {queue.name: queue for queue in read.queues(now=service.now)}
    names = {count.queue for count in read.job_counts()[0]} | {task.queue for task in tasks}
    names |= {name for row in rows for name in row.worker.queues or ()}
    depths |= {name: QueueDepth(name, 0, 0, None, None) for name in names - depths.keys()}
    queues = sorted(depths.values(), key=lambda queue: (-queue.due, -queue.running, queue.name))
    oldest = [queue.oldest_due for queue in queues if queue.oldest_due is not None]
    return pages.render(
        request,
        "workers.html",
        now=now,
        rows=rows[:MOST_WORKERS],
        more=len(rows) - MOST_WORKERS,
        alive=len(alive),
        lost=len(rows) - len(alive),
        used=sum(row.running for row in alive),
        slots=sum(row.worker.concurrency for row in alive),
        queues=queues[:_MOST_QUEUES],
        due=sum(queue.due for queue in queues),
        oldest=min(oldest, default=None),
        jobs_named=_JOBS_NAMED,
        tasks=tasks[:_MOST_TASKS],
        served=served,
    )


def _rows(service: Service, now: datetime) -> list[WorkerRow]:
    """Every known worker, the live ones first."""
    only_running = JobFilter(statuses=[JobStatus.RUNNING])
    running = service.app.store.read.jobs(only_running, limit=_MOST_RUNNING).jobs
    jobs: defaultdict[UUID | None, list[Job]] = defaultdict(list)
    for job in running:
        jobs[job.locked_by].append(job)
    # With more jobs than were read, the last heartbeats tell how many each worker runs.
    complete = len(running) < _MOST_RUNNING
    rows = []
    for worker in service.app.store.upkeep.workers():
        own = jobs[worker.id]
        number = len(own) if complete else worker.running
        rows.append(WorkerRow(worker, state_of(worker, now), own, number))
    return sorted(rows, key=lambda row: (not row.is_alive, row.worker.host, row.worker.pid))


def name_of(worker: WorkerRecord) -> str:
    """Machine and process. What tells containers with one host name apart is left out."""
    return f"{worker.host.partition('/')[0]}:{worker.pid}"


def state_of(worker: WorkerRecord, now: datetime) -> str:
    """`active`, `draining`, or `lost` after a minute without a heartbeat."""
    if worker.heartbeat_at < now - SILENT_AFTER:
        return "lost"
    return "draining" if worker.status != "active" else "active"


# -- changes ---------------------------------------------------------------------------------------


@router.get("/workers/{worker_id}/drain", name="ask_to_drain")
def ask_to_drain(
    request: Request, worker_id: str, _operator: Operator, service: ServiceDep
) -> Response:
    """Ask first: a worker that has drained must be restarted."""
    worker = _worker(service, worker_id)
    return pages.render(request, "drain.html", worker=worker, name=name_of(worker))


@router.post("/workers/{worker_id}/drain", name="drain")
def drain_worker(
    request: Request, worker_id: str, _operator: Operator, service: ServiceDep
) -> Response:
    """Let a worker finish its jobs and take no more."""
    worker = _worker(service, worker_id)
    if not service.app.store.upkeep.drain_worker(worker.id):
        raise NotFound("worker", worker.id)
    text = f"{name_of(worker)} takes no more jobs and finishes those that it has."
    return pages.back(request, pages.url(request, "workers"), Notice(text))


@router.post("/queues/pause", name="pause_queue_page")
def pause_queue(
    request: Request, _operator: Operator, service: ServiceDep, form: FormDep
) -> Response:
    """Claim no more jobs from a queue."""
    name = _queue_name(form)
    service.app.store.control.pause_queue(name, now=service.now)
    text = f"Paused queue {name}: running jobs continue, due jobs wait."
    return pages.back(request, pages.url(request, "workers"), Notice(text))


@router.post("/queues/resume", name="resume_queue_page")
def resume_queue(
    request: Request, _operator: Operator, service: ServiceDep, form: FormDep
) -> Response:
    """Claim from it again."""
    name = _queue_name(form)
    service.app.store.control.resume_queue(name, now=service.now)
    return pages.back(request, pages.url(request, "workers"), Notice(f"Resumed queue {name}."))


def _queue_name(form: Form) -> str:
    if not form.text("queue"):
        raise InvalidInput("Which queue? Its name is missing.", field="queue")
    return form.text("queue")


def _worker(service: Service, text: str) -> WorkerRecord:
    worker_id = id_of(text, "worker")
    for worker in service.app.store.upkeep.workers():
        if worker.id == worker_id:
            return worker
    raise NotFound("worker", worker_id)
