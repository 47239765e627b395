"""Where claims begin to look while rows that have gone make the way from the front long."""

from datetime import UTC, datetime, timedelta

from evenbeat.store.rows import Frontier

OLDEST = datetime(2030, 1, 1, tzinfo=UTC)
LATER = OLDEST + timedelta(seconds=1)


def claim(
    frontier: Frontier, at: float, seconds: float, oldest: datetime = OLDEST, jobs: int = 1
) -> datetime | None:
    """What a claim does with it; returns where it began."""
    frontier.begin(at)
    since = frontier.since
    if frontier.should_move(at, seconds, jobs):
        frontier.since = oldest
    return since


def test_while_looks_are_quick_they_begin_at_the_front():
    frontier = Frontier()
    assert [claim(frontier, n / 10, 0.002) for n in range(5)] == [None] * 5
    assert claim(frontier, 1, 0.03, jobs=1000) is None
    assert claim(frontier, 1.1, 0.03, jobs=1000) is None, "many jobs take their time"


def test_after_a_slow_look_the_next_ones_begin_at_the_oldest_waiting_job():
    frontier = Frontier()
    assert claim(frontier, 0.0, 0.04) is None
    assert claim(frontier, 0.1, 0.002, LATER) == OLDEST
    assert claim(frontier, 0.24, 0.002, LATER) == OLDEST, "it is not asked for every time"
    assert claim(frontier, 0.25, 0.002, LATER) == OLDEST
    assert claim(frontier, 0.26, 0.002) == LATER


def test_where_it_does_not_help_it_is_left_for_some_seconds():
    """As with a database that is far away: every claim takes its time."""
    frontier = Frontier()
    assert claim(frontier, 0.0, 0.04) is None
    assert [claim(frontier, n / 10, 0.04) for n in range(1, 4)] == [OLDEST] * 3
    assert [claim(frontier, n, 0.04) for n in range(1, 7)] == [None] * 6
    assert claim(frontier, 6.1, 0.002) == OLDEST, "tried again"
    assert claim(frontier, 6.2, 0.04) == OLDEST
    assert claim(frontier, 6.3, 0.04) == OLDEST, "a slow one or two mean nothing"


def test_every_now_and_then_one_begins_at_the_front_and_takes_little_of_the_time():
    frontier = Frontier()
    claim(frontier, 0.0, 0.04)
    assert claim(frontier, 0.99, 0.002, LATER) == OLDEST
    assert claim(frontier, 1.0, 0.2, LATER) is None
    assert claim(frontier, 4.9, 0.002, LATER) == LATER, "a fifth of a second, so not for four"
    assert claim(frontier, 5.0, 0.002, LATER) is None
    assert claim(frontier, 5.1, 0.002, LATER) is None, "it was quick again"
