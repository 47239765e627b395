"""Screen 6, workers and queues: who works, on what, and what waits."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from fastapi import Request, Response

from evenbeat.api.dependencies import Operator, Service, ServiceDep, Viewer
from evenbeat.dashboard import pages
from evenbeat.dashboard.forms import FormDep, id_of
from evenbeat.dashboard.notices import Notice
from evenbeat.domain.job import Job
from evenbeat.domain.states import JobStatus
from evenbeat.errors import InvalidInput, NotFound
from evenbeat.store.filters import JobFilter
from evenbeat.store.reads import QueueDepth
from evenbeat.store.summaries import SILENT_AFTER, KnownTask
from evenbeat.store.upkeep import WorkerRecord

router = pages.router()

MOST_WORKERS = 100
_MOST_QUEUES = 200
_MOST_TASKS = 200
_RUNNING = 500
_NAMED = 6


class Crew(NamedTuple):
    """A worker with its state in a word and the jobs it is at, as far as they are named."""

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
        """Whether it can still be asked for something."""
        return self.state != "lost"


@router.get("/workers", name="workers")
def workers(request: Request, _viewer: Viewer, service: ServiceDep) -> Response:
    """Workers, queues and tasks."""
    now = pages.now_of(request)
    crews = _crews(service, now)
    alive = [crew.worker for crew in crews if crew.is_alive]
    known = service.app.store.read.tasks(now=service.now)
    queues = _queues(service, [crew.worker for crew in crews], known)
    waiting = [queue.oldest_due for queue in queues if queue.oldest_due is not None]
    return pages.render(
        request,
        "workers.html",
        now=now,
        crews=crews[:MOST_WORKERS],
        more=len(crews) - MOST_WORKERS,
        alive=len(alive),
        lost=len(crews) - len(alive),
        used=sum(crew.running for crew in crews if crew.is_alive),
        slots=sum(worker.concurrency for worker in alive),
        queues=queues[:_MOST_QUEUES],
        due=sum(queue.due for queue in queues),
        oldest=min(waiting, default=None),
        named=_NAMED,
        tasks=known[:_MOST_TASKS],
        served=_served(alive),
    )


# -- changes ---------------------------------------------------------------------------------------


@router.get("/workers/{worker_id}/drain", name="ask_to_drain")
def ask_to_drain(
    request: Request, worker_id: str, _operator: Operator, service: ServiceDep
) -> Response:
    """Ask first: a worker that has drained has to be started anew."""
    worker = _worker(service, id_of(worker_id, "worker"))
    name = name_of(worker)
    return pages.render(request, "drain.html", now=pages.now_of(request), worker=worker, name=name)


@router.post("/workers/{worker_id}/drain", name="drain")
def drain_worker(
    request: Request, worker_id: str, _operator: Operator, service: ServiceDep
) -> Response:
    """Let a worker finish what it has, and take no more."""
    worker = _worker(service, id_of(worker_id, "worker"))
    if not service.app.store.upkeep.drain_worker(worker.id):
        raise NotFound("worker", worker.id)
    text = f"{name_of(worker)} takes no more jobs and finishes what it has."
    return pages.back(request, pages.url(request, "workers"), Notice(text))


@router.post("/queues/pause", name="pause_queue_page")
def pause_queue(
    request: Request, _operator: Operator, service: ServiceDep, form: FormDep
) -> Response:
    """Claim nothing more from a queue."""
    name = _queue_name(form.text("queue"))
    service.app.store.control.pause_queue(name, now=service.now)
    text = f"The queue {name} is paused: what runs goes on, what is due waits."
    return pages.back(request, pages.url(request, "workers"), Notice(text))


@router.post("/queues/resume", name="resume_queue_page")
def resume_queue(
    request: Request, _operator: Operator, service: ServiceDep, form: FormDep
) -> Response:
    """Claim from it again."""
    name = _queue_name(form.text("queue"))
    service.app.store.control.resume_queue(name, now=service.now)
    return pages.back(request, pages.url(request, "workers"), Notice(f"The queue {name} goes on."))


def _queue_name(name: str) -> str:
    if not name:
        raise InvalidInput("Which queue? Its name is missing.", field="queue")
    return name


def _worker(service: Service, worker_id: UUID) -> WorkerRecord:
    for worker in service.app.store.upkeep.workers():
        if worker.id == worker_id:
            return worker
    raise NotFound("worker", worker_id)


# -- what is shown ---------------------------------------------------------------------------------


def _crews(service: Service, now: datetime) -> list[Crew]:
    """Every known worker, the living first."""
    running = service.app.store.read.jobs(
        JobFilter(statuses=[JobStatus.RUNNING]), limit=_RUNNING
    ).jobs
    all_known = len(running) < _RUNNING
    at_work: defaultdict[UUID | None, list[Job]] = defaultdict(list)
    for job in running:
        at_work[job.locked_by].append(job)
    crews = [
        Crew(
            worker, state_of(worker, now), at_work[worker.id], _running(worker, at_work, all_known)
        )
        for worker in service.app.store.upkeep.workers()
    ]
    return sorted(crews, key=lambda crew: (not crew.is_alive, crew.worker.host, crew.worker.pid))


def name_of(worker: WorkerRecord) -> str:
    """Machine and process. What tells containers with one host name apart is left out."""
    return f"{worker.host.partition('/')[0]}:{worker.pid}"


def state_of(worker: WorkerRecord, now: datetime) -> str:
    """`active`, `draining`, or `lost` after a minute without a sign of life."""
    if worker.heartbeat_at < now - SILENT_AFTER:
        return "lost"
    return "draining" if worker.status != "active" else "active"


def _running(
    worker: WorkerRecord, at_work: Mapping[UUID | None, list[Job]], all_known: bool
) -> int:
    """How many jobs it is at: by its leases, or, with very many, by its last sign of life."""
    return len(at_work.get(worker.id, ())) if all_known else worker.running


def _queues(service: Service, crew: list[WorkerRecord], known: list[KnownTask]) -> list[QueueDepth]:
    """Every queue that anybody has named, those with something waiting first."""
    found = {queue.name: queue for queue in service.app.store.read.queues(now=service.now)}
    counts, _ = service.app.store.read.job_counts()
    names = {count.queue for count in counts} | {task.queue for task in known}
    names |= {name for worker in crew for name in worker.queues or ()}
    for name in names - found.keys():
        found[name] = QueueDepth(name, 0, 0, None, None)
    return sorted(found.values(), key=lambda queue: (-queue.due, -queue.running, queue.name))


def _served(alive: list[WorkerRecord]) -> dict[str, int]:
    """How many living workers take jobs from a queue; under the empty name, those that take all."""
    served: defaultdict[str, int] = defaultdict(int)
    for worker in alive:
        for name in worker.queues or ("",):
            served[name] += 1
    return dict(served)
