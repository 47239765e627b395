"""What placement reads and writes: the right rows, each moved only if nothing has changed."""

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from evenbeat.domain.ids import uuid7
from evenbeat.domain.job import JobSpec, NewJob, Placement
from evenbeat.domain.load_entry import LoadEntry
from evenbeat.domain.schedule import Cron, Interval
from evenbeat.errors import Conflict, NotFound
from evenbeat.store.placement import PlacementTotals
from evenbeat.store.store import Store

T0 = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
FIGURES = {"old_score": 0.2, "new_score": 0.8, "old_peak": 9.0, "new_peak": 3.0}
HOURLY = JobSpec("noop", schedule=Interval(HOUR, anchor=T0), cost=timedelta(seconds=9))

Move = tuple[LoadEntry, datetime]


class Fixed:
    """A placer that always says the same, and remembers what it was asked."""

    def __init__(self, after: timedelta | None) -> None:
        self.after = after
        self.asked: list[tuple[str, timedelta, float | None]] = []
        self.stored: list[UUID] = []
        self.dropped: list[UUID] = []

    def refresh(self, now):
        pass

    def place(self, requests, now):
        self.asked += [(request.kind, request.every, request.cost_ms) for request in requests]
        return [None if self.after is None else now + self.after for _ in requests]

    def confirm(self, stored, dropped=(), *, committed=True):
        assert committed
        self.stored += stored
        self.dropped += dropped


@pytest.fixture
def advised(database_url):
    placer = Fixed(20 * MINUTE)
    store = Store(database_url, timeout=10, placer=lambda: placer)
    yield store, placer
    store.close()


def move(store: Store, job_id: UUID, by: timedelta, **changes: object) -> Move:
    (job,) = (entry for entry in store.placement.load_snapshot() if entry.id == job_id)
    return job._replace(**changes), job.next_run_at + by


def apply(store: Store, *moves: Move, now: datetime = T0) -> tuple[UUID, set[UUID]]:
    id_ = uuid7()

    def work(connection):
        _, moved = store.placement.rebalance(id_, moves, FIGURES, connection, by="me", now=now)
        store.placement.complete_rebalance(id_, len(moved), {"cron": 2}, FIGURES, connection)
        return moved

    return id_, store.database.atomically(work)


def test_only_balanced_intervals_without_a_beginning_ask_for_a_place(advised):
    store, placer = advised
    plain = JobSpec("noop", schedule=Interval(HOUR), cost=MINUTE)
    jobs = [
        NewJob(plain),
        NewJob(plain, start=MINUTE),
        NewJob(HOURLY),
        NewJob(JobSpec("noop", schedule=Interval(HOUR), placement=Placement.GRID)),
        NewJob(JobSpec("noop", schedule=Interval(HOUR), placement=Placement.PINNED)),
        NewJob(JobSpec("noop", schedule=Cron("@daily"))),
        NewJob(JobSpec("noop")),
    ]
    many = [added.id for added in store.add_many(jobs, now=T0)]
    single = [store.add(job, now=T0).id for job in jobs]
    assert placer.asked == [("new", HOUR, 60_000)] * 2
    assert placer.stored == [many[0], single[0]]
    for one, other in zip(many, single, strict=True):
        assert store.read.job(one).next_run_at == store.read.job(other).next_run_at
    placed = store.read.job(many[0])
    assert placed.anchor_at == placed.plan_time == placed.next_run_at == T0 + 20 * MINUTE
    assert placed.placed_at == T0


def test_without_advice_a_job_begins_an_interval_from_now(advised):
    store, placer = advised
    placer.after = None
    job = store.read.job(store.add(NewJob(JobSpec("noop", schedule=Interval(HOUR))), now=T0).id)
    assert (job.next_run_at, job.placed_at) == (T0 + HOUR, None)


def test_jobs_that_are_not_stored_give_their_place_back(advised):
    store, placer = advised
    job = NewJob(JobSpec("noop", schedule=Interval(HOUR)), dedup_key="one")
    first = store.add(job, now=T0)
    again = store.add(job, now=T0)
    assert (again.id, again.created) == (first.id, False)
    store.add_many([job, job], now=T0)
    assert placer.stored == [first.id]
    assert len(placer.dropped) == 3


def test_a_job_that_has_begun_a_run_is_resumed_where_it_waited(advised):
    store, placer = advised
    job_id = store.add(NewJob(JobSpec("noop", schedule=Interval(HOUR))), now=T0).id
    store.claim(uuid4(), 1, now=T0 + 20 * MINUTE)
    store.control.pause([job_id], now=T0 + 20 * MINUTE)
    store.control.resume([job_id], now=T0 + 21 * MINUTE)
    assert [kind for kind, *_ in placer.asked] == ["new"], "it runs and keeps its rhythm"
    assert store.read.job(job_id).anchor_at == T0 + 20 * MINUTE


def test_beats_are_counted_and_young_placements_listed(advised):
    store, _ = advised
    store.add_many([NewJob(HOURLY)] * 3, now=T0)
    young = store.add(NewJob(JobSpec("noop", schedule=Interval(DAY))), now=T0).id
    (counted,) = store.placement.interval_counts(until=T0 - MINUTE)
    assert counted == (3600, int((T0 + HOUR).timestamp()), 9000, None, True, 3)
    assert sum(jobs for *_, jobs in store.placement.interval_counts(until=T0)) == 4
    (listed,) = store.placement.placed_jobs(since=T0 - MINUTE)
    assert listed == (young, 86_400, int((T0 + 20 * MINUTE).timestamp()), None, None, True, True)
    assert store.placement.placed_jobs(since=T0) == []
    store.control.pause([young], now=T0)
    assert store.placement.placed_jobs(since=T0 - MINUTE) == [listed._replace(live=False)]
    assert sum(jobs for *_, jobs in store.placement.interval_counts(until=T0)) == 3
    cron = store.add(NewJob(JobSpec("noop", schedule=Cron("@daily"))), now=T0).id
    assert store.placement.cron_jobs() == [(cron, "noop", "@daily", "UTC", None, None)]


def test_the_load_is_read_through_its_index_whatever_else_there_is(store):
    store.add_many([NewJob(JobSpec("noop"))] * 5000, now=T0)
    store.add_many([NewJob(HOURLY)] * 20, now=T0)
    with store.database.transaction() as connection:
        connection.execute("ANALYZE evenbeat.jobs")
        for name, params in {
            "interval_counts": {"until": T0},
            "placed_since": {"since": T0},
            "cron_loads": {},
            "load_snapshot": {"now": T0},
            "late_jobs": {"now": T0 + 2 * HOUR, "late_seconds": 60},
        }.items():
            text = "EXPLAIN " + store.database.statements[name].text
            lines = connection.execute(text.encode(), params).fetchall()
            assert any("jobs_placed" in line for (line,) in lines), lines


@pytest.mark.parametrize(
    "changes",
    [
        {"next_run_at": T0 + 2 * HOUR},
        {"anchor_at": T0 + MINUTE},
        {"schedule_version": 1},
        {"by": -HOUR - MINUTE},
    ],
)
def test_a_move_is_made_only_if_everything_is_as_it_was(store, changes):
    other = store.add(NewJob(HOURLY), now=T0).id
    job_id = store.add(NewJob(HOURLY), now=T0).id
    id_, moved = apply(
        store,
        move(store, job_id, **({"by": 20 * MINUTE} | changes)),
        move(store, other, 10 * MINUTE),
    )
    assert moved == {other}
    assert store.read.job(job_id).next_run_at == T0 + HOUR
    assert [noted.job_id for noted in store.placement.moves_of(id_)] == [other]


@pytest.mark.parametrize("verb", ["pause", "cancel", "run_now", "claim"])
def test_a_job_that_does_not_wait_is_not_moved(store, verb):
    job_id = store.add(NewJob(HOURLY), now=T0).id
    wanted = move(store, job_id, 20 * MINUTE)
    if verb == "claim":
        store.claim(uuid4(), 1, now=T0 + HOUR)
    else:
        getattr(store.control, verb)([job_id], now=T0)
    before = store.read.job(job_id)
    assert apply(store, wanted)[1] == set()
    assert store.read.job(job_id) == before


def test_a_move_shifts_plan_delay_and_rhythm_alike_and_undo_takes_it_back(store):
    spec = JobSpec("noop", schedule=Interval(HOUR, anchor=T0), schedule_delay=5 * MINUTE)
    job_id = store.add(NewJob(spec, name="late"), now=T0).id
    before = store.read.job(job_id)
    listener = store.listen()
    id_, moved = apply(store, move(store, job_id, -10 * MINUTE), now=T0)
    assert moved == {job_id}
    after = store.read.job(job_id)
    assert after.plan_time == T0 + 50 * MINUTE
    assert after.next_run_at == T0 + 55 * MINUTE
    assert after.anchor_at == T0 - 10 * MINUTE
    assert after.placed_at == T0
    assert [(s.kind, s.subject) for s in listener.wait(60)] == [("due", "default")]
    listener.close()
    undone = store.placement.undo(id_, by="me", now=T0 + MINUTE)
    assert undone.restored == [job_id]
    assert store.read.job(job_id)._replace(updated_at=T0) == before._replace(updated_at=T0)
    with pytest.raises(Conflict, match="only once"):
        store.placement.undo(id_, now=T0 + MINUTE)
    with pytest.raises(NotFound):
        store.placement.undo(uuid4(), now=T0)
    (record,) = store.placement.rebalances(10)
    assert (record.created_by, record.moved, record.skipped) == ("me", 1, {"cron": 2})
    assert (record.undone_by, record.restored) == ("me", 1)
    assert store.placement.totals() == PlacementTotals({"rebalance": 1}, 1, 1, 2)
    assert store.placement.prune(before=T0 + DAY) == 1
    assert store.placement.moves_of(id_) == []
    assert len(store.placement.rebalances(10)) == 1


def test_a_rebalance_that_fails_halfway_leaves_nothing(store):
    job_id = store.add(NewJob(HOURLY), now=T0).id
    before = store.read.job(job_id)

    def work(connection):
        wanted = [move(store, job_id, MINUTE)]
        store.placement.rebalance(uuid7(), wanted, FIGURES, connection, now=T0)
        raise RuntimeError("the lights went out")

    with pytest.raises(RuntimeError):
        store.database.atomically(work)
    assert store.read.job(job_id) == before
    assert store.placement.rebalances(10) == []
