"""Screen 6, workers and queues: which workers are alive, what they run, and what is waiting."""

from collections import Counter, defaultdict
from typing import Literal, NamedTuple
from uuid import UUID

from fastapi import Response

from evenbeat.api.dependencies import Operator, Viewer
from evenbeat.dashboard import pages
from evenbeat.dashboard.job_form import moment_of
from evenbeat.dashboard.pages import Form, FormDep, Notice, PageDep, PageRequest, id_of
from evenbeat.domain.job import JobRecord
from evenbeat.domain.states import JobStatus
from evenbeat.errors import InvalidInput, NotFound
from evenbeat.store.lists import JobFilter
from evenbeat.store.reads import QueueDepth
from evenbeat.store.summaries import SILENT_AFTER
from evenbeat.store.upkeep import WorkerRecord

router = pages.router()

MOST_WORKERS = 100
_MOST_QUEUES = 200
_MOST_TASKS = 200
_MOST_RUNNING = 500


class WorkerRow(NamedTuple):
    """A worker with its name, its state (active, draining, or lost after a minute without a
    heartbeat), the jobs it runs, and how many these are."""

    worker: WorkerRecord
    name: str
    state: str
    jobs: list[JobRecord]
    running: int


@router.get("/workers", name="workers")
def workers(page: PageDep, _viewer: Viewer) -> Response:
    service, read = page.service, page.store.read
    rows = _rows(page)
    alive = [row for row in rows if row.state != "lost"]
    # Workers that take from every queue count under the empty name.
    served = Counter(name for row in alive for name in row.worker.queues or ("",))
    tasks = read.tasks(now=service.now)
    depths = {queue.name: queue for queue in read.queues(now=service.now)}
    names = {count.queue for count in read.job_counts()[0]} | {task.queue for task in tasks}
    names |= {name for row in rows for name in row.worker.queues or ()}
    depths |= {name: QueueDepth(name, 0, 0, None, None) for name in names - depths.keys()}
    queues = sorted(depths.values(), key=lambda queue: (-queue.due, -queue.running, queue.name))
    oldest = [queue.oldest_due for queue in queues if queue.oldest_due is not None]
    return page.render(
        "workers.html",
        rows=rows[:MOST_WORKERS],
        more=len(rows) - MOST_WORKERS,
        alive=len(alive),
        lost=len(rows) - len(alive),
        used=sum(row.running for row in alive),
        slots=sum(row.worker.concurrency for row in alive),
        queues=queues[:_MOST_QUEUES],
        due=sum(queue.due for queue in queues),
        oldest=min(oldest, default=None),
        jobs_named=6,
        tasks=tasks[:_MOST_TASKS],
        served=served,
    )


def _rows(page: PageRequest) -> list[WorkerRow]:
    """Every known worker, the live ones first."""
    store, only_running = page.store, JobFilter(statuses=[JobStatus.RUNNING])
    running = store.read.jobs(only_running, limit=_MOST_RUNNING).jobs
    jobs: defaultdict[UUID | None, list[JobRecord]] = defaultdict(list)
    for job in running:
        jobs[job.locked_by].append(job)
    # With more jobs than were read, the last heartbeats tell how many each worker runs.
    complete = len(running) < _MOST_RUNNING
    rows = []
    for worker in store.upkeep.workers():
        own = jobs[worker.id]
        number = max(len(own), worker.held) if complete else worker.running
        state = "active" if worker.status == "active" else "draining"
        if worker.heartbeat_at < page.now - SILENT_AFTER:
            state = "lost"
        rows.append(WorkerRow(worker, name_of(worker), state, own, number))
    return sorted(rows, key=lambda row: (row.state == "lost", row.worker.host, row.worker.pid))


def name_of(worker: WorkerRecord) -> str:
    """Machine and process. What tells containers with one host name apart is left out."""
    return f"{worker.host.partition('/')[0]}:{worker.pid}"


@router.get("/workers/{worker_id}/drain", name="ask_to_drain")
def ask_to_drain(page: PageDep, worker_id: str, _operator: Operator) -> Response:
    """Ask first: a worker that has drained must be restarted."""
    worker = _worker(page, worker_id)
    return page.render("drain.html", worker=worker, name=name_of(worker))


@router.post("/workers/{worker_id}/drain", name="drain")
def drain_worker(page: PageDep, worker_id: str, _operator: Operator) -> Response:
    worker = _worker(page, worker_id)
    page.store.upkeep.drain_worker(worker.id)
    text = f"{name_of(worker)} takes no more jobs and finishes those that it has."
    return page.back(page.url("workers"), Notice(text))


@router.get("/pause", name="ask_to_pause_everything")
def ask_to_pause_everything(page: PageDep, _operator: Operator) -> Response:
    """Ask why, and until when."""
    return page.render("pause_everything.html", form=Form([]), error="")


@router.post("/pause", name="pause_everything")
def pause_everything(page: PageDep, operator: Operator, form: FormDep) -> Response:
    """Let no worker start anything more."""
    try:
        until = moment_of(form, "until", page.zone)
        pause = page.store.control.pause_everything(
            form.text("reason"), by=operator.subject, until=until, now=page.service.now
        )
    except InvalidInput as error:
        return page.render("pause_everything.html", status=422, form=form, error=str(error))
    return page.back(page.url("workers"), Notice(f"{pause.text} Running jobs go on."))


@router.post("/resume", name="resume_everything")
def resume_everything(page: PageDep, _operator: Operator) -> Response:
    """Let workers start jobs again."""
    page.store.control.resume_everything(now=page.service.now)
    return page.back(page.url("workers"), Notice("Workers start jobs again, as before the pause."))


@router.post("/queues/{verb}", name="change_queue")
def change_queue(
    page: PageDep, verb: Literal["pause", "resume"], _operator: Operator, form: FormDep
) -> Response:
    """Claim no more jobs from a queue, or claim from it again."""
    name, control, text = form.text("queue"), page.store.control, "Resumed queue {}."
    if not name:
        raise InvalidInput("Which queue? Its name is missing.", field="queue")
    if verb == "resume":
        control.resume_queue(name, now=page.service.now)
    else:
        control.pause_queue(name, now=page.service.now)
        text = "Paused queue {}: running jobs continue, due jobs wait."
    return page.back(page.url("workers"), Notice(text.format(name)))


def _worker(page: PageRequest, text: str) -> WorkerRecord:
    worker_id = id_of(text, "worker")
    for worker in page.store.upkeep.workers():
        if worker.id == worker_id:
            return worker
    raise NotFound("worker", worker_id)
