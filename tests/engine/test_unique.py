"""Calls that come to the job of another call: unique for a period, throttled, debounced."""

import asyncio
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from evenbeat import Context, Evenbeat, chain
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.schedule import Interval
from evenbeat.domain.scope import Scope
from evenbeat.errors import Conflict, InvalidInput
from evenbeat.store.store import Store
from evenbeat.testing import Harness


class Mail:
    """An application whose task notes what it was called with."""

    def __init__(self, database_url: str) -> None:
        self.app = app = Evenbeat(database_url)
        self.sent: list[tuple[str, int]] = []
        self.broken = False

        @app.task(max_retries=0)
        def send(user: str, page: int = 1) -> str:
            if self.broken:
                raise OSError("no mail today")
            self.sent.append((user, page))
            return user

        self.send = send
        self.harness = Harness(app)

    def count(self) -> int:
        return self.app.jobs.count()


@pytest.fixture
def mail(database_url: str) -> Iterator[Mail]:
    mail = Mail(database_url)
    yield mail
    mail.harness.close()


# -- unique for a period ---------------------------------------------------------------------------


def test_the_first_job_stands_for_a_period_after_it_was_added_also_when_it_has_ended(mail: Mail):
    unique = mail.send.options(unique_for="1h", unique_by=["user"])
    first = unique.enqueue("ann")
    mail.harness.drain()
    mail.harness.skip("59m")
    again = unique.enqueue("ann", page=2)
    assert (again.id, again.created) == (first.id, False)
    assert again.result("10s") == "ann"
    assert unique.enqueue("ben").created

    mail.harness.skip("1m")
    next_one = unique.enqueue("ann", page=3)
    assert next_one.created
    assert next_one.id != first.id
    mail.harness.skip("59m")
    assert unique.enqueue("ann").id == next_one.id
    mail.harness.drain()
    assert mail.sent == [("ann", 1), ("ben", 1), ("ann", 3)]


def test_all_arguments_count_unless_some_are_named(mail: Mail):
    unique = mail.send.options(unique_for="1h")
    assert unique.enqueue("ann", page=2).created
    assert unique.enqueue("ann", page=3).created
    assert not unique.enqueue(page=2, user="ann").created
    for scope in (Scope("tenant", "1"), Scope("tenant", "2")):
        assert unique.options(scope=scope).enqueue("ann", page=2).created
        assert not unique.options(scope=scope).enqueue("ann", page=2).created


@pytest.mark.parametrize("end", ["failed", "cancelled"])
def test_one_that_failed_or_was_cancelled_stands_no_longer(mail: Mail, end: str):
    unique = mail.send.options(unique_for="1h")
    first = unique.enqueue("ann")
    if end == "failed":
        mail.broken = True
        mail.harness.drain()
    else:
        first.cancel()
    assert first.status() == end
    second = unique.enqueue("ann")
    assert second.created
    mail.app.jobs.retry(first.id)
    assert not unique.enqueue("ann").created
    assert mail.count() == 2


def test_by_arguments_alone_the_first_job_stands_until_it_has_ended(mail: Mail):
    unique = mail.send.options(unique_by=["user"])
    first = unique.enqueue("ann")
    assert first.record().dedup_key == 'unique:send:{"user": "ann"}'
    assert unique.enqueue("ann", page=7).id == first.id
    assert unique.enqueue("ben").created
    mail.harness.drain()
    assert unique.enqueue("ann").created
    assert mail.send.options(unique_by=["user"], dedup_key="mine").enqueue("ann").created


def test_the_task_may_say_so_and_its_schedules_are_none_of_it(mail: Mail):
    @mail.app.every("1h", payload={"user": "all"})
    @mail.app.task(unique_for="1d", unique_by=["user"])
    def digest(user: str) -> None: ...

    mail.app.sync_schedules()
    schedule = mail.app.schedules.list()[0]
    assert schedule.unique_for_seconds is None
    assert digest.enqueue("all").created
    assert not digest.enqueue("all").created


# -- throttle --------------------------------------------------------------------------------------


def test_a_throttled_task_has_one_job_in_a_window_whatever_became_of_it(mail: Mail):
    throttled = mail.send.options(throttle="10m")
    first = throttled.enqueue("ann")
    mail.broken = True
    mail.harness.drain()
    assert first.status() == "failed"
    assert {throttled.enqueue("ben", page=n).id for n in range(5)} == {first.id}
    mail.harness.skip("10m")
    assert throttled.enqueue("ben").created
    by_user = throttled.options(unique_by=["user"])
    assert [by_user.enqueue(user).created for user in ("ann", "ben", "ann")] == [True, True, False]


# -- debounce --------------------------------------------------------------------------------------


def test_the_last_call_within_a_window_wins_and_puts_the_run_off(mail: Mail):
    debounced = mail.send.options(debounce="30s", unique_by=["user"])
    first = debounced.enqueue("ann", page=1)
    other = debounced.enqueue("ben")
    mail.harness.advance("20s")
    again = debounced.options(priority=70, metadata={"n": 2}).enqueue("ann", page=2)
    assert (again.id, again.created) == (first.id, False)
    record = first.record()
    assert (record.payload, record.priority) == ({"user": "ann", "page": 2}, 70)
    assert record.metadata == {"n": 2}
    assert record.next_run_at == mail.harness.now + timedelta(seconds=30)

    mail.harness.advance("29s")
    assert mail.sent == [("ben", 1)]
    debounced.enqueue("ann", page=3)
    assert first.record().priority == 0
    assert first.record().metadata == {}
    mail.harness.advance("30s")
    assert mail.sent == [("ben", 1), ("ann", 3)]
    assert [job.status() for job in (first, other)] == ["completed", "completed"]
    assert debounced.enqueue("ann").created


def test_a_run_is_not_put_off_for_longer_than_allowed(mail: Mail):
    debounced = mail.send.options(debounce="30s", debounce_max="1m")
    first = debounced.enqueue("a")
    for page in range(2, 8):
        mail.harness.advance("10s")
        debounced.enqueue("a", page=page)
    assert mail.sent == [("a", 6)]
    assert first.status() == "completed"
    assert mail.count() == 2


def test_a_call_may_say_itself_when_it_runs(mail: Mail):
    debounced, now = mail.send.options(debounce="30s"), mail.harness.now
    first = debounced.options(delay="10m").enqueue("ann")
    assert first.record().next_run_at == now + timedelta(minutes=10)
    at = now + timedelta(hours=1)
    assert mail.app.schedule(debounced, at=at, user="ann", page=2) == first
    assert first.record().next_run_at == at
    assert debounced.enqueue("ann", page=3) == first
    mail.harness.advance("30s")
    assert mail.sent == [("ann", 3)]


def test_one_that_has_started_is_left_alone_also_while_it_waits_for_a_retry(mail: Mail):
    debounced = mail.send.options(debounce="30s", max_retries=1, retry_backoff="1h")
    first = debounced.enqueue("ann", page=1)
    mail.broken = True
    mail.harness.advance("30s")
    assert first.status() == "scheduled"
    mail.broken = False
    second = debounced.enqueue("ann", page=2)
    assert second.created
    mail.harness.advance("30s")
    assert mail.sent == [("ann", 2)]
    mail.harness.advance("2h")
    assert mail.sent == [("ann", 2), ("ann", 1)]


def test_a_paused_one_stays_paused_and_a_cancelled_one_ended(mail: Mail):
    debounced = mail.send.options(debounce="30s")
    first = debounced.enqueue("ann")
    mail.app.jobs.pause(first.id)
    mail.harness.skip("1m")
    assert debounced.enqueue("ann", page=2).id == first.id
    assert first.status() == "paused"
    mail.app.jobs.resume(first.id)
    mail.harness.advance("30s")
    assert mail.sent == [("ann", 2)]
    second = debounced.enqueue("ann", page=3)
    second.cancel()
    third = debounced.enqueue("ann", page=4)
    assert third.created
    assert second.status() == "cancelled"


def test_a_call_while_a_claim_is_being_made_adds_a_job(mail: Mail, database_url: str):
    debounced = mail.send.options(debounce="1s")
    first = debounced.enqueue("ann", page=1)
    with psycopg.connect(database_url) as claiming, ThreadPoolExecutor(1) as pool:
        claiming.execute(
            "UPDATE evenbeat.jobs SET status = 'running', run_count = 1, next_run_at = NULL, "
            "lock_token = gen_random_uuid(), lock_expires_at = now() + interval '1h', "
            "locked_by = gen_random_uuid(), lock_acquired_at = now(), started_at = now() "
            "WHERE id = %s",
            [first.id],
        )
        second = pool.submit(debounced.enqueue, "ann", page=2)
        claiming.commit()
        job = second.result(60)
    assert job.created
    assert first.record().payload == {"user": "ann", "page": 1}


# -- ways in ---------------------------------------------------------------------------------------


def test_async_code(mail: Mail):
    async def enqueue() -> list[bool]:
        unique = mail.send.options(unique_for="1h")
        debounced = mail.send.options(debounce="1m")
        calls = [unique, unique, debounced, debounced]
        return [(await one.enqueue_async("ann")).created for one in calls]

    assert asyncio.run(enqueue()) == [True, False, True, False]


def test_many_at_once(mail: Mail):
    unique, debounced = mail.send.options(unique_for="1h"), mail.send.options(debounce="1m")
    standing = unique.enqueue("b")
    jobs = [unique.job(user) for user in ("a", "b", "a", "c")]
    added = mail.app.enqueue_many(
        [
            *jobs,
            mail.send.job("plain"),
            debounced.job("x", page=1),
            mail.send.options(name="named").job("n"),
            debounced.job("y", page=2),
            unique.options(unique_by=["user"]).job("d"),
        ]
    )
    created = [job.created for job in added]
    assert created == [True, False, False, True, True, True, True, False, True]
    assert added[1] == standing
    assert added[2] == added[0]
    assert added[7] == added[5]
    assert added[5].record().payload == {"user": "y", "page": 2}
    mail.harness.skip("1h")
    assert [job.created for job in mail.app.enqueue_many(jobs)] == [True, True, False, True]


def test_a_connection_of_the_callers(mail: Mail, database_url: str):
    ways = {"unique_for": "1h", "throttle": "1h", "debounce": "1h"}
    for way, period in ways.items():
        with psycopg.connect(database_url) as connection:
            bound = mail.send.options(connection=connection, **{way: period})  # type: ignore[arg-type]
            first = bound.enqueue("ann", page=1)
            assert not bound.enqueue("ann", page=1).created
            connection.rollback()
            kept = bound.enqueue("ann", page=1)
            assert kept.created, way
            assert kept != first
            connection.commit()
            (again,) = mail.app.enqueue_many([bound.job("ann", page=1)], connection=connection)
            assert again == kept


def test_a_chain_may_hold_unique_jobs(mail: Mail):
    unique = mail.send.options(unique_for="1h")
    jobs = mail.app.enqueue_many(chain(unique.job("a"), unique.job("b"), mail.send.job("c")))
    mail.harness.drain()
    assert [user for user, _ in mail.sent] == ["a", "b", "c"]
    assert jobs[1].status() == "completed"


class TestInABatch:
    def test_a_call_that_another_job_stands_for_is_refused(self, mail: Mail) -> None:
        unique = mail.send.options(unique_for="1h")
        mail.app.batch([unique.job("a"), unique.job("b")])
        with pytest.raises(Conflict, match="unique key"):
            mail.app.batch([unique.job("c"), unique.job("a")])
        assert mail.count() == 2

    def test_a_debounced_job_is_refused(self, mail: Mail) -> None:
        with pytest.raises(InvalidInput, match="is debounced") as caught:
            mail.app.batch([mail.send.options(debounce="1m").job("a")])
        assert caught.value.field == "jobs"

    def test_the_job_that_runs_after_it_is_its_own(self, mail: Mail) -> None:
        for option in ("unique_for", "throttle", "debounce"):
            then = mail.send.options(**{option: "1m"}).job("all")  # type: ignore[arg-type]
            with pytest.raises(InvalidInput, match="neither unique nor throttled nor debounced"):
                mail.app.batch([mail.send.job("a")], then=then)


def test_in_eager_mode(mail: Mail):
    with mail.app.eager() as eager:
        unique, throttled = mail.send.options(unique_for="1h"), mail.send.options(throttle="1h")
        first: Any = unique.enqueue("ann")
        again: Any = unique.enqueue("ann")
        assert (again.id, again.created, again.result()) == (first.id, False, "ann")
        assert first.created
        assert [throttled.enqueue(user).created for user in "ab"] == [True, False]
        # Like every delay, that of debounce is over at once.
        debounced = mail.send.options(debounce="1h")
        assert [debounced.enqueue(user).created for user in "ab"] == [True, True]
        assert len(eager.jobs) == 4
    mail.broken = True
    with mail.app.eager(raise_errors=False):
        assert [unique.enqueue("ann").created for _ in "ab"] == [True, True]


# -- many callers at once --------------------------------------------------------------------------

SPECS = [
    JobSpec("send", unique_for=timedelta(hours=1)),
    JobSpec("send", throttle=timedelta(hours=1), unique_by=("n",)),
    JobSpec("send", debounce=timedelta(hours=1), unique_by=("n",)),
]
_start: list[Any] = []
"""In each process, what lets all begin together."""


def _begin(barrier: Any) -> None:
    _start.append(barrier)


def _add_all(url: str, bulk: bool) -> int:
    """What each of several processes does: every job of the test, each key at the same time."""
    with closing(Store(url, pool_size=2)) as store:
        _start[0].wait()
        jobs = [NewJob(spec, {"n": n}) for n in range(40) for spec in SPECS]
        if bulk:
            return sum(added.created for added in store.add_many(jobs))
        return sum(store.add(job).created for job in jobs)


@pytest.mark.parametrize("bulk", [False, True])
def test_of_processes_that_add_at_once_exactly_one_adds(
    store: Store, database_url: str, bulk: bool
):
    # As many keys have been used before, and are free again.
    old = [NewJob(spec, {"n": n}) for n in range(20) for spec in SPECS[:2]]
    store.add_many(old, now=store.clock() - timedelta(hours=2))
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        3, mp_context=spawn, initializer=_begin, initargs=[spawn.Barrier(3)]
    ) as pool:
        created = list(pool.map(_add_all, [database_url] * 3, [bulk] * 3))
    assert sum(created) == 40 * len(SPECS)
    assert store.read.jobs().total == 40 * len(SPECS) + len(old)


def test_the_database_refuses_a_second_one(store: Store, database_url: str):
    for n in range(2):
        store.add(NewJob(SPECS[0], {"n": n}))
    with (
        psycopg.connect(database_url) as connection,
        pytest.raises(psycopg.errors.UniqueViolation, match="jobs_unique"),
    ):
        connection.execute("UPDATE evenbeat.jobs SET unique_key = 'same'")


# -- what it is kept for, and what is refused ------------------------------------------------------


def test_a_job_stays_for_as_long_as_it_stands_for_others(mail: Mail):
    unique = mail.send.options(unique_for="30d", retention="1d")
    first = unique.enqueue("ann")
    mail.harness.drain()
    mail.harness.skip("29d")
    upkeep, now = mail.app.store.upkeep, mail.harness.now
    assert upkeep.prune_jobs(older_than=now, own_rule=True, now=now) == 0
    assert unique.enqueue("ann") == first
    mail.harness.skip("2d")
    now = mail.harness.now
    assert upkeep.prune_jobs(older_than=now, own_rule=True, now=now) == 1
    assert unique.enqueue("ann").created


@pytest.mark.parametrize(
    ("options", "message", "field"),
    [
        ({"unique_for": "1h", "debounce": "1m"}, "unique_for and debounce say", "debounce"),
        ({"unique_for": "1h", "throttle": "1m"}, "Give one of unique_for, throttle", "throttle"),
        ({"debounce_max": "1m"}, "give debounce too", "debounce_max"),
        ({"debounce": "2m", "debounce_max": "1m"}, "no longer than that", "debounce_max"),
        ({"unique_for": "soon"}, "is not a duration", "unique_for"),
        ({"throttle": 0}, "throttle must be longer than zero", "throttle"),
        ({"unique_by": "user"}, r"such as \[\"user\"\]", "unique_by"),
        ({"unique_by": []}, "one to 50 names", "unique_by"),
        ({"unique_by": ["to"], "unique_for": "1h"}, "'to'.* was not given", "unique_by"),
        ({"unique_by": ["page"]}, "even where it has a default", "unique_by"),
        ({"debounce": "1m", "name": "n"}, "neither name nor dedup_key", "debounce"),
        ({"debounce": "1m", "dedup_key": "n"}, "neither name nor dedup_key", "debounce"),
        ({"debounce": "1m", "after": "other"}, "not put off by debounce", "debounce"),
    ],
)
def test_bad_input(mail: Mail, options: dict[str, Any], message: str, field: str):
    with pytest.raises(InvalidInput, match=message) as caught:
        mail.send.options(**options).enqueue("ann")
    assert caught.value.field == field
    assert mail.count() == 0


def test_a_task_is_refused_whose_unique_by_it_does_not_take(mail: Mail):
    with pytest.raises(InvalidInput, match=r"'whom', which the task .* does not take"):

        @mail.app.task(unique_for="1h", unique_by=["whom"])
        def remind(ctx: Context, user: str) -> None: ...


def test_a_job_that_has_been_given_a_schedule_gives_its_key_back(mail: Mail):
    unique = mail.send.options(unique_for="1h")
    first = unique.enqueue("ann")
    mail.app.store.control.update(
        first.id, lambda spec: JobSpec(spec.task, schedule=Interval(timedelta(hours=1)))
    )
    assert unique.enqueue("ann").created


def test_a_job_that_is_debounced_no_more_gives_its_key_back(mail: Mail):
    debounced = mail.send.options(debounce="30s")
    first = debounced.enqueue("ann")
    mail.harness.advance("30s")
    second = debounced.enqueue("ann", page=2)
    for job in (first, second):
        mail.app.jobs.update(job.id, debounce=None)
    third = debounced.enqueue("ann", page=3)
    assert third.created
    mail.app.jobs.update(third.id, debounce="10m")
    assert debounced.enqueue("ann", page=4) == third
