"""What a run logs: numbered lines, of which the first and the last are kept."""

from collections import deque
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

HEAD_BYTES = TAIL_BYTES = 32 * 1024
"""How much is kept of a run's first lines, and of its last ones."""
MAX_LINE = 8 * 1024
"""How many characters are kept of one line."""
CHUNK_BYTES = 8 * 1024
_LEAST_BYTES = 16
"""What even an empty line counts for, so that their number is limited as well."""


class LogLine(NamedTuple):
    """A line; the numbers of a run begin with 1, and those that are missing were left out."""

    number: int
    at: datetime
    level: str
    logger: str
    text: str


class LogChunk(NamedTuple):
    """Lines of a run that follow each other and are written together. One without lines says that
    the run has logged at least `number` of them."""

    job_id: UUID
    execution_id: UUID
    number: int
    lines: list[LogLine]
    size: int


class RunLog:
    """A run's log on its way to the database: its first lines, and of the others as many of the
    last ones as there is room for. Its memory is limited by that."""

    def __init__(self, job_id: UUID, execution_id: UUID) -> None:
        self.number = 0
        """Of the newest line."""
        self.size = 0
        """How many bytes wait to be written."""
        self.execution_id = execution_id
        self._ids = job_id, execution_id
        self._head_left = HEAD_BYTES
        self._head: list[tuple[int, LogLine]] = []
        self._tail: deque[tuple[int, LogLine]] = deque()
        self._tail_bytes = 0
        self._unwritten: dict[int, LogChunk] = {}
        self._tail_chunks: deque[tuple[int, int]] = deque()
        self._outdated: list[int] = []
        self._skipped = 0
        """The newest line, if it was skipped."""

    def add(self, at: datetime, level: str, logger: str, text: str) -> None:
        """A line was logged."""
        self.number += 1
        line = LogLine(self.number, at, _clean(level[:20]), _clean(logger[:200]), shorten(text))
        size = max(_LEAST_BYTES, len(line.text.encode()) + 1)
        self.size += size
        self._skipped = 0
        if size <= self._head_left:
            self._head_left -= size
            self._head.append((size, line))
            return
        self._head_left = 0
        self._tail.append((size, line))
        self._tail_bytes += size
        while self._tail_bytes > TAIL_BYTES and len(self._tail) > 1:
            left_out, _ = self._tail.popleft()
            self._tail_bytes -= left_out
            self.size -= left_out

    def skip(self) -> None:
        """A line was logged for which there is no room."""
        self.number += 1
        self._skipped = self.number

    def take(self) -> tuple[list[LogChunk], list[int]]:
        """What is to be written, until `written`; and the numbers of chunks in the database that
        newer lines push out."""
        for is_tail, lines in ((False, self._head), (True, self._tail)):
            for chunk in self._chunks(lines):
                self._unwritten[chunk.number] = chunk
                if is_tail:
                    self._tail_chunks.append((chunk.number, chunk.size))
            lines.clear()
        self._tail_bytes = 0
        kept = sum(size for _, size in self._tail_chunks)
        while kept > TAIL_BYTES:
            number, size = self._tail_chunks.popleft()
            kept -= size
            if self._unwritten.pop(number, None) is None:
                self._outdated.append(number)
            else:
                self.size -= size
        if self._skipped:
            self._unwritten[self._skipped] = LogChunk(*self._ids, self._skipped, [], 0)
        return list(self._unwritten.values()), list(self._outdated)

    def written(self, chunks: Iterable[LogChunk], outdated: Collection[int]) -> None:
        """These have been written, and these removed."""
        for chunk in chunks:
            if self._unwritten.pop(chunk.number, None) is not None:
                self.size -= chunk.size
            if chunk.number == self._skipped:
                self._skipped = 0
        self._outdated = [number for number in self._outdated if number not in outdated]

    def __bool__(self) -> bool:
        """Whether there is something to write."""
        return bool(self._head or self._tail or self._unwritten or self._skipped)

    def _chunks(self, lines: Iterable[tuple[int, LogLine]]) -> Iterable[LogChunk]:
        chunk: list[LogLine] = []
        total = 0
        for size, line in lines:
            if chunk and (total + size > CHUNK_BYTES or chunk[-1].number + 1 != line.number):
                yield LogChunk(*self._ids, chunk[0].number, chunk, total)
                chunk, total = [], 0
            chunk.append(line)
            total += size
        if chunk:
            yield LogChunk(*self._ids, chunk[0].number, chunk, total)


def shorten(text: str) -> str:
    """A line as it is kept: not too long, and nothing in it that the database cannot hold."""
    if len(text) > MAX_LINE:
        text = f"{text[:MAX_LINE]}… ({len(text) - MAX_LINE:,} more characters)"
    return _clean(text)


def _clean(text: str) -> str:
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")
