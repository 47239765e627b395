"""More processes than cores: who leaves a backlog to the others, for how long, and who never."""

import errno
import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenbeat import Evenbeat
from evenbeat.engine import worker as worker_module
from evenbeat.engine.crowd import (
    BUSY_SHARE,
    FIRST_LOOK_SECONDS,
    IDLE_LOOKS,
    LONGEST_SECONDS,
    MISTAKEN_SECONDS,
    REST_SECONDS,
    Cores,
    Crowd,
    NamedSeats,
    SeatForAll,
    crowd_of,
)
from evenbeat.testing import Harness

linux = pytest.mark.skipif(sys.platform != "linux", reason="seats are kept on Linux only")


class World:
    """A machine whose seats and cores the test holds in its hands."""

    def __init__(self, monotonic: Callable[[], float] | None = None) -> None:
        self.now = 100.0
        self.cores = 1.0
        self.seats_free = 0
        self.seated = False
        self.looks = 0
        self.short_of_slots = False
        self.crowd = Crowd(
            self,
            lambda: self.cores,
            lambda: self.short_of_slots,
            monotonic or (lambda: self.now),
        )

    def take(self) -> bool:
        self.looks += 1
        if not self.seated and self.seats_free > 0:
            self.seats_free -= 1
            self.seated = True
        return self.seated

    def leave(self) -> None:
        if self.seated:
            self.seats_free += 1
        self.seated = False

    def after(self, seconds: float) -> bool:
        self.now += seconds
        return self.crowd.look()


@pytest.fixture
def world() -> World:
    """All seats taken, all cores busy, a backlog."""
    world = World()
    world.crowd.claimed(full=True)
    return world


def test_it_stands_back_from_a_backlog_that_others_drain_with_all_cores(world: World) -> None:
    assert not world.crowd.look()  # not before it has seen the cores for a moment
    assert world.after(FIRST_LOOK_SECONDS)
    assert world.after(REST_SECONDS)
    assert world.crowd.standing_back


def test_it_does_not_without_a_backlog() -> None:
    world = World()
    world.crowd.claimed(full=False)
    assert not world.after(60)
    world.crowd.claimed(full=True)
    world.crowd.claimed(full=False)
    assert not world.after(60)


def test_it_does_not_with_a_seat_and_keeps_it_until_the_backlog_is_gone(world: World) -> None:
    assert world.after(1)
    world.seats_free = 1
    assert not world.after(0)  # at once, without a look at the cores
    assert world.seated
    world.crowd.claimed(full=True)
    assert world.seated
    world.crowd.claimed(full=False)
    assert (world.seated, world.seats_free) == (False, 1)


def test_it_does_not_while_cores_are_idle(world: World) -> None:
    world.cores = BUSY_SHARE - 0.01
    assert not any(world.after(REST_SECONDS) for _ in range(100))


def test_it_does_not_while_its_own_slots_are_what_is_short(world: World) -> None:
    world.short_of_slots = True
    assert not any(world.after(REST_SECONDS) for _ in range(100))
    world.short_of_slots = False
    assert world.after(REST_SECONDS)


def test_cores_that_fall_idle_call_it_back_and_it_does_not_try_again_soon(world: World) -> None:
    assert world.after(1)
    world.cores = 0.5
    assert [world.after(REST_SECONDS) for _ in range(IDLE_LOOKS)] == [True] * (IDLE_LOOKS - 1) + [
        False
    ]
    world.cores = 1.0
    assert not world.after(MISTAKEN_SECONDS - 0.1)
    assert world.after(REST_SECONDS)


def test_a_moment_without_work_for_the_cores_does_not_call_it_back(world: World) -> None:
    assert world.after(1)
    for _ in range(5):
        world.cores = 0.5
        assert all(world.after(REST_SECONDS) for _ in range(IDLE_LOOKS - 1))
        world.cores = 1.0
        assert world.after(REST_SECONDS)


def next_backlog(world: World) -> None:
    """The present one ends, and another begins with all seats taken."""
    world.seats_free = 1
    assert not world.after(0)
    world.crowd.claimed(full=False)
    world.seats_free = 0
    assert not world.after(60)
    world.crowd.claimed(full=True)


def test_who_was_right_stands_back_from_the_next_backlog_at_once(world: World) -> None:
    assert world.after(1)
    assert world.after(REST_SECONDS)
    next_backlog(world)
    assert world.crowd.look()
    assert world.crowd.rest == pytest.approx(FIRST_LOOK_SECONDS)
    world.cores = 0.5  # were the next backlog of another kind, it would come back as before
    assert [world.after(REST_SECONDS) for _ in range(IDLE_LOOKS)] == [True] * (IDLE_LOOKS - 1) + [
        False
    ]


def test_it_comes_back_once_its_first_jobs_turn_out_to_last(world: World) -> None:
    assert world.after(1)
    next_backlog(world)
    assert world.crowd.look()
    world.short_of_slots = True
    assert not world.after(FIRST_LOOK_SECONDS)
    world.short_of_slots = False
    next_backlog(world)
    assert not world.crowd.look()  # that was not right, so it sees the cores first


def test_who_was_wrong_or_is_short_of_slots_now_looks_first(world: World) -> None:
    assert world.after(1)
    world.cores = 0.5
    assert world.after(REST_SECONDS)
    next_backlog(world)
    world.cores = 1.0
    assert not world.crowd.look()
    assert world.after(FIRST_LOOK_SECONDS)
    world.short_of_slots = True
    next_backlog(world)
    assert not world.crowd.look()
    assert not world.after(FIRST_LOOK_SECONDS)


def test_stopping_makes_room(world: World) -> None:
    world.seats_free = 1
    world.crowd.look()
    world.crowd.leave()
    world.crowd.leave()
    assert world.seats_free == 1


def test_it_says_so_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "evenbeat.engine.crowd"):
        for _ in range(200):
            world.after(REST_SECONDS)
    assert [record.message.split(",")[0] for record in caplog.records] == ["All cores are busy"]


@given(
    st.lists(
        st.tuples(st.floats(0.001, 3), st.floats(0, 1), st.integers(0, 1), st.booleans()),
        max_size=200,
    )
)
def test_whatever_happens_it_claims_again_and_seats_are_not_lost(
    moments: list[tuple[float, float, int, bool]],
) -> None:
    """It never stands back with a seat, without a backlog, or for longer than it may."""
    world, seats, full, looks = World(), 0, False, []
    for seconds, world.cores, freed, next_full in moments:
        world.seats_free += freed
        seats += freed
        back = world.after(seconds)
        looks.append((world.now, back))
        assert not (back and (world.seated or not full))
        assert world.seated + world.seats_free == seats
        if not back:
            full = next_full
            world.crowd.claimed(full=full)
    stretch = 0.0
    for (earlier, back), (later, _) in pairwise(looks):
        stretch = stretch + later - earlier if back else 0.0
        assert stretch < LONGEST_SECONDS + REST_SECONDS + 2 * 3


# -- the real thing ----------------------------------------------------------------------------


@linux
def test_each_seat_is_taken_once_and_by_those_of_one_mind_only() -> None:
    first, second, third = (NamedSeats(["here", "a", "b"], 2) for _ in range(3))
    assert (first.take(), second.take(), third.take()) == (True, True, False)
    others = NamedSeats(["here", "a", "c"], 2)
    assert others.take()
    assert first.take()
    first.leave()
    assert third.take()
    assert not first.take()
    for seats in (first, second, third, others):
        seats.leave()


@linux
def test_a_killed_process_leaves_its_seat() -> None:
    code = (
        "import time; from evenbeat.engine.crowd import NamedSeats\n"
        "seats = NamedSeats(['killed'], 1); print(seats.take(), flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"True\n"
        mine = NamedSeats(["killed"], 1)
        assert not mine.take()
        other.kill()
        other.wait()
        assert mine.take()
        mine.leave()


@linux
def test_without_sockets_or_a_look_at_the_cores_it_claims_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    first = NamedSeats(["refused"], 1)
    assert first.take()
    monkeypatch.setattr(socket, "socket", refused)
    assert NamedSeats(["refused"], 1).take()
    monkeypatch.undo()
    assert not NamedSeats(["refused"], 1).take()
    monkeypatch.setattr(psutil, "cpu_times", refused)
    assert Cores().busy() == 0
    first.leave()


def test_the_share_of_busy_cores_is_a_share() -> None:
    cores = Cores()
    assert 0 <= cores.busy() <= 1
    deadline = time.thread_time() + 0.2
    while time.thread_time() < deadline:
        pass
    assert 0 < cores.busy() <= 1


def test_where_seats_cannot_be_kept_nobody_stands_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    crowds = [crowd_of(["x"], lambda: False) for _ in range(99)]
    for crowd in crowds:
        crowd.claimed(full=True)
    assert not any(crowd.look() for crowd in crowds)
    assert SeatForAll().take()


def test_a_worker_that_stands_back_drains_the_backlog_when_a_seat_is_free(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(time.monotonic)
    monkeypatch.setattr(worker_module, "crowd_of", lambda *_: world.crowd)
    app = Evenbeat(database_url, concurrency=2, poll_seconds=3600)
    run = threading.Semaphore(0)
    count = 0

    @app.task
    def step() -> None:
        nonlocal count
        assert run.acquire(timeout=30)
        count += 1

    with app:
        app.enqueue_many(step.job() for _ in range(50))
        worker = app.worker()
        worker.start()
        try:
            for _ in range(10):  # a run at a time: claims come back full
                run.release()
                time.sleep(0.02)
            wait_until(lambda: worker.vitals().runners[0].standing_back, "it never stood back")
            assert (
                'evenbeat_standing_back{runner="thread"} 1.0' in app.metrics.render().body.decode()
            )
            run.release(100)
            wait_until(lambda: not worker.runs, "it did not end what it had")
            left = 50 - count
            assert left > 0
            looks = world.looks
            time.sleep(2 * REST_SECONDS)
            assert 50 - count == left  # the rest is left to the others
            assert world.looks - looks < 20  # at its ease
            world.seats_free = 1
            wait_until(lambda: count == 50, "a free seat was not taken")
            wait_until(lambda: world.seats_free == 1, "the seat was not given up")

            while run.acquire(blocking=False):
                pass
            app.enqueue_many(step.job() for _ in range(50))
            wait_until(lambda: world.seated, "it did not sit down to a new backlog")
            worker.drain()
            wait_until(lambda: not world.seated, "it kept the seat when it stopped")
        finally:
            run.release(100)
            worker.stop()


def test_a_worker_driven_by_hand_stands_back_from_nothing(
    database_url: str, evenbeat_harness: Callable[..., Harness], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    monkeypatch.setattr(worker_module, "crowd_of", lambda *_: world.crowd)
    app = Evenbeat(database_url, concurrency=2)

    @app.task
    async def step() -> None: ...

    harness = evenbeat_harness(app)
    app.enqueue_many(step.job() for _ in range(50))
    assert harness.drain() == 50
    assert world.looks == 0


def test_a_worker_knows_whether_handlers_that_last_have_its_slots(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    short: list[Callable[[], bool]] = []

    def crowd(who: list[str], short_of_slots: Callable[[], bool]) -> Crowd:
        short.append(short_of_slots)
        return crowd_of(who, short_of_slots)

    monkeypatch.setattr(worker_module, "crowd_of", crowd)
    app = Evenbeat(database_url, concurrency=8)
    release = threading.Event()

    @app.task
    def waits() -> None:
        release.wait(30)

    @app.task
    async def other() -> None: ...

    with app:
        worker = app.worker()
        worker.start()
        try:
            wait_until(lambda: len(short) == len(worker.runners) == 2, "not one for each runner")
            app.enqueue_many(waits.job() for _ in range(2))
            wait_until(lambda: worker.running == 2, "they did not start")
            time.sleep(0.1)
            assert not any(is_short() for is_short in short)  # a quarter, and no more
            waits.enqueue()
            wait_until(lambda: any(is_short() for is_short in short), "it does not see it")
            assert sum(is_short() for is_short in short) == 1  # of the one runner only
            time.sleep(0.5)
            release.set()
            wait_until(lambda: not worker.runs, "they do not end")
            assert sum(is_short() for is_short in short) == 1  # the last ones took long
            app.enqueue_many(waits.job() for _ in range(100))
            wait_until(lambda: not any(is_short() for is_short in short), "it does not forget")
        finally:
            release.set()
            worker.stop()


def wait_until(true: Callable[[], object], otherwise: str) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.01)
