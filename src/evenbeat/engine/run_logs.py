"""What runs log: caught where it is logged, and written to the database beside them.

A handler of the root logger passes on what is logged while the context variable `current_run` is
set, `ctx.logger` what that handler would not see, and on request a stream in place of standard
output what is printed. Lines gather with their run; a thread writes those of all runs together,
and the pipeline the last ones of a run before its end. A run that logs nothing costs nothing.
"""

import logging
import math
import os
import sys
import threading
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any, TextIO
from uuid import UUID

from evenbeat.domain.job import JobRecord
from evenbeat.domain.run_log import MAX_LINE, RunLog
from evenbeat.engine.clock import Clock
from evenbeat.engine.loop import Loop
from evenbeat.engine.run import ActiveRuns
from evenbeat.errors import DatabaseUnavailable, StoreError
from evenbeat.observe.logs import run_line
from evenbeat.store.store import Store
from evenbeat.tasks.context import RUN_FIELDS, TASK_LOGGERS, current_run

logger = logging.getLogger("evenbeat.worker")

FLUSH_SECONDS = 0.25
IDLE_SECONDS = 60.0
MOST_BYTES = 32 * 2**20
"""How much may wait to be written, of all runs together; beyond that lines are left out."""
MOST_AT_ONCE = 2**20
PAUSE_SECONDS = 30.0
"""For how long ends do not wait for lines, after these could not be written; and how often it is
said that lines were lost."""


# -- catching ------------------------------------------------------------------------------------


class RunLogHandler(logging.Handler):
    """Passes on what is logged within a run. Evenbeat's own lines are no run's."""

    def emit(self, record: logging.LogRecord) -> None:
        if logging.root.handlers == [self]:
            _say_unconfigured(record)
        context = current_run.get(None)
        if context is None or (leases := context.leases) is None:
            return
        is_own = record.name.startswith("evenbeat.") and not record.name.startswith(TASK_LOGGERS)
        if record.levelno >= leases.log_level and not is_own:
            leases.keep_record(context.job, record)


def _say_unconfigured(record: logging.LogRecord) -> None:
    """Where nothing is configured, warnings go to standard error; our handler must not be what
    keeps them from there."""
    place: logging.Logger | None = logging.getLogger(record.name)
    while place is not None and place is not logging.root:
        if place.handlers:
            return
        place = place.parent if place.propagate else None
    last = logging.lastResort
    if last is not None and record.levelno >= last.level:
        last.handle(record)


class PrintedLines:
    """Standard output that passes on what is printed within a run, line by line."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        written = self.stream.write(text)
        context = current_run.get(None)
        if context is not None and (leases := context.leases) is not None:
            *lines, begun = (_begun.get() + text).split("\n")
            if len(begun) > MAX_LINE:
                lines, begun = [*lines, begun], ""
            _begun.set(begun)
            if not math.isinf(leases.log_level):
                for line in lines:
                    fields = {"name": "print", "levelno": logging.INFO, "levelname": "INFO"}
                    leases.keep_record(context.job, logging.makeLogRecord(fields | {"msg": line}))
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


_begun: ContextVar[str] = ContextVar("evenbeat_printed", default="")
"""What was printed since the last end of a line."""
_handler = RunLogHandler()
_catching = threading.Lock()
_users = 0


def catch_logs(level: float, *, prints: bool) -> bool:
    """Have what runs of this process log passed on, until `release_logs` was called as often; False
    where nothing is kept."""
    global _users  # noqa: PLW0603 - logging and standard output are global
    if math.isinf(level):
        return False
    with _catching:
        _users += 1
        logging.root.addHandler(_handler)
        if prints and not isinstance(sys.stdout, PrintedLines):
            sys.stdout = PrintedLines(sys.stdout)
    return True


def release_logs() -> None:
    """The opposite."""
    global _users  # noqa: PLW0603
    with _catching:
        _users -= 1
        if not _users:
            logging.root.removeHandler(_handler)
            if isinstance(sys.stdout, PrintedLines):
                sys.stdout = sys.stdout.stream


def kept_line(record: logging.LogRecord) -> tuple[str, str, str]:
    """Level, logger and text of a record, as they are kept."""
    return record.levelname, record.name, run_line(record, RUN_FIELDS)


# -- writing -------------------------------------------------------------------------------------


class RunLogWriter(Loop):
    """Writes what a worker's runs log. Lines that cannot be written in time are left out, which
    their numbers tell; no run waits for that, and none fails."""

    name = "run-logs"
    longest_pause = 2.0

    def __init__(
        self, store: Store, runs: ActiveRuns, clock: Clock, *, level: str, prints: bool
    ) -> None:
        """`level` is the least that is kept, or `off`."""
        super().__init__()
        self.level = math.inf if level == "off" else logging.getLevelNamesMapping()[level.upper()]
        self._prints = prints
        self._catching = False
        self._store = store
        self._runs = runs
        self._clock = clock
        self._pid: int | None = None
        self._logs: dict[UUID, RunLog] = {}
        self._size = 0
        self._lost = 0
        self._lock = threading.RLock()  # what is logged while it is held must not wait for it
        self._writing = threading.Lock()
        self._no_waiting_until = self._say_at = 0.0
        self._idle = False

    def trouble(self) -> str:
        return "cannot write what runs have logged"

    def start(self) -> None:
        self.catch()
        super().start()

    def stop(self) -> None:
        self.release()
        super().stop()

    def catch(self) -> None:
        """Have what runs log passed on, until `release`."""
        if not self._catching:
            self._pid = os.getpid()
            self._catching = catch_logs(self.level, prints=self._prints)

    def release(self) -> None:
        """The opposite."""
        if self._catching:
            self._catching = False
            release_logs()

    def keep_record(self, job: JobRecord, record: logging.LogRecord) -> None:
        """A run has logged this."""
        self.add(job, *kept_line(record))

    def add(self, job: JobRecord, level: str, source: str, text: str) -> None:
        """A run has logged a line. One that is over has no log any more."""
        token = job.lock_token
        if token is None or os.getpid() != self._pid:  # a process that the run has forked
            return
        at = self._clock.now()
        with self._lock:
            if (log := self._logs.get(token)) is None:
                if token not in self._runs:
                    return
                log = self._logs[token] = RunLog(job.id, token)
            before = log.size
            if self._size < MOST_BYTES:
                log.add(at, level, source, text)
            else:
                log.skip()
            self._size += log.size - before
        if self._idle:
            self._idle = False
            self.wake()

    def run_once(self) -> float:
        """Write what has been logged since the last time."""
        self._idle = False
        with self._lock:
            logs = [log for log in self._logs.values() if log]
        if logs:
            with self._writing:
                self._write(logs)
            return FLUSH_SECONDS
        self._idle = True  # what was logged just before this line is seen by the next one
        return 0.0 if any(list(self._logs.values())) else IDLE_SECONDS

    def flush(self, tokens: Iterable[UUID]) -> None:
        """Write what these runs, which are about to end, have logged: afterwards their leases are
        gone. Where that takes too long, they end without it."""
        if not self._logs or self._monotonic() < self._no_waiting_until:
            return
        with self._lock:
            logs = [log for token in tokens if (log := self._logs.get(token))]
        if not logs or not self._writing.acquire(timeout=1.0):
            return
        try:
            self._write(logs)
        except Exception as error:
            if not isinstance(error, DatabaseUnavailable):  # then the ends cannot be written either
                self._no_waiting_until = self._monotonic() + PAUSE_SECONDS
            self.failed(error)
        finally:
            self._writing.release()

    def forget(self, tokens: Iterable[UUID]) -> None:
        """These runs are over: what they log from now on is nobody's."""
        if not self._logs:
            return
        with self._lock:
            for token in tokens:
                if log := self._logs.pop(token, None):
                    self._size -= log.size
                    self._lost += 1
        if self._lost and (now := self._monotonic()) >= self._say_at:
            fields = {"runs": self._lost}
            self._lost, self._say_at = 0, now + PAUSE_SECONDS
            logger.warning("The last lines of runs were not kept", extra=fields)

    def _write(self, logs: list[RunLog]) -> None:
        while logs:
            some, size = [], 0
            while logs and size < MOST_AT_ONCE:
                some.append(logs.pop())
                size += some[-1].size
            with self._lock:
                taken = [log.take() for log in some]
            chunks = [chunk for new, _ in taken for chunk in new]
            old = [
                (log.execution_id, n)
                for log, (_, gone) in zip(some, taken, strict=True)
                for n in gone
            ]
            try:
                self._store.run_logs.add(chunks, old)
            except StoreError:
                raise
            except Exception as error:  # it would not succeed the next time either
                self.failed(error)
            with self._lock:
                for log, (new, gone) in zip(some, taken, strict=True):
                    before = log.size
                    log.written(new, gone)
                    if log.execution_id in self._logs:
                        self._size += log.size - before
