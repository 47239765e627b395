"""Webhook messages as a text for people: several as one, the same error once, with links. Pure."""

import html
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

from evenbeat.humanize import count, shorten

MOST_LINES = 20
_LONGEST_LINE = 300

_RUN_WORDS = {
    "job.completed": "Completed",
    "job.retrying": "Retrying",
    "job.failed": "Failed",
    "job.cancelled": "Cancelled",
    "job.late": "Late",
    "job.overdue": "Overdue",
    "job.recovered": "Recovered",
}


class Line(NamedTuple):
    """One thing that happened, in words, and the page about it, if it is known where that is."""

    text: str
    link: str | None = None


class Announcement(NamedTuple):
    """What to tell: a subject, and what happened."""

    subject: str
    lines: Sequence[Line]


def notice(messages: Iterable[Mapping[str, Any]], base: str | None) -> Announcement:
    """One notice of the payloads of messages, in their order. `base` is the dashboard's address."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for message in messages:
        job = message["data"].get("job") or {}
        run = message["data"].get("execution") or {}
        subject = job.get("task") or str(message["timestamp"])
        key = (message["type"], subject, run.get("error_code") or "")
        groups.setdefault(key, []).append(message)
    lines = [_line(group, base) for group in groups.values()]
    subject = lines[0].text if len(lines) == 1 else f"{lines[0].text} (and {len(lines) - 1} more)"
    if len(lines) > MOST_LINES:
        rest = count(len(lines) - MOST_LINES, "more thing")
        lines = [*lines[:MOST_LINES], Line(f"… and {rest} that happened.", base)]
    return Announcement(shorten(" ".join(subject.split()), 150), lines)


def _line(group: Sequence[Mapping[str, Any]], base: str | None) -> Line:
    first, last = group[0], group[-1]
    kind, data = first["type"], last["data"]
    if kind == "webhook.test":
        return Line("A test message: this is where Evenbeat writes to.", base)
    if kind == "balance.low":
        text = f"The load is uneven (score {data['score']:.2f}). {data['suggestion']}"
        return Line(_short(text), _to(base, "/distribution"))
    if kind in ("alert.started", "alert.ended"):
        over = kind == "alert.ended"
        title = f"Over: {data['title']}" if over else data["title"]
        return Line(_short(f"{title}. {data.get('detail') or ''}".rstrip(". ") + "."), base)
    job, run, word = data["job"], data["execution"] or {}, _RUN_WORDS[kind]
    error = f": {run['error_code']}" if run.get("error_code") else ""
    if len(group) > 1:
        since, until = (_clock(one["timestamp"]) for one in (first, last))
        text = f"{word}: {count(len(group), 'run')} of {job['task']}{error}, {since} to {until} UTC"
        return Line(_short(text), _to(base, "/jobs", task=job["task"]))
    message = (data.get("deadline") or run or {}).get("message") or run.get("error_message") or ""
    text = f"{word}: {job['name'] or job['task']}{error}"
    return Line(_short(f"{text}. {message}" if message else text), _to(base, f"/jobs/{job['id']}"))


def as_slack(one: Announcement) -> dict[str, Any]:
    """For an incoming webhook of Slack, or of a chat that takes its form."""

    def shown(line: Line) -> str:
        text = html.escape(line.text, quote=False)
        return f"{text} <{line.link}|open>" if line.link else text

    texts = [shown(line) for line in one.lines]
    return {"text": texts[0] if len(texts) == 1 else "\n".join(f"• {text}" for text in texts)}


def as_teams(one: Announcement) -> dict[str, Any]:
    """For a workflow of Microsoft Teams: a message with one adaptive card."""
    blocks = [{"type": "TextBlock", "wrap": True, "text": _marked(line)} for line in one.lines]
    card = {"type": "AdaptiveCard", "version": "1.4", "body": blocks,
            "$schema": "http://adaptivecards.io/schemas/adaptive-card.json"}  # fmt: skip
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return {"type": "message", "attachments": [attachment]}


def as_mail(one: Announcement) -> str:
    """The body of a mail."""
    return "\n\n".join(
        f"{line.text}\n{line.link}" if line.link else line.text for line in one.lines
    )


def _marked(line: Line) -> str:
    text = "".join("\\" + sign if sign in "\\`*_[]<>" else sign for sign in line.text)
    return f"{text} [open]({line.link})" if line.link else text


def _to(base: str | None, path: str, **query: str) -> str | None:
    return base and f"{base}{path}" + (f"?{urlencode(query)}" if query else "")


def _clock(timestamp: str) -> str:
    return f"{datetime.fromisoformat(timestamp):%H:%M:%S}"


def _short(text: str) -> str:
    return shorten(" ".join(text.split()), _LONGEST_LINE)
