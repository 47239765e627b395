"""Log lines: what they look like, when they are written, and what never appears in them."""

import io
import json
import logging
import os
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from uuid import UUID

import pytest

from evenbeat.errors import InvalidInput
from evenbeat.observe import logs
from evenbeat.observe.logs import LineHandler, LogFormat, configure_logging, redact
from waiting import wait_for

logger = logging.getLogger("evenbeat.worker")

Configure = Callable[..., LineHandler]


class Stream(io.StringIO):
    """Remembers how often it was written to."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    def write(self, text: str) -> int:
        self.writes += 1
        return super().write(text)


@pytest.fixture
def stream() -> Stream:
    return Stream()


@pytest.fixture
def configure(stream: Stream) -> Iterator[Configure]:
    """Configures logging to write into `stream`; everything is put back afterwards."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers[:] = []

    def to_stream(format_: str = "console", level: str = "INFO", **options: object) -> LineHandler:
        return configure_logging(format_, level, stream=stream, **options)

    yield to_stream
    for handler in root.handlers:
        handler.close()
    root.handlers[:] = before
    root.setLevel(level)
    logging.captureWarnings(False)
    logs._configured = None


@pytest.fixture
def console(configure: Configure, stream: Stream) -> Callable[[], str]:
    """Flushes, and gives what was written without the times."""
    handler = configure("console")

    def text() -> str:
        handler.flush()
        return re.sub(r"(?m)^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ", "", stream.getvalue())

    return text


@pytest.fixture
def events(configure: Configure, stream: Stream) -> Callable[[], list[dict]]:
    handler = configure("json")

    def parsed() -> list[dict]:
        handler.flush()
        return [json.loads(line) for line in stream.getvalue().splitlines()]

    return parsed


# -- looks ---------------------------------------------------------------------------------------


def test_a_console_line_reads_like_this(console):
    logger.info(
        "Executing job",
        extra={"job_id": "x", "source_name": "example.com", "retry_attempt": 0},
    )
    logger.error("Job execution failed", extra={"error": "connection timeout", "retry_in": "120s"})
    logger.warning("Cleared stale lock")

    assert console().splitlines() == [
        "INFO  Executing job  job_id=x source_name=example.com retry_attempt=0",
        'ERROR Job execution failed  error="connection timeout" retry_in=120s',
        "WARN  Cleared stale lock",
    ]


def test_a_line_tells_the_time_of_its_event(configure, stream):
    handler = configure()
    record = logging.makeLogRecord({"msg": "then", "levelname": "INFO", "levelno": 20})
    record.created = datetime(2025, 12, 29, 10, 30, 0, 123_400, tzinfo=UTC).timestamp()

    handler.handle(record)
    handler.flush()

    assert stream.getvalue() == "2025-12-29T10:30:00.123Z INFO  then\n"


def test_a_json_line_has_the_four_names_and_the_fields(events):
    logger.warning("Took %s", "long", extra={"job_id": UUID(int=1), "seconds": 2.5, "tags": ["a"]})

    (event,) = events()
    assert datetime.fromisoformat(event.pop("timestamp")).tzinfo is not None
    assert event == {
        "level": "warning",
        "event": "Took long",
        "logger": "evenbeat.worker",
        "job_id": "00000000-0000-0000-0000-000000000001",
        "seconds": 2.5,
        "tags": ["a"],
    }


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", "plain"),
        ("", '""'),
        ("two words", '"two words"'),
        ("a=b", '"a=b"'),
        ('say "hi"', r'"say \"hi\""'),
        ("back\\slash", "back\\slash"),
        ("line\nbreak", r'"line\nbreak"'),
        ("\x1b[31mred", r'"\x1b[31mred"'),
        ("\u202egnp.exe\u2066", r'"\u202egnp.exe\u2066"'),
        ("sep\u2028arator", r'"sep\u2028arator"'),
        ("naïve 東京", '"naïve 東京"'),
        (None, "None"),
        (True, "True"),
        (1.5, "1.5"),
        ({"a": [1, "x y"]}, r'"{\"a\": [1, \"x y\"]}"'),
    ],
)
def test_a_value_never_breaks_a_console_line(console, value, shown):
    logger.info("Told", extra={"value": value})

    assert console() == f"INFO  Told  value={shown}\n"


def test_an_event_never_breaks_a_line(console):
    logger.info("one\n2026-01-01T00:00:00.000Z INFO  two\r\x1b[2J")

    assert console() == "INFO  one\\n2026-01-01T00:00:00.000Z INFO  two\\r\\x1b[2J\n"


@pytest.mark.parametrize("value", [float("nan"), {(1, 2): 3}, object(), "\ud800", "\n\u2028"])
def test_any_value_becomes_valid_json_on_one_line(configure, stream, value):
    handler = configure("json")

    logger.info("Told", extra={"value": value, "other": 1})
    handler.flush()

    assert len(stream.getvalue().splitlines()) == 1
    assert json.loads(stream.getvalue())["other"] == 1


def test_a_field_cannot_pose_as_one_of_the_four_names(events):
    logger.info("Told", extra={"level": "fatal", "event": "Lied"})

    (event,) = events()
    assert (event["level"], event["level_"]) == ("info", "fatal")
    assert (event["event"], event["event_"]) == ("Told", "Lied")


def test_an_exception_is_indented_below_its_console_line(console):
    try:
        raise ValueError("a\nb\x1b")  # noqa: TRY301
    except ValueError:
        logger.exception("Failed", extra={"job_id": "x"})

    lines = console().splitlines()
    assert lines[0] == "ERROR Failed  job_id=x"
    assert lines[1] == "    Traceback (most recent call last):"
    assert lines[-2:] == ["    ValueError: a", "    b\\x1b"]
    assert all(line.startswith("    ") for line in lines[1:])


def test_an_exception_is_a_field_in_json(events):
    try:
        raise ValueError("no")  # noqa: TRY301
    except ValueError:
        logger.exception("Failed")

    (event,) = events()
    assert event["exception"].startswith("Traceback (most recent call last):\n")
    assert event["exception"].endswith("ValueError: no")


# -- whose lines ---------------------------------------------------------------------------------


@pytest.mark.filterwarnings("always")
def test_other_loggers_and_warnings_end_up_in_the_same_lines(console):
    logging.getLogger("shop").info("Sold", extra={"item": "tea"})
    warnings.warn("old", DeprecationWarning, stacklevel=1)

    lines = console().splitlines()
    assert lines[0] == "INFO  Sold  item=tea"
    assert "DeprecationWarning: old" in lines[1]
    assert len(lines) == 2


def test_the_level_is_a_threshold(configure, stream):
    handler = configure(level="warning")

    logger.info("quiet")
    logger.warning("loud")
    handler.flush()

    assert "quiet" not in stream.getvalue()
    assert "loud" in stream.getvalue()


def test_wrong_formats_and_levels_are_explained():
    with pytest.raises(InvalidInput, match="formats are: console, json"):
        configure_logging("xml")
    with pytest.raises(InvalidInput, match="levels are: debug, info"):
        configure_logging("json", "loud")


def test_a_child_process_can_log_likewise(configure):
    assert logs.current_logging() is None
    configure("json", "debug")
    assert logs.current_logging() == (LogFormat.JSON, "DEBUG")


# -- secrets -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://ada:hunter2@db:5432/x", "postgresql://ada:***@db:5432/x"),
        ("postgres://:hunter2@db", "postgres://:***@db"),
        ("to postgresql://ada:hun@ter2@db/x now", "to postgresql://ada:***@db/x now"),
        ("postgresql:///x?password=hunter2&host=y", "postgresql:///x?password=***&host=y"),
        ("host=db password='hunter 2' user=ada", "host=db password=*** user=ada"),
        ("https://example.com:8060/a@b", "https://example.com:8060/a@b"),
        ("such as postgresql://user:password@host", "such as postgresql://user:password@host"),
        ("Authorization: Bearer abc.DEF_1-2~3+/= failed", "Authorization: Bearer *** failed"),
        ("send Authorization: Bearer <token>", "send Authorization: Bearer <token>"),
        ("refused eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.a-b_c0, sorry", "refused ***, sorry"),
        ("/login?code=S4O2yMlBeakGevV4eicNhTLpRC-LGMiY&x=1", "/login?code=***&x=1"),
        ("exit code=1", "exit code=1"),
    ],
)
def test_passwords_are_not_shown(text, shown):
    assert redact(text) == shown


@pytest.mark.parametrize("format_", ["console", "json"])
def test_no_part_of_a_line_shows_a_password(configure, stream, format_):
    url = "postgresql://ada:hunter2@db/x"
    handler = configure(format_)

    try:
        raise OSError(url)  # noqa: TRY301
    except OSError:
        logger.exception("cannot reach %s", url, extra={"url": url, "more": {"urls": [url]}})
    handler.flush()

    assert "hunter2" not in stream.getvalue()
    assert stream.getvalue().count("ada:***@db/x") == 4


# -- writing -------------------------------------------------------------------------------------


def test_lines_are_collected_and_written_soon(configure, stream):
    configure()

    for number in range(50):
        logger.info("line %d", number)
    assert stream.writes == 0

    wait_for(lambda: stream.writes, "a write")
    assert stream.writes == 1
    assert len(stream.getvalue().splitlines()) == 50


def test_an_error_is_written_at_once_after_what_came_before(configure, stream):
    configure()

    logger.info("first")
    logger.error("second")

    assert [line.split()[-1] for line in stream.getvalue().splitlines()] == ["first", "second"]


def test_many_waiting_lines_are_written_by_whoever_logs(configure, stream):
    configure()

    for number in range(1000):
        logger.info("line %d", number)

    assert len(stream.getvalue().splitlines()) >= 700


def test_threads_lose_no_line(configure, stream):
    handler = configure()

    def log() -> None:
        for number in range(500):
            logger.info("line", extra={"number": number})

    threads = [threading.Thread(target=log) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    handler.flush()

    assert len(stream.getvalue().splitlines()) == 4000


def test_a_closed_handler_writes_at_once(configure, stream):
    handler = configure()
    handler.close()

    logger.info("late")

    assert stream.getvalue().endswith("late\n")


def test_a_reader_that_is_gone_does_not_matter(configure, stream):
    handler = configure()
    stream.close()

    logger.error("nobody reads this")
    handler.flush()


def test_a_stream_that_cannot_hold_a_letter_gets_its_escape(configure):
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    handler = configure()
    handler._stream = narrow

    logger.error("東京")

    assert narrow.buffer.getvalue().endswith(b"\\u6771\\u4eac\n")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_writes_only_its_own_lines_and_at_once(configure, tmp_path):
    path = tmp_path / "log"
    handler = configure()
    with path.open("w", encoding="utf-8") as stream:
        handler._stream = stream
        logger.info("parent")
        pid = os.fork()
        if pid == 0:
            logger.info("child")
            os._exit(0)
        os.waitpid(pid, 0)
        handler.flush()

    written = [line.split()[-1] for line in path.read_text().splitlines()]
    assert sorted(written) == ["child", "parent"]
