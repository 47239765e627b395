"""Ids: version 7, unique, and in the order of their making."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenbeat.domain.ids import uuid7, uuid7_many

NOON = 1_772_366_400.0
# Six bytes of milliseconds end in the year 10889; dates end before.
seconds = st.floats(0, 253_402_300_799, allow_nan=False)


def milliseconds(id_):
    return id_.int >> 80


@given(seconds)
def test_an_id_has_the_version_and_variant_of_a_uuid7(moment):
    id_ = uuid7(moment)
    assert (id_.version, id_.variant) == (7, "specified in RFC 4122")


@given(seconds)
def test_an_id_begins_with_its_millisecond(moment):
    assert milliseconds(uuid7(moment)) == int(moment * 1000)


@given(seconds, seconds)
def test_ids_of_different_milliseconds_sort_by_time(one, other):
    early, late = sorted((one, other))
    if int(early * 1000) < int(late * 1000):
        assert uuid7(early) < uuid7(late)


def test_ids_that_are_made_one_after_another_sort_in_that_order():
    ids = [uuid7() for _ in range(1000)]
    assert ids == sorted(ids)


@pytest.mark.parametrize("count", [0, 1, 2, 4096, 4097, 10_000])
def test_a_batch_is_sorted_and_unique(count):
    ids = uuid7_many(count, NOON)
    assert len(ids) == len(set(ids)) == count
    assert ids == sorted(ids)
    assert {id_.version for id_ in ids} <= {7}


def test_a_batch_moves_on_to_the_next_millisecond_when_one_is_full():
    ids = uuid7_many(4097, NOON)
    assert [milliseconds(id_) - int(NOON * 1000) for id_ in (ids[0], ids[4095], ids[4096])] == [
        0,
        0,
        1,
    ]


def test_two_batches_of_one_moment_share_no_id():
    assert not set(uuid7_many(5000, NOON)) & set(uuid7_many(5000, NOON))


def test_ids_made_one_by_one_share_nothing_either():
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _: uuid7(NOON), range(5000)))
    assert len(set(made)) == 5000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_forked_process_makes_ids_of_its_own():
    program = (
        "import os; from evenbeat.domain.ids import uuid7; uuid7(1.0); os.fork();"
        "os.write(1, b''.join(uuid7(1.0).bytes for _ in range(200)))"
    )
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout
    assert len(made) == 2 * 200 * 16
    assert len({made[at : at + 16] for at in range(0, len(made), 16)}) == 2 * 200


def test_without_a_moment_the_clock_counts():
    before = int(time.time() * 1000)
    id_ = uuid7()
    assert before <= milliseconds(id_) <= int(time.time() * 1000)
