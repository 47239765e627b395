"""Log lines: the standard library's records, rendered by structlog, one event a line.

    2025-12-29T10:30:00.123Z INFO  Executing job  job_id=… source_name=example.com retry_attempt=0
    {"timestamp": "…", "level": "info", "event": "Executing job", "logger": "…", "job_id": "…"}

Everything goes through the same formatter: Evenbeat's own lines, `ctx.logger`, any logger of user
code, structlog's loggers, and warnings.

A worker at full load writes two lines a job, so lines are collected and written together: after
`FLUSH_SECONDS`, when many wait, at once for an error, and at exit. `kill -9` loses what was logged
in the last `FLUSH_SECONDS`; nothing but the log depends on it, as the jobs' story is in the
database.
"""

import json
import logging
import os
import re
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping
from enum import StrEnum
from typing import Any, NamedTuple, TextIO

from evenbeat.errors import InvalidInput

# structlog takes as long to import as half of Evenbeat, so only those who configure logging do.

EventDict = MutableMapping[str, Any]
Renderer = Callable[[Any, str, EventDict], str | bytes]

FLUSH_SECONDS = 0.1
_MANY_LINES = 256


class LogFormat(StrEnum):
    """What a line looks like: for people, or for machines."""

    CONSOLE = "console"
    JSON = "json"


class LogSettings(NamedTuple):
    """What `configure_logging` was told, for a child process to do likewise."""

    format: LogFormat
    level: str


_configured: LogSettings | None = None


def configure_logging(
    format: LogFormat | str = LogFormat.CONSOLE,  # noqa: A002 - what users call it
    level: str = "INFO",
    *,
    stream: TextIO | None = None,
    collect: bool = True,
) -> "LineHandler":
    """Send every log record of this process to `stream` (standard error), in this format.

    Replaces what was configured before. The handler is returned so that it can be flushed; without
    `collect` each line is written at once.
    """
    global _configured  # noqa: PLW0603 - logging itself is global
    _configured = LogSettings(_checked_format(format), _checked_level(level))
    target = stream or sys.stderr
    handler = LineHandler(target, collect=collect)
    handler.setFormatter(LineFormatter(_renderer(_configured.format, target)))
    logging.basicConfig(level=_configured.level, handlers=[handler], force=True)
    logging.captureWarnings(True)
    _lead_structlog_here()
    return handler


def current_logging() -> LogSettings | None:
    """How logging was configured in this process, if it was."""
    return _configured


def continue_logging(settings: LogSettings | None) -> None:
    """Log as the parent process does; at once, since a child may be ended at any moment."""
    if settings is not None:
        configure_logging(settings.format, settings.level, collect=False)


class LineHandler(logging.Handler):
    """Collects lines and writes them in one go, from a thread of its own.

    Whoever logs never waits for the disk or the terminal, unless so many lines wait that memory
    would have to hold them.
    """

    def __init__(self, stream: TextIO, *, collect: bool = True) -> None:
        super().__init__()
        self._stream = stream
        self._lines: deque[str] = deque()
        self._writing = threading.RLock()
        self._collected = threading.Event()
        self._flusher: threading.Thread | None = None
        self._collects = collect
        _handlers.add(self)

    def handle(self, record: logging.LogRecord) -> bool:
        """Like the base class's, without a lock: formatting is pure, appending is atomic."""
        wanted: object = self.filter(record)  # a record may replace this one from Python 3.12 on
        if isinstance(wanted, logging.LogRecord):
            record = wanted
        if wanted:
            self.emit(record)
        return bool(wanted)

    def emit(self, record: logging.LogRecord) -> None:
        """Take one record."""
        try:
            self._lines.append(self.format(record))
        except Exception:  # noqa: BLE001, RUF100 - a bad log call must not end a job
            self.handleError(record)
        if record.levelno >= logging.ERROR or len(self._lines) >= _MANY_LINES or not self._collects:
            self.flush()
        elif not self._collected.is_set():
            self._flush_soon()

    def flush(self) -> None:
        """Write what was collected."""
        with self._writing:
            lines = [self._lines.popleft() for _ in range(len(self._lines))]
            if lines:
                lines.append("")
                self._write("\n".join(lines))

    def close(self) -> None:
        """Write what is left; whatever comes later is written at once."""
        self._collects = False
        self._collected.set()
        self.flush()
        super().close()

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except UnicodeEncodeError:
            encoding = self._stream.encoding or "ascii"
            self._write(text.encode(encoding, "backslashreplace").decode(encoding))
        except (OSError, ValueError):
            pass  # nobody reads the log any more; the jobs go on

    def _flush_soon(self) -> None:
        self._collected.set()
        if self._flusher is None:
            self._flusher = threading.Thread(
                target=self._flush_for_ever, name="evenbeat-logs", daemon=True
            )
            self._flusher.start()

    def _flush_for_ever(self) -> None:
        while self._collects:
            self._collected.wait()
            time.sleep(FLUSH_SECONDS)
            self._collected.clear()
            self.flush()

    def _after_fork(self) -> None:
        """In a forked child: its parent writes what was collected, and has the flushing thread."""
        self._lines.clear()
        self._writing = threading.RLock()
        self._collects = False


_handlers: weakref.WeakSet[LineHandler] = weakref.WeakSet()


def _after_fork() -> None:
    for handler in _handlers:
        handler._after_fork()


os.register_at_fork(after_in_child=_after_fork)


class LineFormatter(logging.Formatter):
    """Makes a record's fields a structlog event and lets a structlog renderer write it.

    structlog's own ProcessorFormatter does the same at three times the cost.
    """

    def __init__(self, render: Renderer) -> None:
        super().__init__()
        self._render = render
        self._second = (-1, "")

    def format(self, record: logging.LogRecord) -> str:
        """One line, without its end; on the console a traceback follows it, indented."""
        event: EventDict = {
            "timestamp": self._timestamp(record.created),
            "level": record.levelname,
            "event": record.getMessage(),
            "logger": record.name,
        }
        for name, value in record.__dict__.items():
            if name not in _STANDARD:
                event[name + "_" if name in event else name] = value
        if record.exc_info and record.exc_info[0] is not None:
            event["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            event["stack"] = self.formatStack(record.stack_info)
        return redact(str(self._render(None, "", event)))

    def _timestamp(self, moment: float) -> str:
        second, prefix = self._second  # a pair, so that threads never mix two seconds
        if second != int(moment):
            second = int(moment)
            prefix = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
            self._second = (second, prefix)
        return f"{prefix}.{int((moment - second) * 1000):03d}Z"


_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


# -- JSON ----------------------------------------------------------------------------------------

_encode = json.JSONEncoder(default=str, allow_nan=False).encode


def _serialize(event: EventDict, **_options: Any) -> str:
    try:
        return _encode(event)
    except (TypeError, ValueError, RecursionError):
        return _encode({str(name): _plain(value) for name, value in event.items()})


def _plain(value: object) -> object:
    try:
        _encode(value)
    except (TypeError, ValueError, RecursionError):
        return repr(value)
    return value


def _json_renderer() -> Renderer:
    from structlog.processors import JSONRenderer  # noqa: PLC0415

    render = JSONRenderer(serializer=_serialize)

    def with_lowercase_level(logger: Any, name: str, event: EventDict) -> str | bytes:
        event["level"] = event["level"].lower()
        return render(logger, name, event)

    return with_lowercase_level


# -- console -------------------------------------------------------------------------------------

_LEVELS = {"WARNING": "WARN ", "CRITICAL": "FATAL"}
_COLOURS = {"WARN ": "\033[33m", "ERROR": "\033[31m", "FATAL": "\033[31m", "DEBUG": "\033[2m"}
_LAST = ("exception", "stack")

# What would end a line or steer a terminal.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_CONTROL_BUT_NEWLINE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_NEEDS_QUOTES = re.compile(r'[\x00-\x20"=\x7f-\xa0\u2028\u2029]|^$')


class ConsoleRenderer:
    """`timestamp LEVEL event  name=value …`, as a structlog renderer."""

    def __init__(self, *, colours: bool = False) -> None:
        self._colours = _COLOURS if colours else {}

    def __call__(self, _logger: Any, _name: str, event: EventDict) -> str:
        fields = [
            f"{name}={_shown(value)}" for name, value in event.items() if name not in _NOT_FIELDS
        ]
        level = _LEVELS.get(event["level"]) or event["level"].ljust(5)
        if level in self._colours:
            level = f"{self._colours[level]}{level}\033[0m"
        text = event["event"]
        if _CONTROL.search(text):
            text = _CONTROL.sub(_escaped, text)
        line = f"{event['timestamp']} {level} {text}"
        if fields:
            line = f"{line}  {' '.join(fields)}"
        for name in _LAST:
            if name in event:
                line += _indented(event[name])
        return line


_NOT_FIELDS = frozenset({"timestamp", "level", "event", "logger", *_LAST})


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else _as_text(value)
    if _NEEDS_QUOTES.search(text):
        quoted = text.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{_CONTROL.sub(_escaped, quoted)}"'
    return text


def _as_text(value: object) -> str:
    return _serialize({"": value})[5:-1] if isinstance(value, dict | list | tuple) else str(value)


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def _indented(text: str) -> str:
    """Lines that cannot be taken for events: those start with a time."""
    safe = _CONTROL_BUT_NEWLINE.sub(_escaped, text)
    return "".join(f"\n    {line}" for line in safe.split("\n"))


# -- secrets -------------------------------------------------------------------------------------

_IN_URL = re.compile(r"(://[^\s:/@\"']*):(?!password@)[^\s/]*@")
_AS_OPTION = re.compile(r"(password=)(?:'[^']*'|[^\s&'\"\\]+)", re.IGNORECASE)
_BEARER = re.compile(r"(bearer\s+)[\w.~+/=-]{8,}", re.IGNORECASE | re.ASCII)
_JWT = re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]*", re.ASCII)
_LOGIN_CODE = re.compile(r"(\bcode=)[\w-]{20,}", re.ASCII)


def redact(text: str) -> str:
    """The text with every password of a URL or connection string, every bearer token, JSON web
    token and login code in it made unreadable."""
    if "earer " in text:
        text = _BEARER.sub(r"\1***", text)
    if "eyJ" in text:
        text = _JWT.sub("***", text)
    if "code=" in text:
        text = _LOGIN_CODE.sub(r"\1***", text)
    if "://" in text:
        text = _IN_URL.sub(r"\1:***@", text)
    if "password=" in text:
        text = _AS_OPTION.sub(r"\1***", text)
    return text


# --------------------------------------------------------------------------------------------------


def _renderer(format_: LogFormat, stream: TextIO) -> Renderer:
    if format_ is LogFormat.JSON:
        return _json_renderer()
    return ConsoleRenderer(colours=stream.isatty() and not os.environ.get("NO_COLOR"))


def _lead_structlog_here() -> None:
    """User code that logs with structlog, and has not configured it, ends up in the same lines."""
    import structlog  # noqa: PLC0415

    if not structlog.is_configured():
        structlog.configure(
            processors=[
                structlog.contextvars.merge_contextvars,
                structlog.stdlib.render_to_log_kwargs,
            ],
            wrapper_class=structlog.stdlib.BoundLogger,
            logger_factory=structlog.stdlib.LoggerFactory(),
            cache_logger_on_first_use=True,
        )


def _checked_format(given: str) -> LogFormat:
    try:
        return LogFormat(given)
    except ValueError:
        raise InvalidInput(
            f"There is no log format {given!r}. The formats are: {', '.join(LogFormat)}.",
            field="format",
        ) from None


def _checked_level(given: str) -> str:
    levels: Mapping[str, int] = logging.getLevelNamesMapping()
    if given.upper() not in levels:
        raise InvalidInput(
            f"There is no log level {given!r}. The levels are: debug, info, warning, error, "
            "critical.",
            field="level",
        )
    return given.upper()
