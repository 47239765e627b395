"""Forms, notices and filters that all screens share, and the words of concerns. No browser."""

import re
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from fastapi import Request

from evenbeat.dashboard.pages import NOTICE_COOKIE, Notice, PageRequest, parse, read_notices
from evenbeat.dashboard.rendering import NOTHING, share, templates
from evenbeat.domain.alerts import RULES
from evenbeat.errors import InvalidInput
from evenbeat.observe.alerts import Alert
from evenbeat.store.runs import RunGroup
from evenbeat.store.summaries import FailingJobs

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
ID = UUID(int=7)


@pytest.mark.parametrize(
    ("part", "words"),
    [(None, NOTHING), (0, "0 %"), (1, "100 %"), (0.9999, "> 99.9 %"), (0.00001, "< 0.1 %"),
     (0.5, "50 %"), (0.054, "5.4 %"), (0.995, "99.5 %")],
)  # fmt: skip
def test_shares(part: float | None, words: str) -> None:
    assert share(part) == words


def test_each_kind_of_concern_says_what_is_wrong() -> None:
    waiting = {"since": NOW, "jobs": {"queue": "mail"}}
    unserved = Alert(RULES["unserved"], "No worker takes 'send'", "3 due.", "Start one.", **waiting)
    late = Alert(RULES["late"], "Late in 'mail'", "2 can take them.", "Add workers.", **waiting)
    failing = FailingJobs("sync", "ValueError", 1, 1, NOW, ID, None, "boom\nmore")
    several = failing._replace(jobs=31, retrying=0)
    lost = RunGroup("sync", "lease_expired", 2, 1, NOW, NOW, ID, "gone")
    concerns = [
        ("alert", unserved), ("alert", late), ("failing", failing), ("failing", several),
        ("lost", lost),
    ]  # fmt: skip
    since = {("sync", "ValueError"): NOW - timedelta(hours=2)}
    html = templates.get_template("concerns.html").render(
        concerns=concerns, now=NOW, zone=UTC, url=lambda *_parts, **_query: "/x",
        failing_since=since,
    )  # fmt: skip
    items = [" ".join(re.sub("<[^>]*>", " ", item).split()) for item in html.split("<li")[1:]]
    assert "No worker takes &#39;send&#39; now 3 due. Start one." in items[0]
    assert "Late in &#39;mail&#39; now 2 can take them. Add workers." in items[1]
    assert "sync since 10:00:00 , last now ValueError boom 1 job waits for a retry." in items[2]
    assert "sync: 31 jobs failing since 10:00:00 , last now" in items[3]
    assert "sync: 2 runs lost since 12:00:00 , last now Workers vanished" in items[4]


@pytest.mark.parametrize("body", [b"a=%ff", b"\xff=1", b"&".join([b"a=1"] * 5_001)])
def test_a_form_that_cannot_be_read_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput):
        parse(body)


def test_a_form_gives_the_last_text_and_every_choice() -> None:
    form = parse(b"name=+a+&id=1&id=2&id=&note=x%0D%0Ay&name=%C3%A4")
    assert (form.text("name"), form.many("id"), form.text("none")) == ("ä", ["1", "2"], "")
    assert form.text("note") == "x\ny"
    assert form.without("id", "note") == "name=+a+&name=%C3%A4"


def test_notices_survive_a_redirect_and_nothing_else_does() -> None:
    notices = [Notice("Paused “ä”.", "refused", "Undo", "/x"), Notice("y" * 2_000)]
    response = PageRequest(_with_cookie("")).back("/jobs", *notices)
    header = response.headers["set-cookie"]
    assert "Path=/ops" in header
    assert "HttpOnly" in header
    assert "Secure" in header
    cookie = header.partition(";")[0].partition("=")[2].strip('"')
    first, second = read_notices(_with_cookie(cookie))
    assert first == Notice("Paused “ä”.", "refused", "Undo", "/x")
    assert second.text.endswith("…")
    for strange in ("", "x", "W10=", "e30=", "bnVsbA==", "[[[[", "WzFd"):
        assert read_notices(_with_cookie(strange)) == []


def _with_cookie(value: str) -> Request:
    cookie = f"{NOTICE_COOKIE}={value}".encode()
    scope = {
        "type": "http",
        "scheme": "https",
        "path": "/",
        "root_path": "/ops",
        "query_string": b"",
    }
    return Request({**scope, "server": ("x", 443), "headers": [(b"cookie", cookie)]})
