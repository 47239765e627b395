"""What runs have logged."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from evenbeat.domain.run_log import LogChunk, LogLine
from evenbeat.store.part import BATCH, Between, StorePart, go_on

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
EVERY_LINE = 10_000
"""More than are kept of any run."""


class LogPage(NamedTuple):
    """Lines of a run's log. `left_out` others were before, between or after them; the next page
    begins `after` this number."""

    lines: list[LogLine]
    left_out: int
    after: int
    has_more: bool


class RunLogs(StorePart):
    """The logs of runs: written by their workers, read by anybody, gone before the history is."""

    def add(self, chunks: Sequence[LogChunk], outdated: Iterable[tuple[UUID, int]] = ()) -> int:
        """Add lines of runs whose leases hold, and remove chunks that those push out. Returns how
        many chunks are new."""
        old = list(outdated)
        params = {
            "job_ids": [chunk.job_id for chunk in chunks],
            "runs": [chunk.execution_id for chunk in chunks],
            "numbers": [chunk.number for chunk in chunks],
            "lines": [_to_json(chunk.lines) for chunk in chunks],
            "old_runs": [run for run, _ in old],
            "old_numbers": [number for _, number in old],
        }
        return len(self._database.rows("add_log_lines", params))

    def page(self, execution_id: UUID, *, after: int = 0, limit: int = EVERY_LINE) -> LogPage:
        """The lines after this number; none where the run has logged nothing, or is not known."""
        lines: list[LogLine] = []
        left_out, params = 0, {"execution_id": execution_id, "after": after}
        for number, chunk in self._database.rows("log_lines_after", params):
            if not chunk and number > after:
                left_out += number - after
                after = number
            for line in _from_json(number, chunk):
                if line.number <= after:
                    continue
                if len(lines) == limit:
                    return LogPage(lines, left_out, after, has_more=True)
                left_out += line.number - after - 1
                after = line.number
                lines.append(line)
        return LogPage(lines, left_out, after, has_more=False)

    def prune(self, *, older_than: datetime, between: Between = go_on) -> int:
        """Forget what runs have logged that began before the moment and are over."""
        return self._prune("prune_run_logs", older_than, BATCH, between)


def _to_json(lines: Iterable[LogLine]) -> str:
    columns = [
        ((line.at - _EPOCH) // _MILLISECOND, line.level, line.logger, line.text) for line in lines
    ]
    return json.dumps(columns, ensure_ascii=False)


def _from_json(number: int, lines: Iterable[Any]) -> Iterable[LogLine]:
    for n, (at, level, logger, text) in enumerate(lines, number):
        yield LogLine(n, _EPOCH + at * _MILLISECOND, level, logger, text)
