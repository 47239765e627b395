"""Fair turns: how the room of a claim is dealt out to keys that take turns."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from evenbeat.domain.fair_turns import deal, in_turns

weights = st.lists(st.integers(1, 5), min_size=1, max_size=6)


def test_keys_of_one_weight_share_evenly_and_the_next_goes_on():
    assert deal(10, [1, 1]) == ([5, 5], 1, 1)
    assert deal(3, [1, 1]) == ([2, 1], 0, 1)
    assert deal(1, [1, 1, 1]) == ([1, 0, 0], 0, 1)


def test_a_turn_that_was_cut_short_is_finished_first():
    assert deal(1, [3, 1], 1) == ([1, 0], 0, 2)
    assert deal(1, [3, 1], 2) == ([1, 0], 0, 3)
    assert deal(2, [3, 1], 2) == ([1, 1], 1, 1)
    assert deal(6, [3, 1], 2) == ([1 + 3 + 0, 1 + 1], 1, 1)


def test_of_many_keys_none_comes_twice_before_those_that_were_not_looked_at():
    assert deal(5, [1, 1], is_all=False) == ([2, 2], 1, 1)  # the rest is for the next keys
    assert deal(1, [1, 1], is_all=False) == ([1, 0], 0, 1)
    assert deal(9, [3, 1], 1, is_all=False) == ([2, 7], 1, 1)
    assert deal(9, [3], 1, is_all=False) == ([2], 0, 3)


@given(weights, st.lists(st.integers(1, 12), min_size=1, max_size=40))
def test_however_room_comes_keys_get_it_by_their_weights(weights: list[int], rooms: list[int]):
    """Every key always has work. One job at a time in turns is the rule; any division of the same
    room into claims must come to the same."""
    expected = [key for key, weight in enumerate(weights) for _ in range(weight)]
    total, got = sum(rooms), Counter[int]()
    order, started = list(range(len(weights))), 0
    for room in rooms:
        dealt = deal(room, [weights[key] for key in order], started)
        assert sum(dealt.shares) == room
        got.update(dict(zip(order, dealt.shares, strict=True)))
        last, started = dealt.last, dealt.started
        over = started >= weights[order[last]]
        begin = last + 1 if over else last
        order, started = order[begin:] + order[:begin], 0 if over else started
    turns = [expected[n % len(expected)] for n in range(total)]
    assert {key: n for key, n in got.items() if n} == Counter(turns)


@given(weights, st.integers(1, 30), st.integers(0, 4))
def test_no_key_gets_more_than_a_round_before_another(weights: list[int], room: int, started: int):
    started = min(started, weights[0] - 1)
    shares, last, begun = deal(room, weights, started, is_all=True)
    assert sum(shares) == room
    assert 0 < begun <= weights[last]
    rounds = [(share + (started if key == 0 else 0)) / weights[key]
              for key, share in enumerate(shares)]  # fmt: skip
    assert max(rounds) - min(rounds) <= 1


@given(weights, st.integers(1, 30), st.integers(0, 4))
def test_of_a_part_of_the_keys_the_last_is_where_the_others_follow(
    weights: list[int], room: int, started: int
):
    started = min(started, weights[0] - 1)
    shares, last, _ = deal(room, weights, started, is_all=False)
    assert sum(shares) <= room
    assert sum(shares) > 0
    assert not any(shares[last + 1 :])


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3))))
def test_claimed_jobs_start_in_turns(jobs: list[tuple[str, int]]):
    ordered = in_turns(jobs, lambda job: job[0], lambda job: job[1])
    assert Counter(ordered) == Counter(jobs)
    for key in "abc":
        assert [job for job in ordered if job[0] == key] == [job for job in jobs if job[0] == key]


def test_the_small_key_is_not_behind_the_large_one():
    assert in_turns("aaaab", str, lambda _: 1) == list("abaaa")
    assert in_turns("aaaabb", str, lambda key: 2 if key == "a" else 1) == list("aabaab")
