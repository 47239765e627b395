"""Whatever text comes from outside, no command hands a terminal anything that it would obey."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from said import Command
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from typer.main import get_command

from evenbeat import Evenbeat, Fail, cli
from evenbeat.api.app import create
from evenbeat.api.auth.tokens import Access
from evenbeat.crawl.documents import Documents, Lease
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.schedule import KINDS
from evenbeat.domain.states import JobStatus
from evenbeat.engine.worker import Worker
from evenbeat.store.runs import RunFilter
from loopback import SECRET, served
from waiting import wait_for

HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b2J\x85\u202egnp.exe\u2066\u200f"
OWN = re.compile(r"\x1b\[([0-9;]*m|\?25[hl]|2K|1A)|\r")
"""Colours, and what draws a bar again in its place."""
OBEYED = re.compile("[^\n\t -~]")


def dangers(text: str) -> list[str]:
    return [sign for sign in OBEYED.findall(OWN.sub("", text)) if not sign.isprintable()]


class Hostile:
    """A service in whose responses every text ends in what a terminal would obey; ids, times and
    words that steer stay what they are."""

    def __init__(self, api: ASGIApp) -> None:
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start: Message = {}
        body = b""

        async def collect(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start":
                start = message
                return
            body += message.get("body", b"")
            if not message.get("more_body", False):
                content = json.dumps(spoilt(json.loads(body))).encode() if body else b""
                start["headers"] = [
                    (name, b"%d" % len(content) if name == b"content-length" else value)
                    for name, value in start["headers"]
                ]
                await send(start)
                await send({"type": "http.response.body", "body": content})

        await self._api(scope, receive, collect)


def spoilt(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: spoilt(one) for name, one in value.items()}
    if isinstance(value, list):
        return [spoilt(one) for one in value]
    if not isinstance(value, str) or value.startswith("msg_") or value in {*JobStatus, *KINDS}:
        return value
    for read in (UUID, datetime.fromisoformat):
        with suppress(ValueError):
            read(value)
            return value
    return value + HOSTILE


FILES = {
    "jobs.json": json.dumps(
        {"jobs": [{"task": "send", "name": "told", "schedule": "@daily", "payload": {"x": HOSTILE}},
                  {"task": HOSTILE, "schedule": HOSTILE}]}
    ),
    "jobs.yaml": f"jobs:\n- {{task: send, name: more, schedule: '@daily', description: "
                 f"{json.dumps(HOSTILE)}}}\n- {{task: {json.dumps(HOSTILE)}}}\n",
    "crontab": f"5 5 * * * echo {HOSTILE}\n99 * * * * broken {HOSTILE}\n@{HOSTILE}\n",
    "beat.py": "from celery import Celery\nfrom celery.schedules import crontab\n"
               "app = Celery('shop', set_as_current=False)\n"
               f"app.conf.beat_schedule = {{{HOSTILE!r}: "
               f"{{'task': {HOSTILE!r}, 'schedule': crontab(minute=5)}}}}\n",
    "mail.yaml": f"name: mail\ndescription: {json.dumps(HOSTILE)}\nbody: {{task: send}}\n",
}  # fmt: skip


def lines_of(world: dict[str, str]) -> dict[str, list[str]]:
    """How each command is called. A new command is missing here, and the test says so."""
    job, run, hook, message, batch = (
        world[name] for name in ("job", "run", "hook", "message", "batch")
    )
    return {
        "worker list": [""],
        "worker drain": [world["worker"], "--all --yes"],
        "job add": [f"send to={HOSTILE.replace(' ', '')}", "none"],
        "job list": ["", "--search send", "--status nonsense"],
        "job show": [job, "none"],
        "job logs": [job, f"{world['failed']} -f"],
        "job edit": [f"{job} --priority 5", f"{job} --window nonsense"],
        "job pause": [job],
        "job resume": [job],
        "job cancel": [job, f"{job} {world['failed']}"],
        "job retry": [job],
        "job run": [job],
        "job delete": [f"{world['spare']} --yes"],
        "job watch": [world["failed"]],
        "job backfill": [f"{job} --from 2030-01-01T00:00:00Z --to 2030-01-02T00:00:00Z"],
        "job send-event": [f"{job} approved", f"{job} approved --link"],
        "job tree": [job, world["batched"]],
        "batch list": [""],
        "batch show": [batch, "none"],
        "batch pause": [batch],
        "batch resume": [batch],
        "batch retry": [batch],
        "batch close": [batch],
        "batch cancel": [f"{batch} --yes"],
        "execution list": [""],
        "execution show": [run],
        "execution logs": [run, f"{run} -f"],
        "execution errors": [""],
        "execution cancel": [run],
        "execution retry": [f"{run} --yes", "--since 1h --dry-run"],
        "template save": ["mail.yaml", "jobs.json"],
        "template list": [""],
        "template show": ["mail"],
        "template use": ["mail --preview", "mail"],
        "template delete": ["mail --yes"],
        "schedule preview": ["@daily", "nonsense"],
        "task list": [""],
        "queue list": [""],
        "queue pause": ["mail"],
        "queue resume": ["mail"],
        "limit set": [f"key{HOSTILE.split('[', maxsplit=1)[0]} --rate 1/s", "key --rate 1/s"],
        "limit list": [""],
        "limit reset": ["key"],
        "documents search": ["", "moon"],
        "documents show": [world["document"]],
        "documents sources": [""],
        "documents delete": [world["document"]],
        "import crontab": ["crontab --dry-run", "crontab --yes"],
        "import celery": ["beat:app --dry-run", "beat:app --yes"],
        "import apscheduler": ["sqlite:///none --trust"],
        "import json": ["jobs.json --dry-run", "jobs.json --yes"],
        "import yaml": ["jobs.yaml --dry-run", "jobs.yaml --yes"],
        "export": ["", "--format yaml", "--out out.json"],
        "stats": [""],
        "top": ["--once"],
        "distribution": [""],
        "rebalance": ["", "--apply --yes"],
        "simulate": ["--crontab crontab", "--jobs jobs.json"],
        "webhook add": ["http://127.0.0.1:9/x --event job.failed"],
        "webhook list": [""],
        "webhook show": [hook],
        "webhook disable": [hook],
        "webhook enable": [hook],
        "webhook rotate": [hook],
        "webhook test": [hook],
        "webhook deliveries": [hook],
        "webhook message": [message, f"msg_{HOSTILE}"],
        "webhook redeliver": [message],
        "webhook delete": [f"{hook} --yes"],
        "token create": ["--role viewer --subject x", f"--role viewer --subject {HOSTILE}"],
        "token list": [""],
        "token revoke": [world["token"]],
        "token login": [""],
        "migrate": [""],
        "audit": [""],
        "pause": [f"--reason {HOSTILE} --until 2h"],
        "doctor": [""],
        "resume": [""],
    }  # fmt: skip


SERVERS = {"serve", "worker"}
"""These log; `tests/unit/test_logs.py` has what becomes of texts there."""
LOCAL = {"token", "migrate", "simulate"}
"""These read the database and files themselves."""


def leaves(command: Any, words: str = "") -> Iterator[str]:
    command = command.load() if hasattr(command, "load") else command
    if not hasattr(command, "commands"):
        yield words
        return
    for name, inner in command.commands.items():
        yield from leaves(inner, f"{words} {name}".strip())


@pytest.fixture
def app(database_url: str) -> Iterator[Evenbeat]:
    app = Evenbeat(database_url, auth_secret=SECRET, allow_private_addresses=True, poll_seconds=0.1)

    @app.task(queue="mail")
    def send(to: str = "", **_: object) -> dict[str, Any]:
        """Send something."""
        return {"to": to}

    @app.task(max_retries=0)
    def breaks() -> None:
        raise Fail(HOSTILE)

    with app:
        yield app


@pytest.fixture
def worker(app: Evenbeat) -> Iterator[Worker]:
    worker = app.worker(queues=["mail", "default"])
    worker.start()
    yield worker
    worker.stop(grace=0)


@pytest.fixture
def world(app: Evenbeat, worker: Worker, tmp_path: Path, database_url: str) -> dict[str, str]:
    """A database with some of everything."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    store = app.store
    source = store.add(NewJob(JobSpec("crawl", queue="crawls"), {"url": "https://a.b"}))
    (claimed,) = store.claim(UUID(int=1), 1, queues=["crawls"])
    lease = Lease(source.id, claimed.lock_token)
    documents = Documents(store.database)
    documents.begin(lease, f"news{HOSTILE}", "https://a.b", f"News{HOSTILE}")
    page = type("Page", (), {"key": "a.b/1", "title": f"One{HOSTILE}", "depth": 1,
                             "text": f"The moon {HOSTILE}", "url": "https://a.b/1"})()  # fmt: skip
    documents.save(lease, f"news{HOSTILE}", [page])
    failed = store.add(NewJob(JobSpec("breaks")))
    job = store.add(NewJob(JobSpec("send", queue="mail"), {"to": HOSTILE}))
    spare = store.add(NewJob(JobSpec("send", queue="mail"), {"to": HOSTILE}))
    hook = store.webhooks.add("http://127.0.0.1:9/x", ["job.failed"], description=HOSTILE)
    message = store.webhooks.test(hook.id)
    batch = app.open_batch(name="newsletter")
    batch.add(app.task_named("send").job(to=HOSTILE))
    (batched,) = app.jobs.list(batch=batch)
    wait_for(lambda: {store.read.job(one.id).status for one in (failed, job, spare)}
             == {"failed", "completed"}, "the runs")  # fmt: skip
    run = store.runs.page(RunFilter(job_id=failed.id), 1).runs[0].execution
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "INSERT INTO evenbeat.tokens (id, kind, subject, role, created_by, expires_at, "
            "created_at) VALUES (%s, 'token', %s, 'viewer', %s, now() + interval '1 h', now())",
            (UUID(int=7), HOSTILE, HOSTILE),
        )
        (document,) = connection.execute("SELECT id FROM evenbeat.documents").fetchone() or ("",)
    return {
        "job": str(job.id), "failed": str(failed.id), "spare": str(spare.id), "run": str(run.id),
        "hook": str(hook.id), "message": f"msg_{message.id.hex}", "document": str(document),
        "batch": str(batch.id), "batched": str(batched.id),
        "worker": str(store.upkeep.workers()[0].id), "token": str(UUID(int=7)),
    }  # fmt: skip


@pytest.mark.parametrize("is_terminal", [False, True])
def test_no_command_lets_through_what_a_terminal_obeys(
    app: Evenbeat, world: dict[str, str], evenbeat: Command, is_terminal: bool
):
    lines = lines_of(world)
    known = {one for one in leaves(get_command(cli.cli)) if one not in SERVERS}
    assert known == lines.keys(), "say how the new command is called"
    environment = {"FORCE_COLOR": "1", "TERM": "xterm"} if is_terminal else {}
    hostile = 0
    with served(Hostile(create(app, access=Access.open()))) as url:
        for command, calls in lines.items():
            for line in calls:
                where = [] if command.split()[0] in LOCAL else ["--url", url]
                said = evenbeat(*command.split(), *line.split(" "), *where, **environment)
                assert not dangers(said.out + said.err), (command, line, said)
                assert "This is a bug" not in said.err, f"{command} {line}: {said.err}"
                hostile += "\\u202e" in said.out + said.err
    assert hostile > 30, "or the texts were not there at all"


def test_documents_stay_json_and_equal(
    app: Evenbeat, world: dict[str, str], evenbeat: Command, tmp_path: Path
):
    with served(Hostile(create(app, access=Access.open()))) as url:
        for command in (
            "job list",
            "documents sources",
            f"execution show {world['run']}",
            "task list",
        ):
            said = evenbeat(*command.split(), "--json", "--url", url)
            assert not dangers(said.out), command
            assert any(HOSTILE in text for text in texts(said.json)), command
    assert [token["subject"] for token in evenbeat("token", "list", "--json").json["tokens"]] == [
        HOSTILE
    ]


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from texts(one)
    elif isinstance(value, str):
        yield value
