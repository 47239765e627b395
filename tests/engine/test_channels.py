"""Webhooks for people: chats and e-mail, several messages as one, quiet hours, alerts."""

import json
import socketserver
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email import message_from_string
from email.policy import default
from typing import Any

import pytest
from loopback_site import Site, serving

from evenbeat import Evenbeat, Fail
from evenbeat.domain.notices import as_mail, as_slack, as_teams, notice
from evenbeat.domain.webhooks import WebhookEvent
from evenbeat.engine.alerting import TellAlerts
from evenbeat.errors import InvalidInput
from evenbeat.settings import load_settings
from evenbeat.tasks.builtin.webhook import check_endpoint
from evenbeat.testing import Harness

START = datetime(2030, 1, 1, 12, tzinfo=UTC)
OK = (200, {}, b"ok")
ALL = [str(event) for event in WebhookEvent]


class _Session(socketserver.StreamRequestHandler):
    """As much of SMTP as a client needs that sends one mail."""

    def handle(self) -> None:
        mails: list[str] = self.server.mails  # type: ignore[attr-defined]
        self.wfile.write(b"220 loopback\r\n")
        while line := self.rfile.readline():
            verb = line.split()[0].upper() if line.split() else b""
            if verb == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                lines = iter(self.rfile.readline, b".\r\n")
                mails.append(b"".join(lines).decode())
            elif verb == b"RCPT" and b"nobody" in line:
                self.wfile.write(b"550 no such person\r\n")
                continue
            elif verb == b"QUIT":
                self.wfile.write(b"221 bye\r\n")
                return
            self.wfile.write(b"250 ok\r\n")


class _MailServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Session)
        self.mails: list[str] = []

    @property
    def url(self) -> str:
        return f"smtp://127.0.0.1:{self.server_address[1]}"


@pytest.fixture
def mail_server() -> Iterator[_MailServer]:
    with _MailServer() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as site:
        site.answers["/chat"] = OK
        yield site


@pytest.fixture
def harness(database_url: str, mail_server: _MailServer) -> Iterator[Harness]:
    app = Evenbeat(
        database_url,
        allow_private_addresses=True,
        smtp_url=mail_server.url,
        mail_from="Evenbeat <jobs@example.com>",
        public_url="https://ops.example.com/evenbeat/",
    )

    @app.task(max_retries=0)
    def report(number: int = 0) -> None:
        raise Fail(f"row {number} is <odd>", code="bad_row")

    @app.task
    def works() -> None: ...

    with Harness(app, START) as harness:
        yield harness


def hook(harness: Harness, url: str, events: list[str], **more: Any) -> Any:
    return harness.app.store.webhooks.add(url, events, now=harness.now, **more)


def states(harness: Harness, one: Any) -> set[str]:
    return {m.state for m in harness.app.store.webhooks.messages(one.id, limit=500).messages}


def test_a_burst_of_failures_is_one_line_in_the_chat(harness: Harness, site: Site):
    chat = hook(harness, f"{site.url}/chat", ["job.failed"], format="slack")
    report = harness.app.task_named("report")
    for number in range(31):
        report.enqueue(number=number)
    harness.advance("1m")
    assert len(site.seen) == 1
    text = json.loads(site.seen[0].body)["text"]
    assert text == (
        "Failed: 31 runs of report: bad_row, 12:00:00 to 12:00:00 UTC "
        "<https://ops.example.com/evenbeat/jobs?task=report|open>"
    )
    assert states(harness, chat) == {"delivered"}
    assert "webhook-signature" not in site.seen[0].headers


def test_one_failure_is_told_with_its_error_and_a_link_to_the_job(harness: Harness, site: Site):
    hook(harness, f"{site.url}/chat", ["job.failed"], format="slack")
    job = harness.app.task_named("report").enqueue(number=7)
    harness.advance("1m")
    text = json.loads(site.seen[0].body)["text"]
    assert text == (
        "Failed: report: bad_row. row 7 is &lt;odd&gt; "
        f"<https://ops.example.com/evenbeat/jobs/{job.id}|open>"
    )


def test_a_chat_that_fails_gets_all_of_it_later(harness: Harness, site: Site):
    site.answers["/chat"] = (500, {}, b"not today")
    chat = hook(harness, f"{site.url}/chat", ["job.failed"], format="teams")
    harness.app.task_named("report").enqueue(number=1)
    harness.advance("30s")
    assert states(harness, chat) == {"pending"}
    site.answers["/chat"] = OK
    before = len(site.seen)
    harness.app.task_named("report").enqueue(number=2)
    harness.advance("20s")
    assert len(site.seen) == before + 1
    card = json.loads(site.seen[-1].body)["attachments"][0]["content"]
    assert card["body"][0]["text"].startswith("Failed: 2 runs of report: bad\\_row")
    harness.advance("10m")
    assert states(harness, chat) == {"delivered"}
    assert len(site.seen) == before + 1  # what went out together is not sent again


def test_a_mail_has_a_subject_a_sender_and_links(harness: Harness, mail_server: _MailServer):
    box = hook(harness, "mailto:ops@example.com,boss@example.com", ["job.failed"], format="email")
    harness.app.task_named("report").enqueue(number=7)
    harness.advance("1m")
    mail = message_from_string(mail_server.mails[0], policy=default)
    assert mail["Subject"] == "[Evenbeat] Failed: report: bad_row. row 7 is <odd>"
    assert mail["From"] == "Evenbeat <jobs@example.com>"
    assert mail["To"] == "ops@example.com, boss@example.com"
    assert mail["Message-ID"].startswith("<msg_")
    assert "https://ops.example.com/evenbeat/jobs/" in mail.get_content()
    assert states(harness, box) == {"delivered"}


def test_a_mail_that_is_refused_is_tried_again(harness: Harness, mail_server: _MailServer):
    box = hook(harness, "mailto:nobody@example.com", ["job.failed"], format="email")
    harness.app.task_named("report").enqueue(number=7)
    harness.advance("1m")
    (message,) = harness.app.store.webhooks.messages(box.id).messages
    assert (message.state, message.error_code) == ("pending", "mail_not_sent")
    assert "no such person" in (message.error or "")
    assert mail_server.mails == []


def test_nothing_is_sent_in_the_quiet_hours_and_all_of_it_after_them(harness: Harness, site: Site):
    hook(harness, f"{site.url}/chat", ["job.failed"], format="slack", quiet_hours="11:00-14:00 UTC")
    for number in range(3):
        harness.app.task_named("report").enqueue(number=number)
        harness.advance("20m")
    assert site.seen == []
    harness.advance("58m")  # 13:58
    assert site.seen == []
    harness.advance("3m")
    assert len(site.seen) == 1
    assert "3 runs of report" in json.loads(site.seen[0].body)["text"]


def test_quiet_hours_cost_no_attempt_of_a_signed_message(harness: Harness, site: Site):
    one = hook(harness, f"{site.url}/chat", ["job.failed"], quiet_hours="11:00-14:00 UTC")
    harness.app.task_named("report").enqueue()
    harness.advance("1h")
    (message,) = harness.app.store.webhooks.messages(one.id).messages
    assert (message.state, message.attempts, site.seen) == ("pending", 0, [])
    harness.advance("2h")
    assert states(harness, one) == {"delivered"}
    assert "webhook-signature" in site.seen[0].headers


def test_an_alert_is_told_once_when_it_begins_and_once_when_it_is_over(
    harness: Harness, site: Site
):
    hook(harness, f"{site.url}/chat", ["alert.started", "alert.ended"], format="slack")
    chore = TellAlerts(harness.app.store, harness.clock)
    report = harness.app.task_named("works").options(queue="nobodys").enqueue()
    harness.app.store.control.pause_queue("nobodys", now=harness.now)
    harness.skip("2m")
    assert chore.run_once() == 1
    assert chore.run_once() == 0
    harness.advance("20s")
    assert len(site.seen) == 1
    assert "The queue 'nobodys' is paused and jobs wait in it" in site.seen[0].body.decode()
    report.cancel()
    harness.advance("1m")
    chore.run_once()
    harness.advance("1m")
    assert len(site.seen) == 1  # it may come back
    harness.advance("5m")
    chore.run_once()
    harness.advance("1m")
    assert len(site.seen) == 2
    assert "Over: The queue 'nobodys'" in site.seen[1].body.decode()


def test_an_alert_as_json_says_what_to_do(harness: Harness, site: Site):
    hook(harness, f"{site.url}/chat", ["alert.started"])
    harness.app.task_named("works").options(queue="nobodys").enqueue()
    harness.app.store.control.pause_queue("nobodys", now=harness.now)
    harness.skip("2m")
    TellAlerts(harness.app.store, harness.clock).run_once()
    harness.drain()
    payload = json.loads(site.seen[0].body)
    assert payload["type"] == "alert.started"
    assert payload["data"]["rule"] == "queue_paused"
    assert payload["data"]["severity"] == "warning"
    assert "evenbeat queue resume nobodys" in payload["data"]["remedy"]
    assert payload["data"]["jobs"]["queue"] == "nobodys"


@pytest.mark.parametrize(
    ("url", "form", "settings"),
    [
        ("ops@example.com", "email", {"smtp_url": "smtp://localhost"}),
        ("mailto:", "email", {"smtp_url": "smtp://localhost"}),
        ("mailto:a@b.c?subject=x", "email", {"smtp_url": "smtp://localhost"}),
        ("mailto:a@b.c\r\nBcc: d@e.f", "email", {"smtp_url": "smtp://localhost"}),
        ("mailto:a@b.c", "email", {}),
        ("mailto:a@b.c", "slack", {}),
    ],
)
def test_what_no_mail_can_be_sent_to_is_refused(url: str, form: str, settings: dict[str, str]):
    with pytest.raises(InvalidInput):
        check_endpoint(url, load_settings(**settings), form)


# -- the words ------------------------------------------------------------------------------------


def message(kind: str, **data: Any) -> dict[str, Any]:
    return {"type": kind, "timestamp": "2030-01-01T12:00:00+00:00", "data": data}


def of_job(kind: str, name: str | None = "nightly", **more: Any) -> dict[str, Any]:
    job = {"id": "j", "name": name, "task": "report"}
    return message(kind, job=job, **{"execution": None, "deadline": None} | more)


def test_each_event_has_words():
    samples = {
        "balance.low": message("balance.low", score=0.3, suggestion="Move some."),
        "alert.started": message("alert.started", title="Late", detail="3 jobs"),
        "alert.ended": message("alert.ended", title="Late", since="2030-01-01T11:00:00+00:00"),
    }
    for event in [*ALL, "webhook.test"]:
        text = notice([samples.get(event) or of_job(event)], None)
        assert text.subject
        assert len(text.lines) == 1
        assert text.lines[0].link is None


def test_an_overdue_job_says_what_it_missed():
    deadline = {"kind": "overdue", "message": "It must have finished by 08:00."}
    text = notice([of_job("job.overdue", deadline=deadline)], "https://x")
    assert text.subject == "Overdue: nightly. It must have finished by 08:00."


def test_what_came_together_is_grouped_and_long_lists_are_cut():
    run = {"error_code": "E", "error_message": "boom"}
    many = [of_job("job.failed", execution=run) for _ in range(3)]
    others = [
        message("job.completed", job={"id": "j", "name": None, "task": f"t{n}"}, execution=None)
        for n in range(30)
    ]
    text = notice([*many, *others], "https://x")
    assert text.lines[0].text == "Failed: 3 runs of report: E, 12:00:00 to 12:00:00 UTC"
    assert text.subject.endswith("(and 30 more)")
    assert len(text.lines) == 21
    assert text.lines[-1].text == "… and 11 more things that happened."


def test_nobodys_text_becomes_markup_or_a_header():
    odd = of_job("job.failed", name="<!channel> *x* [y](http://z)\r\nBcc: a@b.c")
    text = notice([odd], "https://x")
    assert "\n" not in text.subject
    assert "<!channel>" not in as_slack(text)["text"]
    card = as_teams(text)["attachments"][0]["content"]["body"][0]["text"]
    assert "\\[y\\](http://z)" in card
    assert "Bcc" in as_mail(text)


def test_a_night_has_quiet_hours_of_its_zone():
    from evenbeat.store.webhooks import Outgoing
    from evenbeat.tasks.builtin.webhook import quiet_for

    def quiet(now: datetime) -> timedelta | None:
        out = Outgoing("e", "{}", False, "u", True, "s", None, now, "slack",
                       "22:00-07:00 Europe/Berlin")  # fmt: skip
        return quiet_for(out)

    assert quiet(datetime(2030, 1, 1, 20, 59, tzinfo=UTC)) is None
    assert quiet(datetime(2030, 1, 1, 21, 0, tzinfo=UTC)) == timedelta(hours=9)
    assert quiet(datetime(2030, 1, 2, 5, 59, tzinfo=UTC)) == timedelta(minutes=1)
    assert quiet(datetime(2030, 1, 2, 6, 0, tzinfo=UTC)) is None
