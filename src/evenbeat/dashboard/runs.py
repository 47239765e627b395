"""The runs of all jobs: found by outcome, task, queue, worker, error and time, grouped by error,
and run again together. The whole filter is in the address, so that every figure can link here."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from fastapi import Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from evenbeat.api.dependencies import Operator, Viewer
from evenbeat.api.executions import RunSelection, cancel_executions
from evenbeat.api.queries import RunFields
from evenbeat.api.requests import MAX_BULK
from evenbeat.dashboard import pages
from evenbeat.dashboard.job_form import local_minute, moment_of
from evenbeat.dashboard.jobs import confirmation, effects_of_stopping
from evenbeat.dashboard.pages import Form, FormDep, Notice, PageDep, PageRequest, id_of, parse
from evenbeat.dashboard.workers import name_of
from evenbeat.domain.duration import parse_duration
from evenbeat.domain.ids import parse_id
from evenbeat.domain.states import RUN, ExecutionStatus
from evenbeat.errors import EvenbeatError
from evenbeat.humanize import count
from evenbeat.store.runs import LOOKED_AT, RunFilter

router = pages.router()

PAGE_SIZE = 50
_MOST_GROUPS = 12
_MOST_OPTIONS = 200
_WORDS = ("status", "task", "queue", "error_code")
_TEXTS = ("tag", "search", "job_id", "worker_id")
_PERIODS = ("1h", "24h", "7d")
_NONE = Notice("Select some runs first.", "refused")


@router.get("/runs", name="runs")
def runs(page: PageDep, _viewer: Viewer) -> Response:
    query, read, lists = page.query, page.store.read, page.store.runs
    run_filter = filter_of(page, query)
    listed = lists.page(replace_before(run_filter, query), PAGE_SIZE)
    summary = lists.summary(run_filter)
    groups = [group for group in summary.groups if group.error_code is not None]
    counts = read.job_counts()[0]
    tasks = {one.task for one in counts}.union(query.many("task"))
    queues = {one.queue for one in counts}.union(query.many("queue"))

    def address(**changes: str) -> str:
        """This list with some fields of its address replaced, or left out if empty."""
        rest = parse(query.without("before", *changes).encode()).pairs
        return page.url("runs", query=[*rest, *((k, v) for k, v in changes.items() if v)])

    job = read.job(run_filter.job_id) if run_filter.job_id else None
    return page.render(
        "runs.html",
        query=query,
        address=address,
        runs=listed.runs,
        read_back_to=listed.read_back_to,
        older=listed.further and address(before=str(listed.further)),
        total=summary.total,
        more=summary.more,
        looked_at=LOOKED_AT,
        groups=groups[:_MOST_GROUPS],
        more_groups=len(groups) - _MOST_GROUPS,
        job=job,
        workers={one.id: name_of(one) for one in page.store.upkeep.workers()},
        states=list(ExecutionStatus),
        periods=[
            (text, address(since=text, until=""), query.text("since") == text) for text in _PERIODS
        ],
        moments={
            name: local_minute(moment, page.zone)
            for name in ("since", "until")
            if (moment := getattr(run_filter, name)) is not None
        },
        narrowed=any(query.many(name) for name in (*_WORDS, *_TEXTS, "since", "until")),
        options={
            "task": sorted(tasks)[:_MOST_OPTIONS],
            "queue": sorted(queues)[:_MOST_OPTIONS],
        },
    )


def replace_before(run_filter: RunFilter, query: Form) -> RunFilter:
    """The same from a run on that an earlier page ended with."""
    return replace(run_filter, before=parse_id(query.text("before")))


def filter_of(page: PageRequest, query: Form) -> RunFilter:
    """The filter in an address, under the names that the API has for it; periods may be a length
    of time, too, or have no zone. Evenbeat's own tasks are listed where they are asked for."""
    fields: dict[str, Any] = {name: query.many(name) for name in _WORDS if query.many(name)}
    fields |= {name: query.text(name) for name in _TEXTS if query.text(name)}
    for name in ("since", "until"):
        if (moment := _moment(page, query, name)) is not None:
            fields[name] = moment.isoformat()
    try:
        run_filter = RunFields.model_validate(fields).run_filter()
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from None
    own = not query.flag("internal") and not {"task", "job_id"} & fields.keys()
    return replace(run_filter, own=own or None)


def _moment(page: PageRequest, query: Form, name: str) -> datetime | None:
    try:
        length = parse_duration(query.text(name))
    except EvenbeatError:
        return moment_of(query, name, page.zone)
    return max(page.now - length, datetime(1970, 1, 1, tzinfo=UTC))


@router.post("/runs/actions", name="run_actions")
def run_actions(page: PageDep, operator: Operator, form: FormDep) -> Response:
    """Run the jobs of some runs again, each once, or stop runs: those that are ticked, or all that
    match. It is asked about before."""
    to, stop = page.safe_path(form.text("next"), page.url("runs")), form.text("verb") == "stop"
    store, ids = page.store, [id_of(text, "execution") for text in form.many("id")]
    run_filter = RunFilter()
    if form.flag("all"):
        run_filter = filter_of(page, parse(form.text("query").encode()))
        ids = []
    if stop and form.flag("all"):
        run_filter = replace(run_filter, statuses=[ExecutionStatus.RUNNING])
        ids = [run.execution.id for run in store.runs.page(run_filter, MAX_BULK).runs]
    elif not stop:
        runs = [store.read.execution(id_) for id_ in ids]
        jobs = store.runs.job_ids(run_filter) if form.flag("all") else [r.job_id for r in runs]
        ids = list(dict.fromkeys(jobs))
    if not ids:
        return page.back(to, Notice("No such run is in progress.", "refused") if stop else _NONE)
    if len(ids) > MAX_BULK:
        text = f"These are runs of {len(ids):,} jobs, and at most {MAX_BULK:,} are run at once."
        return page.back(to, Notice(f"{text} Narrow the filter.", "refused"))
    if not stop:
        return confirmation(page, RUN, ids, "", to)
    if not form.flag("confirmed"):
        jobs = [store.read.execution(id_).job_id for id_ in ids]
        stopping = effects_of_stopping(page, jobs)
        return page.render("stop_runs.html", ids=ids, to=to, stopping=stopping)
    done = cancel_executions(RunSelection(ids=ids), page.service, operator)
    text = f"Stopped {count(done.changed, 'run')}."
    if done.refused_count:
        text += f" {count(done.refused_count, 'run had', 'runs had')} ended before."
    return page.back(to, Notice(text, "done" if done.changed else "refused"))
