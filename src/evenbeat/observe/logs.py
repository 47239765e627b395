"""Log lines: the standard library's records, one event a line.

    2025-12-29T10:30:00.123Z INFO  Executing job  job_id=… source_name=example.com retry_attempt=0
    {"timestamp": "…", "level": "info", "event": "Executing job", "logger": "…", "job_id": "…"}

Evenbeat's own lines, `ctx.logger`, any logger of user code and warnings go through one formatter.

A worker at full load writes two lines a job, so lines are buffered and written together: after
`FLUSH_SECONDS`, when many wait, at once for an error, and at exit. `kill -9` loses what was logged
in the last `FLUSH_SECONDS`; nothing but the log depends on it, since a job's history is in the
database.
"""

import json
import logging
import os
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from functools import partial
from typing import Any, TextIO

from evenbeat.errors import InvalidInput

FLUSH_SECONDS = 0.1
_MANY_LINES = 256


class LogFormat(StrEnum):
    """What a line looks like: for people, or for machines."""

    CONSOLE = "console"
    JSON = "json"


_configured: tuple[LogFormat, str] | None = None


def configure_logging(
    format: LogFormat | str = LogFormat.CONSOLE,  # noqa: A002 - what users call it
    level: str = "INFO",
    *,
    stream: TextIO | None = None,
    buffered: bool = True,
) -> "LineHandler":
    """Send every log record of this process to `stream` (standard error), in this format.

    Replaces what was configured before. The handler is returned so that it can be flushed; if not
    `buffered`, each line is written at once.
    """
    global _configured  # noqa: PLW0603 - logging itself is global
    if format not in tuple(LogFormat):
        raise InvalidInput(
            f"There is no log format {format!r}. The formats are: {', '.join(LogFormat)}.",
            field="format",
        )
    if level.upper() not in logging.getLevelNamesMapping():
        raise InvalidInput(
            f"There is no log level {level!r}. The levels are: debug, info, warning, error, "
            "critical.",
            field="level",
        )
    _configured = LogFormat(format), level.upper()
    target = stream or sys.stderr
    handler = LineHandler(target, buffered=buffered)
    colours = target.isatty() and not os.environ.get("NO_COLOR")
    on_console = partial(_console_line, colours=_COLOURS if colours else {})
    handler.setFormatter(LineFormatter(_json_line if format == LogFormat.JSON else on_console))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
    return handler


def current_logging() -> tuple[LogFormat, str] | None:
    """Format and level of this process, if configured, for a child process to log likewise."""
    return _configured


class LogEvent(str):
    """The words of an event. Evenbeat's format shows them and every field; another format shows
    the words and the `detail`, which names the fields that matter most: `%(task)s`."""

    words: str

    def __new__(cls, words: str, detail: str) -> "LogEvent":
        event = super().__new__(cls, f"{words}: {detail}")
        event.words = words
        return event


class LineHandler(logging.Handler):
    """Buffers lines and writes them together, from a thread of its own.

    A thread that logs never waits for the disk or the terminal, unless so many lines wait that
    memory would have to hold them.
    """

    def __init__(self, stream: TextIO, *, buffered: bool = True) -> None:
        super().__init__()
        self._stream = stream
        self._lines: deque[str] = deque()
        self._writing = threading.RLock()
        self._lines_wait = threading.Event()
        self._flusher: threading.Thread | None = None
        self._buffered = buffered
        os.register_at_fork(after_in_child=self._reset_after_fork)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.append(self.format(record))
        except Exception:  # noqa: BLE001, RUF100 - a bad log call must not end a job
            self.handleError(record)
        if record.levelno >= logging.ERROR or len(self._lines) >= _MANY_LINES or not self._buffered:
            self.flush()
        elif not self._lines_wait.is_set():
            self._lines_wait.set()
            if self._flusher is None:
                self._flusher = threading.Thread(
                    target=self._flush_regularly, name="evenbeat-logs", daemon=True
                )
                self._flusher.start()

    def flush(self) -> None:
        with self._writing:
            lines = [self._lines.popleft() for _ in range(len(self._lines))]
            if lines:
                lines.append("")
                self._write("\n".join(lines))

    def close(self) -> None:
        """Write what is left; whatever comes later is written at once."""
        self._buffered = False
        self._lines_wait.set()
        self.flush()
        super().close()

    def _reset_after_fork(self) -> None:
        """In a forked child: its parent writes the buffer, and has the flushing thread."""
        self._lines.clear()
        self._writing = threading.RLock()
        self._buffered = False

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except UnicodeEncodeError:
            encoding = self._stream.encoding or "ascii"
            self._write(text.encode(encoding, "backslashreplace").decode(encoding))
        except (OSError, ValueError):
            pass  # nobody reads the log any more; the jobs go on

    def _flush_regularly(self) -> None:
        while self._buffered:
            self._lines_wait.wait()
            time.sleep(FLUSH_SECONDS)
            self._lines_wait.clear()
            self.flush()


_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_LEVELS = {"WARNING": "WARN ", "CRITICAL": "FATAL"}
_COLOURS = {"WARN ": "\033[33m", "ERROR": "\033[31m", "FATAL": "\033[31m", "DEBUG": "\033[2m"}

# What would end a line, steer a terminal or turn the direction of writing.
_STEERS = r"\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_CONTROL = re.compile(rf"[\x00-\x1f{_STEERS}]")
_CONTROL_BUT_NEWLINE = re.compile(rf"[\x00-\x09\x0b-\x1f{_STEERS}]")
_NEEDS_QUOTES = re.compile(rf'[\x00-\x20"=\xa0{_STEERS}]|^$')

_encode = json.JSONEncoder(default=str, allow_nan=False).encode


class LineFormatter(logging.Formatter):
    """Collects a record's fields, for `render` to make a line of them."""

    def __init__(self, render: Callable[[dict[str, Any]], str]) -> None:
        super().__init__()
        self._render = render
        self._second = (-1, "")

    def format(self, record: logging.LogRecord) -> str:
        """One line, without its end; on the console a traceback follows it, indented."""
        second, prefix = self._second  # a pair, so that threads never mix two seconds
        if second != int(record.created):
            second = int(record.created)
            prefix = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
            self._second = (second, prefix)
        event: dict[str, Any] = {
            "timestamp": f"{prefix}.{int((record.created - second) * 1000):03d}Z",
            "level": record.levelname,
            "event": record.msg.words if isinstance(record.msg, LogEvent) else record.getMessage(),
            "logger": record.name,
        }
        for name, value in record.__dict__.items():
            if name not in _STANDARD:
                event[name + "_" if name in event else name] = value
        if record.exc_info and record.exc_info[0] is not None:
            event["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            event["stack"] = self.formatStack(record.stack_info)
        return redact(self._render(event))


def _json_line(event: dict[str, Any]) -> str:
    event["level"] = event["level"].lower()
    return _to_json(event)


def _console_line(event: dict[str, Any], colours: Mapping[str, str]) -> str:
    """`timestamp LEVEL event  name=value …`, which cannot be mistaken for two lines."""
    timestamp, level, text = (event.pop(name) for name in ("timestamp", "level", "event"))
    del event["logger"]
    traces = [event.pop(name) for name in ("exception", "stack") if name in event]
    level = _LEVELS.get(level) or level.ljust(5)
    if level in colours:
        level = f"{colours[level]}{level}\033[0m"
    line = f"{timestamp} {level} {_CONTROL.sub(_escape, text)}"
    if event:
        line += "  " + " ".join(f"{name}={_quoted(value)}" for name, value in event.items())
    for trace in traces:  # indented, since events start with a time
        for part in _CONTROL_BUT_NEWLINE.sub(_escape, trace).split("\n"):
            line += f"\n    {part}"
    return line


def _to_json(value: object) -> str:
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError):
        if isinstance(value, dict):
            return _encode({str(name): json.loads(_to_json(one)) for name, one in value.items()})
        return _encode(repr(value))


def _quoted(value: object) -> str:
    if isinstance(value, str):
        text = value
    else:
        text = _to_json(value) if isinstance(value, dict | list | tuple) else str(value)
    if not _NEEDS_QUOTES.search(text):
        return text
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{_CONTROL.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def run_line(record: logging.LogRecord, without: Collection[str] = ()) -> str:
    """A record as it is kept with its run: the words, the fields and the traceback. A bad log call
    must not end a run."""
    try:
        own = {n: v for n, v in record.__dict__.items() if n not in _STANDARD and n not in without}
        fields = (f"{name}={_quoted(value)}" for name, value in own.items())
        text = " ".join([record.getMessage(), *fields])
        if record.exc_info and record.exc_info[0] is not None:
            text += "\n" + _TRACES.formatException(record.exc_info)
        if record.stack_info:
            text += f"\n{record.stack_info}"
    except Exception as error:
        words = record.msg if isinstance(record.msg, str) else type(record.msg).__name__
        text = f"{words!r} cannot be formatted: {type(error).__name__}"
    return redact(text[:MOST_SEARCHED])


_TRACES = logging.Formatter()

MOST_SEARCHED = 20_000
"""How much of a line is looked at; far more than is kept of it."""

_SECRETS = (  # a text that the line must contain, since searching it is cheaper than a pattern
    ("earer ", re.compile(r"(bearer\s+)[\w.~+/=-]{8,}", re.IGNORECASE | re.ASCII), r"\1***"),
    ("eyJ", re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]*", re.ASCII), "***"),
    ("code=", re.compile(r"(\bcode=)[\w-]{20,}", re.ASCII), r"\1***"),
    ("://", re.compile(r"(://[^\s:/@\"']*):(?!password@)[^\s/]*@"), r"\1:***@"),
    (
        "password=",
        re.compile(r"(password=)(?:'[^']*'|[^\s&'\"\\]+)", re.IGNORECASE),
        r"\1***",
    ),
)


def redact(text: str) -> str:
    """The text with every password of a URL or connection string, every bearer token, JSON web
    token and login code in it made unreadable."""
    for sign, pattern, replacement in _SECRETS:
        if sign in text:
            text = pattern.sub(replacement, text)
    return text
