"""Screen 11, batches: how far each is, what has failed in it, and what runs when it has ended."""

from contextlib import suppress

from fastapi import Response

from evenbeat import humanize
from evenbeat.api.dependencies import Operator, Viewer
from evenbeat.dashboard import pages
from evenbeat.dashboard.pages import Notice, PageDep, id_of
from evenbeat.domain.batch import BATCH_VERBS, BatchRecord, BatchStatus
from evenbeat.domain.states import JobStatus, Verb
from evenbeat.errors import InvalidInput, NotFound
from evenbeat.store.lists import JobFilter

router = pages.router()

PAGE_SIZE = 25
_FAILURES_SHOWN = 20


@router.get("/batches", name="batches")
def batches(page: PageDep, _viewer: Viewer) -> Response:
    """Newest first, all or those in one state."""
    store, state = page.store.batches, page.query.text("status")
    statuses = [state] if state in tuple(BatchStatus) else None
    offset = (page.number() - 1) * PAGE_SIZE
    listed = store.list(statuses=statuses, limit=PAGE_SIZE, offset=offset)

    def address(status: str, number: int = 1) -> str:
        fields = {"status": status, "page": str(number) if number > 1 else ""}
        return page.url("batches", query={name: value for name, value in fields.items() if value})

    state = state if statuses else ""
    return page.render(
        "batches.html",
        batches=listed,
        state=state,
        states=[("all", address(""), not state)]
        + [(str(one), address(one), one == state) for one in BatchStatus],
        page=page.pager(
            lambda number: address(state, number),
            PAGE_SIZE,
            len(listed),
            store.total(statuses=statuses),
        ),
    )


@router.get("/batches/{batch_id}", name="batch")
def batch(page: PageDep, batch_id: str, _viewer: Viewer) -> Response:
    """One batch: its progress, its callback, and the newest of what failed."""
    one, read = page.store.batches.get(id_of(batch_id, "batch")), page.store.read
    callback = None
    if one.callback_id is not None:
        with suppress(NotFound):  # it may have been deleted
            callback = read.job(one.callback_id)
    return page.render(
        "batch.html",
        batch=one,
        callback=callback,
        states=[(state, getattr(one.counts, state)) for state in JobStatus],
        failed=read.jobs(JobFilter(batch=one.id, statuses=["failed"]), limit=_FAILURES_SHOWN).jobs,
        verbs=[verb for verb in BATCH_VERBS.values() if _suits(verb, one)],
    )


def _suits(verb: Verb, one: BatchRecord) -> bool:
    return any(getattr(one.counts, state) for state in verb.sources)


@router.get("/batches/{batch_id}/cancel", name="ask_to_cancel_batch")
def ask_to_cancel(page: PageDep, batch_id: str, _operator: Operator) -> Response:
    """Ask first."""
    one = page.store.batches.get(id_of(batch_id, "batch"))
    return page.render("batch_cancel.html", batch=one)


@router.post("/batches/{batch_id}/{verb}", name="batch_action")
def act(page: PageDep, batch_id: str, verb: str, _operator: Operator) -> Response:
    """A verb over all of its jobs."""
    id_ = id_of(batch_id, "batch")
    if verb not in BATCH_VERBS:
        raise InvalidInput(f"There is no verb {verb[:40]!r}.", field="verb")
    changes = page.store.batches.apply(BATCH_VERBS[verb], id_, now=page.service.now)
    number = sum(len(some.changed) for some in changes)
    notice = Notice(f"{BATCH_VERBS[verb].notice} {humanize.count(number, 'job')}.")
    return page.back(page.url("batch", batch_id=id_), notice)
