"""Events: told to plain and async listeners, and harmless whatever these do."""

import pytest

from evenbeat import Context, Evenbeat, Event
from evenbeat.errors import InvalidInput


def test_listeners_hear_what_happens(evenbeat_harness):
    app = Evenbeat(name="events")
    heard: list[tuple[str, str]] = []

    @app.task(max_retries=1)
    async def work(how: str, ctx: Context) -> str:
        if how == "fail" or (how == "retry" and ctx.attempt == 1):
            raise ValueError("no")
        return "ok"

    @app.every("10m")
    async def tick() -> None: ...

    @app.on("job:complete")
    def completed(event: Event) -> None:
        heard.append((event.kind, event.job.task))

    for kind in ("job:start", "job:retry", "job:failed", "job:skipped"):

        @app.on(kind)
        async def other(event: Event) -> None:
            heard.append((event.kind, str(event.skipped or event.error or event.job.task)))

    harness = evenbeat_harness(app)
    work.enqueue("retry")
    harness.drain()
    assert heard == [("job:start", "work"), ("job:retry", "no")]
    heard.clear()
    work.enqueue("fail")
    harness.drain()
    harness.advance("5m")
    assert ("job:failed", "no") in heard
    assert ("job:complete", "work") in heard
    heard.clear()
    harness.skip("1h")
    harness.drain()
    assert ("job:skipped", "5") in heard


def test_a_listener_that_raises_is_logged_and_harms_nothing(evenbeat_harness, caplog):
    app = Evenbeat(name="events")
    heard = []

    @app.task
    async def work() -> None: ...

    @app.on("*")
    def bad(event: Event) -> None:
        raise RuntimeError("listener broke")

    app.on("job:complete")(heard.append)
    harness = evenbeat_harness(app)
    added = work.enqueue()
    harness.drain()
    assert app.store.read.job(added.id).status == "completed"
    assert len(heard) == 1
    assert "A listener for job:complete raised" in caplog.text


def test_an_unknown_event_lists_the_known_ones():
    with pytest.raises(InvalidInput, match=r"no event 'job:done'.*job:complete"):
        Evenbeat().on("job:done")(print)


def test_the_event_of_an_end_carries_what_the_handler_returned(evenbeat_harness):
    app = Evenbeat(name="events")
    heard: list[Event] = []

    @app.task
    async def work(value: object) -> object:
        return value

    app.on("job:complete")(heard.append)
    harness = evenbeat_harness(app)
    values = [{"sent": True, "rows": [1, 2]}, "text", 0, None]
    for value in values:
        work.enqueue(value)
        harness.drain()
    assert [event.result for event in heard] == values
