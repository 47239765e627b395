"""The log of a run on its way to the database: its first lines and its last ones."""

from datetime import UTC, datetime
from uuid import uuid4

import pytest

from evenbeat.domain.run_log import CHUNK_BYTES, HEAD_BYTES, MAX_LINE, TAIL_BYTES, RunLog, shorten

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def add(log: RunLog, number: int, text: str = "x" * 99) -> None:
    for _ in range(number):
        log.add(NOW, "INFO", "a", text)


def stored(log: RunLog, rows: dict[int, list[int]]) -> None:
    """What writing it does to the rows of the run: the numbers of the lines of each chunk."""
    chunks, outdated = log.take()
    for chunk in chunks:
        rows[chunk.number] = [line.number for line in chunk.lines]
    for number in outdated:
        del rows[number]
    log.written(chunks, outdated)
    assert not log
    assert log.size == 0


@pytest.mark.parametrize("batch", [1, 7, 100, 333, 5000])
def test_the_first_and_the_last_lines_are_kept_however_they_come(batch: int):
    log, rows = RunLog(uuid4(), uuid4()), dict[int, list[int]]()
    for _ in range(5000 // batch):
        add(log, batch)
        assert log.size <= HEAD_BYTES + TAIL_BYTES
        stored(log, rows)
    kept = sorted(number for lines in rows.values() for number in lines)
    assert kept[:327] == list(range(1, 328))  # 327 * 100 bytes
    last = log.number
    tail = [number for number in kept if number > 327]
    assert tail == list(range(tail[0], last + 1))
    assert TAIL_BYTES - CHUNK_BYTES <= 100 * len(tail) <= TAIL_BYTES
    assert rows.keys() == {lines[0] for lines in rows.values()}


def test_what_is_not_written_stays_and_is_offered_again():
    log, rows = RunLog(uuid4(), uuid4()), dict[int, list[int]]()
    add(log, 10)
    first, _ = log.take()
    for _ in range(50):
        add(log, 200)
        log.take()
        assert log.size <= HEAD_BYTES + 2 * TAIL_BYTES
    again, outdated = log.take()
    assert again[: len(first)] == first
    assert outdated == []
    stored(log, rows)
    kept = [number for lines in rows.values() for number in lines]
    assert kept == sorted(kept)
    assert kept[-1] == log.number == 10_010


def test_lines_without_room_leave_a_gap_and_a_mark_at_the_end():
    log = RunLog(uuid4(), uuid4())
    add(log, 2)
    for _ in range(3):
        log.skip()
    add(log, 1)
    log.skip()
    chunks, outdated = log.take()
    assert [(chunk.number, len(chunk.lines)) for chunk in chunks] == [(1, 2), (6, 1), (7, 0)]
    log.skip()  # while it is written
    log.written(chunks, outdated)
    assert [(chunk.number, len(chunk.lines)) for chunk in log.take()[0]] == [(8, 0)]


def test_many_empty_lines_are_limited_too():
    log = RunLog(uuid4(), uuid4())
    add(log, 100_000, "")
    chunks, _ = log.take()
    assert sum(len(chunk.lines) for chunk in chunks) == (HEAD_BYTES + TAIL_BYTES) // 16


def test_a_line_is_cut_and_cleaned():
    assert shorten("a\0\ud800") == "a\N{REPLACEMENT CHARACTER}?"
    assert shorten("x" * 1_000_000) == "x" * MAX_LINE + "… (991,808 more characters)"
