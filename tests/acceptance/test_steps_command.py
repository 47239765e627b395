"""`evenbeat job send-event`, and steps in `evenbeat job show`."""

from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from said import Command

from evenbeat import Context, Evenbeat, Job
from evenbeat.api.event_links import read_link
from waiting import wait_for


@pytest.fixture
def job(database_url: str) -> Iterator[Job[object]]:
    app = Evenbeat(database_url, poll_seconds=0.1, auth_secret="a secret of the tests, long enough")  # noqa: S106

    @app.task
    def buy(ctx: Context) -> object:
        ctx.step("charge", lambda: {"receipt": 17})
        return [ctx.wait_event("approved", "3d"), ctx.sleep("1h")]

    with app:
        worker = app.worker()
        worker.start()
        job = buy.enqueue()
        wait_for(lambda: len(job.steps()) == 2 and job.status() == "scheduled", "it waits")
        yield job
        worker.stop(grace=0)


def test_an_event_is_sent_and_shown(
    evenbeat: Command, job: Job[object], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("EVENBEAT_AUTH_SECRET", "a secret of the tests, long enough")
    shown = evenbeat("job", "show", str(job.id))
    assert "charge" in shown.out
    assert "event approved" in shown.out
    assert "It has waited for the event 'approved'" in shown.out

    wrong = evenbeat("job", "send-event", str(job.id), "approved", "--payload", "{yes}")
    assert wrong.code == 2
    assert "--payload takes JSON" in wrong.err
    linked = evenbeat("job", "send-event", str(job.id), "approved", "--link", "--expires", "1d")
    assert linked.code == 0, linked.err
    (link,) = parse_qs(urlsplit(linked.out.strip()).query)["link"]
    assert read_link(job._app.settings, link).name == "approved"  # type: ignore[attr-defined]

    sent = evenbeat("job", "send-event", str(job.id), "approved", "--payload", '{"yes": true}')
    assert (sent.code, sent.out.strip()) == (0, "buy goes on.")
    wait_for(lambda: len(job.steps()) == 3, "it sleeps")
    assert job.steps()[1].result == {"yes": True}
    assert "It has slept since" in evenbeat("job", "show", str(job.id)).out
    kept = evenbeat("job", "send-event", str(job.id), "other")
    assert "does not wait for it yet; it is kept." in kept.out
