"""The database's time between its answers: never further off than the quickest answer allows."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from evenbeat.engine.clock import DatabaseClock

START = datetime(2030, 1, 1, tzinfo=UTC)
ROUNDING = timedelta(microseconds=100)

ways = st.floats(0, 3)
questions = st.lists(st.tuples(ways, ways, ways), min_size=1, max_size=20)
errors = st.floats(-5000, 5000)


class World:
    """A steady clock here, a database's clock there, and the way between them."""

    def __init__(self, set_wrong_by: float = 0) -> None:
        self.steady = 0.0
        self.ahead = timedelta()
        self.clock = DatabaseClock(START + timedelta(seconds=set_wrong_by), lambda: self.steady)

    @property
    def true(self) -> datetime:
        return START + timedelta(seconds=self.steady) + self.ahead

    @property
    def error(self) -> timedelta:
        return self.clock.now() - self.true

    def ask(self, there: float, back: float) -> None:
        asked_at = self.steady
        self.steady += there
        shown = self.true
        self.steady += back
        self.clock.observe(shown, asked_at=asked_at)


@given(errors, questions)
def test_it_is_no_further_off_than_the_quickest_round_trip(
    set_wrong_by: float, questions: list[tuple[float, float, float]]
) -> None:
    world = World(set_wrong_by)
    quickest = float("inf")
    for pause, there, back in questions:
        world.steady += pause
        world.ask(there, back)
        quickest = min(quickest, there + back)
        assert abs(world.error) <= timedelta(seconds=quickest) + ROUNDING


@given(questions)
def test_a_clock_that_is_right_stays_right(questions: list[tuple[float, float, float]]) -> None:
    world = World()
    for pause, there, back in questions:
        world.steady += pause
        world.ask(there, back)
    assert abs(world.error) <= ROUNDING


def test_an_answer_that_was_long_under_way_does_not_put_it_back() -> None:
    world = World(set_wrong_by=-40)
    world.ask(0.001, 0.001)
    world.ask(0.001, 0.9)
    assert abs(world.error) <= timedelta(seconds=0.002)


@given(errors)
def test_it_follows_a_database_whose_clock_is_set_anew(by: float) -> None:
    world = World()
    world.ask(0.001, 0.001)
    world.ahead = timedelta(seconds=by)
    world.ask(0.001, 0.001)
    assert abs(world.error) <= timedelta(seconds=0.002) + ROUNDING
