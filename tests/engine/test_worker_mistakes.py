"""What a worker says of mistakes in its use, and what users' own log formats show of its runs."""

import io
import logging
import re
from collections.abc import Iterator

import pytest

from evenbeat import Evenbeat, Fail
from evenbeat.errors import Conflict
from waiting import wait_for


@pytest.fixture
def app(database_url: str) -> Iterator[Evenbeat]:
    with Evenbeat(database_url) as app:
        yield app


def test_a_worker_is_started_once(app):
    done = app.task(lambda: "done", name="work")
    worker = app.worker()
    worker.start()
    try:
        with pytest.raises(Conflict, match=r"runs already.*app\.worker\(\)"):
            worker.start()
        added = done.enqueue()
        wait_for(lambda: app.store.read.job(added.id).status == "completed")
    finally:
        worker.stop(grace=0)
    worker.stop()
    with pytest.raises(Conflict, match=r"was stopped.*app\.worker\(\)"):
        worker.start()
    assert app.store.upkeep.workers() == []


def test_the_end_of_a_with_block_leaves_the_worker_its_database(app):
    done = app.task(lambda: "done", name="work")
    worker = app.worker()
    worker.start()
    try:
        for _ in range(2):
            with app:
                first = done.enqueue()
            assert (first.result(20), done.enqueue().result(20)) == ("done", "done")
            assert "store" in vars(app)
    finally:
        worker.stop(grace=0)
    with app:
        pass
    assert "store" not in vars(app)


def test_a_queue_that_nobody_has_is_told_with_the_one_that_was_meant(app, caplog):
    send = app.task(lambda: None, name="send", queue="mail")
    send.options(queue="post").enqueue()
    worker = app.worker(queues=["mial", "mail", "post", "default", "defualt"])
    worker.start()
    try:
        wait_for(lambda: "'defualt'" in caplog.text)
    finally:
        worker.stop(grace=0)
    said = [one.getMessage() for one in caplog.records if "serves the queue" in one.getMessage()]
    assert [text.rpartition(". ")[2] for text in said] == [
        "Did you mean 'mail'?",
        "Did you mean 'default'?",
    ]


def test_jobs_that_no_worker_has_the_task_for_are_told(app, database_url, caplog):
    send = app.task(lambda: None, name="send")
    for queue in ("mail", "mail", "post"):
        send.options(queue=queue).enqueue()
    app.task(lambda: None, name="later").options(delay="1h").enqueue()
    told = "no live worker has the task for: "
    with Evenbeat(database_url, name="other") as other:
        other.task(lambda: None, name="tidy").enqueue()
        for queues, waiting in ((["mail"], "'send' (2)"), (None, "'send' (3)")):
            caplog.clear()
            worker = other.worker(queues=queues)
            worker.start()
            worker.stop(grace=0)
            (said,) = [one.getMessage() for one in caplog.records if told in one.getMessage()]
            assert f"{told}{waiting}. " in said
    caplog.clear()
    worker = app.worker()
    worker.start()
    worker.stop(grace=0)
    assert told not in caplog.text


@pytest.fixture
def own_log() -> Iterator[io.StringIO]:
    """What a user's own format shows of Evenbeat's records, with nothing of ours configured."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s|%(message)s"))
    logger = logging.getLogger("evenbeat")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield stream
    logger.setLevel(level)
    logger.removeHandler(handler)


def test_a_failed_run_is_told_in_full_under_a_log_format_of_ones_own(evenbeat_harness, own_log):
    app = Evenbeat(name="own-log")

    @app.task(max_retries=0)
    def charge(order: int) -> None:
        raise KeyError(f"no order {order}")

    @app.task(max_retries=0)
    async def refuse(order: int) -> None:
        raise Fail("sold out", code="no_stock")

    harness = evenbeat_harness(app)
    failed, refused = charge.enqueue(7), refuse.enqueue(8)
    harness.drain()
    log = own_log.getvalue()
    assert f"ERROR|Job execution failed: charge, job {failed.id}: 'no order 7'\nTraceback" in log
    assert "raise KeyError(" in log
    assert f"ERROR|Job execution failed: refuse, job {refused.id}: sold out\n" in log
    assert log.count("Traceback") == 1  # a failure with a name needs none
    assert f"INFO|Executing job: charge, job {failed.id}\n" in log


@pytest.mark.parametrize(
    ("value", "why"),
    [("x" * 100_000, "100,002 bytes"), (object(), "unknown type"), (float("inf"), "JSON")],
)
def test_a_result_that_is_not_kept_is_told(evenbeat_harness, own_log, value, why):
    app = Evenbeat(name="results")

    @app.task
    def look() -> object:
        return value

    harness = evenbeat_harness(app)
    added = look.enqueue()
    harness.drain()
    (line,) = [line for line in own_log.getvalue().splitlines() if line.startswith("WARNING")]
    assert line.startswith(f"WARNING|Result not kept: look, job {added.id}: ")
    assert why in line
    assert re.search("Return plain JSON|Store large data elsewhere", line)
    assert app.store.read.job(added.id).status == "completed"
