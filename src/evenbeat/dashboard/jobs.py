"""Screen 2, the jobs: find them, see how they do, act on one, on some, or on all that match."""

from statistics import median
from typing import Any, NamedTuple
from uuid import UUID

from fastapi import Request, Response
from pydantic import ValidationError

from evenbeat import charts
from evenbeat.api.auth.tokens import Role
from evenbeat.api.dependencies import Operator, Service, ServiceDep, Viewer
from evenbeat.api.queries import FilterFields
from evenbeat.dashboard import pages
from evenbeat.dashboard.forms import Form, FormDep, QueryDep, id_of, parse
from evenbeat.dashboard.notices import Notice
from evenbeat.dashboard.verbs import VERBS, Verb, apply, verb_named
from evenbeat.domain.job import Job
from evenbeat.domain.states import JobStatus
from evenbeat.errors import InvalidInput, RoleTooLow
from evenbeat.observe.explain import describe_schedule
from evenbeat.store.filters import JobFilter
from evenbeat.store.lists import EXACT_ROWS, MAX_OFFSET
from evenbeat.store.summaries import PastRun

router = pages.router()

PAGE = 25
STRIP = 20
_FILTERS = ("status", "queue", "task", "kind", "tag", "search")
_SORTS = {"-created_at": "Newest first", "next_run_at": "Next run first", "name": "By name"}
_MOST_OPTIONS = 200


class Row(NamedTuple):
    """A job as the list shows it."""

    job: Job
    schedule: str
    tags: list[str]
    last: PastRun | None
    strip: str
    median_ms: float | None
    verbs: list[Verb]


class Slice(NamedTuple):
    """Where in a list a page lies, and the addresses of its neighbours."""

    first: int
    last: int
    total: int
    about: bool
    before: str
    after: str


class Asked(NamedTuple):
    """What a form asks for: a verb, over these jobs or over all that match its query."""

    verb: Verb
    over: list[UUID] | JobFilter
    query: str = ""

    @property
    def is_large(self) -> bool:
        """Whether to ask back first."""
        many = isinstance(self.over, JobFilter) or len(self.over) > 1
        return many or self.verb.always_ask

    @property
    def is_for_admins(self) -> bool:
        """Deleting whatever matches is."""
        return isinstance(self.over, JobFilter) and self.verb.name == "delete"


@router.get("/jobs", name="jobs")
def jobs(request: Request, _viewer: Viewer, service: ServiceDep, query: QueryDep) -> Response:
    """A page of the jobs that match the address."""
    read = service.app.store.read
    states, chosen = read.counts_by_status(), filter_of(query)
    sort = query.text("sort") if query.text("sort") in _SORTS else "-created_at"
    offset = (_page_number(query) - 1) * PAGE
    found = read.jobs(chosen, sort=sort, limit=PAGE, offset=offset)
    narrowed = [name for name in _FILTERS if query.many(name)]
    return pages.render(
        request,
        "jobs.html",
        now=pages.now_of(request),
        rows=_rows(service, found.jobs),
        total=found.total,
        about=found.total_is_estimate,
        page=_slice(request, query, found, offset),
        states=states,
        all_jobs=sum(states.values()),
        tabs=_tabs(request, query, states),
        query=query,
        narrowed=narrowed,
        sort=sort,
        sorts=_sorts(sum(states.values())),
        options=_options(service, query, found.jobs),
        verbs=list(VERBS.values()),
    )


@router.post("/jobs/actions", name="job_actions")
def job_actions(
    request: Request, operator: Operator, service: ServiceDep, form: FormDep
) -> Response:
    """A verb over one job, a selection, or all that match; larger steps are asked about first."""
    asked = _asked(form)
    if asked.is_for_admins and operator.role is not Role.ADMIN:
        raise RoleTooLow(Role.ADMIN, operator.role)
    gone = asked.verb.name == "delete" and form.text("next_without_it")
    to = pages.safe_path(request, gone or form.text("next"), pages.url(request, "jobs"))
    if asked.over == []:
        return pages.back(request, to, Notice("Select some jobs first.", "refused"))
    if asked.is_large and not form.flag("confirmed"):
        return _confirmation(request, service, asked, to)
    result = apply(service, asked.verb, asked.over)
    kind = "refused" if result.refused and not result.changed else "done"
    return pages.back(request, to, Notice(result.sentence(asked.verb), kind))


# -- which jobs ------------------------------------------------------------------------------------


def filter_of(query: Form) -> JobFilter:
    """The filter in an address, under the names that the API has for it."""
    given: dict[str, Any] = {name: query.many(name) for name in _FILTERS if query.many(name)}
    if "search" in given:
        given["search"] = given["search"][-1]
    try:
        return FilterFields.model_validate(given).chosen()
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = str(first["loc"][0]) if first["loc"] else "filter"
        raise InvalidInput(f"{name}: {first['msg']}.", field=name) from None


def _asked(form: Form) -> Asked:
    """A row's own button names verb and job together; the others act on ticks or on the filter."""
    only, _, one = form.text("only").partition(":")
    if only:
        return Asked(verb_named(only), [id_of(one)])
    verb = verb_named(form.text("verb"))
    if form.flag("all"):
        query = form.text("query")
        return Asked(verb, filter_of(parse(query.encode())), query)
    return Asked(verb, form.ids())


def _confirmation(request: Request, service: Service, asked: Asked, to: str) -> Response:
    read, about, name = service.app.store.read, False, ""
    by_filter = isinstance(asked.over, JobFilter)
    if isinstance(asked.over, JobFilter):
        page = read.jobs(asked.over, limit=1)
        number, about = page.total, page.total_is_estimate
    else:
        number = len(asked.over)
        if number == 1:
            job = read.job(asked.over[0])
            name = job.name or job.task
    return pages.render(
        request,
        "confirm.html",
        verb=asked.verb,
        number=number,
        about=about,
        name=name,
        ids=[] if by_filter else asked.over,
        query=asked.query,
        by_filter=by_filter,
        to=to,
    )


def tags_of(job: Job) -> list[str]:
    """The tags in a job's metadata; whatever else may be there is none."""
    kept = job.metadata.get("tags")
    return [tag for tag in kept if isinstance(tag, str)] if isinstance(kept, list) else []


# -- what the list shows ---------------------------------------------------------------------------


def _rows(service: Service, found: list[Job]) -> list[Row]:
    strips = service.app.store.read.last_outcomes([job.id for job in found], STRIP)
    return [_row(job, strips[job.id]) for job in found]


def _row(job: Job, runs: list[PastRun]) -> Row:
    durations = [run.duration_ms for run in runs if run.status == "completed"]
    known = [duration for duration in durations if duration is not None]
    return Row(
        job,
        describe_schedule(job),
        tags_of(job),
        runs[-1] if runs else None,
        charts.outcome_strip([run.status for run in runs], STRIP) if runs else "",
        median(known) if known else None,
        [verb for verb in VERBS.values() if verb.suits(job)],
    )


def _tabs(
    request: Request, query: Form, states: dict[str, int]
) -> list[tuple[str, str, int, bool]]:
    """All, then each state that occurs or is asked for: words, address, number, whether chosen."""
    now = query.many("status")
    entries = [("All", "", sum(states.values()), not now)]
    entries += [
        (state.capitalize(), str(state), states.get(state, 0), now == [state])
        for state in JobStatus
        if states.get(state) or state in now
    ]
    rest = parse(query.without("status", "page").encode())
    return [
        (label, _address(request, rest, status=status), number, chosen)
        for label, status, number, chosen in entries
    ]


def _sorts(total: int) -> dict[str, str]:
    """By name only where sorting all of them is quick."""
    return {key: words for key, words in _SORTS.items() if key != "name" or total <= EXACT_ROWS}


def _options(service: Service, query: Form, found: list[Job]) -> dict[str, list[str]]:
    """The queues and tasks to choose from: what was counted, what is in sight, what is chosen."""
    counts, _ = service.app.store.read.job_counts()
    queues = {count.queue for count in counts} | {job.queue for job in found}
    tasks = {count.task for count in counts} | {job.task for job in found}
    return {
        "queue": sorted(queues | set(query.many("queue")))[:_MOST_OPTIONS],
        "task": sorted(tasks | set(query.many("task")))[:_MOST_OPTIONS],
    }


# -- pages -----------------------------------------------------------------------------------------


def _page_number(query: Form) -> int:
    text = query.text("page") or "1"
    if not text.isdecimal() or not 1 <= int(text[:9]) <= MAX_OFFSET // PAGE + 1:
        raise InvalidInput(
            f"There is no page {text[:20]!r}: the list goes up to page {MAX_OFFSET // PAGE + 1:,}. "
            "Narrow it by a filter to get further.",
            field="page",
        )
    return int(text[:9])


def _slice(request: Request, query: Form, found: Any, offset: int) -> Slice:
    last, number = offset + len(found.jobs), offset // PAGE + 1
    rest = parse(query.without("page").encode())
    more = last < found.total and last <= MAX_OFFSET
    return Slice(
        offset + 1 if found.jobs else 0,
        last,
        found.total,
        found.total_is_estimate,
        _address(request, rest, page=str(number - 1) if number > 2 else "") if number > 1 else "",
        _address(request, rest, page=str(number + 1)) if more else "",
    )


def _address(request: Request, rest: Form, **added: str) -> str:
    pairs = [*rest.pairs, *((name, value) for name, value in added.items() if value)]
    return pages.url(request, "jobs", query=pairs)
