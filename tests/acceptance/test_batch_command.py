"""`evenbeat batch` and `evenbeat job tree`."""

from collections.abc import Iterator

import pytest
from said import Command
from test_import_command import done

from evenbeat import Evenbeat, chain
from evenbeat.batch import Batch


@pytest.fixture
def app(database_url: str) -> Iterator[Evenbeat]:
    with Evenbeat(database_url) as app:
        app.task(send)
        app.task(report)
        yield app


def send(number: int = 0) -> int:
    return number


def report() -> None: ...


def made(app: Evenbeat) -> Batch:
    send = app.task_named("send")
    jobs = [send.job(number=n) for n in range(4)]
    return app.batch(jobs, then=app.task_named("report"), name="newsletter")


def test_a_batch_is_listed_and_shown(app: Evenbeat, evenbeat: Command) -> None:
    assert "There is none" in done(evenbeat("batch", "list")).err
    batch = made(app)
    app.jobs.cancel(app.jobs.list(batch=batch)[0])
    listed = done(evenbeat("batch", "list"))
    assert "newsletter" in listed.out
    assert "#####" in listed.out
    assert "1 of 4" in listed.out
    for name in ("newsletter", str(batch.id), str(batch.id)[:20]):
        shown = done(evenbeat("batch", "show", name)).out
        for words in ("running", "3 pending, 1 cancelled", "report"):
            assert words in shown
    assert evenbeat("batch", "show", "--json", "newsletter").json["counts"]["ended"] == 1
    assert evenbeat("batch", "show", "daily").code == 4


def test_verbs_over_the_whole(app: Evenbeat, evenbeat: Command) -> None:
    batch = made(app)
    assert (
        "Paused 4 jobs of the batch newsletter"
        in done(evenbeat("batch", "pause", "newsletter")).out
    )
    assert "Resumed 4" in done(evenbeat("batch", "resume", "newsletter")).out
    assert evenbeat("batch", "cancel", "newsletter").code == 1
    assert "Cancelled 5" in done(evenbeat("batch", "cancel", "newsletter", "--yes")).out
    assert batch.status() == "cancelled"
    assert "Retried 4" in done(evenbeat("batch", "retry", "newsletter")).out
    assert batch.status() == "running"
    assert "4 pending" not in done(evenbeat("job", "list", "--batch", str(batch.id))).err
    app.open_batch(name="open")
    assert "completed" in done(evenbeat("batch", "close", "open")).out


def test_the_tree_of_a_job(app: Evenbeat, evenbeat: Command) -> None:
    send, last = app.task_named("send"), app.task_named("report")
    steps = chain(
        send.options(name="a").job(),
        [send.options(name="b").job(), send.options(name="c").job()],
        last.job(),
    )
    batch = app.batch(steps, name="flow")
    app.task_named("report").options(name="alarm", after=batch, after_on="failure").enqueue()
    drawn = done(evenbeat("job", "tree", "b")).out
    lines = [line.strip(" │├└─") for line in drawn.splitlines()]
    assert lines[0].startswith("b  pending")
    assert lines[1].startswith("batch flow  running")
    assert lines[2] == "waits for"
    assert lines[3].startswith("a  pending")
    assert lines[4] == "then runs"
    assert lines[5].startswith("report  pending")
    document = evenbeat("job", "tree", "alarm", "--json").json
    assert document["after"][0]["job"]["name"] == "flow"
    assert "on failure" in done(evenbeat("job", "tree", "alarm")).out
