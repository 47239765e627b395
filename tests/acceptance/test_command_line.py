"""The command line, on the database itself and over a real service with a token."""

import asyncio
import json
import os
import pty
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from real_processes import Start
from said import Command

from evenbeat import Context, Evenbeat, Fail
from evenbeat.api.app import create
from evenbeat.api.auth.tokens import Access, Role
from evenbeat.cli import COMMANDS
from evenbeat.store.store import Store
from loopback import served
from waiting import PATIENCE

SECRET = "a secret of the tests that is long enough"  # noqa: S105


@pytest.fixture
def app(database_url: str) -> Iterator[Evenbeat]:
    """What a worker and a service would run."""
    app = Evenbeat(database_url, auth_secret=SECRET, poll_seconds=0.1)

    @app.task(queue="mail")
    def send(to: str, n: int = 1) -> dict[str, Any]:
        """Send something."""
        return {"to": to, "n": n}

    @app.task(max_retries=0)
    def breaks() -> None:
        raise Fail("It was meant to.")

    @app.task
    async def counts(upto: int, ctx: Context) -> None:
        for n in range(upto):
            ctx.progress(n + 1, upto, "counting")
            await asyncio.sleep(0.02)

    with app:
        yield app


@pytest.fixture
def worker(app: Evenbeat) -> Iterator[None]:
    worker = app.worker()
    worker.start()
    yield
    worker.stop(grace=0)


@pytest.fixture
def access(app: Evenbeat) -> Access:
    return Access.of(app.settings, app.store)


@pytest.fixture
def service(app: Evenbeat, access: Access) -> Iterator[str]:
    with served(create(app, access=access)) as url:
        yield url


@pytest.fixture
def token_for(access: Access) -> Callable[[str], str]:
    return lambda role: access.issue(Role(role), timedelta(hours=1), subject=f"a {role}").token


def add(evenbeat: Command, *arguments: str) -> str:
    said = evenbeat("job", "add", *arguments, "--json")
    assert said.code == 0, said.err
    return str(said.json["id"])


# -- adding --------------------------------------------------------------------------------------


def test_an_off_peak_job_shows_its_hours_and_its_file_makes_another(evenbeat: Command, tmp_path):
    said = evenbeat("job", "add", "send", "--every", "1d", "--window", "off_peak", "--name", "calm")
    assert "calm: every day, only off_peak 00:00-04:00 UTC." in said.out
    assert "off_peak 00:00-04:00 UTC" in evenbeat("job", "show", "calm").out
    exported = evenbeat("export").out
    assert '"window": "off_peak"' in exported
    (tmp_path / "jobs.json").write_text(exported)
    again = evenbeat("import", "json", str(tmp_path / "jobs.json"))
    assert again.code == 0, again.err
    assert "unchanged" in again.out


def test_a_job_is_added_with_everything_that_was_said(evenbeat: Command, store: Store):
    said = evenbeat(
        *("job", "add", "send", "to=a@b.c", "n=5", 'list=["x", null]', "text=", "--name", "mail"),
        *("--payload", '{"n": 1, "deep": {"a": true}}', "--every", "90m", "--queue", "post"),
        *("--priority", "7", "--tag", "x", "--tag", "y", "--timeout", "30s", "--max-retries", "2"),
        *("--window", "Mon-Fri 22:00-06:00 UTC", "--placement", "pinned", "--scope", "tenant/7"),
        *("--description", "For people", "--paused"),
    )

    assert said.code == 0
    job_id = said.out.split()[0]
    assert "mail [tenant/7]: every 1 hour 30 minutes, only Mon-Fri 22:00-06:00 UTC." in said.out
    assert "No worker has the task 'send' yet" in said.err
    job = store.read.job(UUID(job_id))
    assert job.payload == {
        "n": 5,
        "deep": {"a": True},
        "to": "a@b.c",
        "list": ["x", None],
        "text": "",
    }
    assert (job.name, job.queue, job.priority, job.interval_seconds) == ("mail", "post", 7, 5400)
    assert (job.timeout_seconds, job.max_retries, job.placement) == (30, 2, "pinned")
    assert (job.scope_kind, job.scope_id, job.is_paused) == ("tenant", "7", True)
    assert job.metadata == {"tags": ["x", "y"], "description": "For people"}
    assert job.created_by == "ann"


def test_the_payload_comes_from_a_file_or_from_standard_input(
    evenbeat: Command, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "arguments.json").write_text('{"ä": "ü"}', encoding="utf-8")
    from_file = add(evenbeat, "x", "--payload", "@arguments.json")
    with (tmp_path / "arguments.json").open(encoding="utf-8") as given:
        monkeypatch.setattr("sys.stdin", given)
        from_input = add(evenbeat, "x", "--payload", "-")

    assert store.read.job(UUID(from_file)).payload == {"ä": "ü"}
    assert store.read.job(UUID(from_input)).payload == {"ä": "ü"}


def test_a_dedup_key_finds_the_job_that_is_there(evenbeat: Command):
    first = add(evenbeat, "x", "--dedup-key", "k", "--delay", "1h")
    said = evenbeat("job", "add", "x", "--dedup-key", "k")
    assert said.code == 0
    assert said.out.startswith(f"{first}  was there already")


def test_a_unique_call_finds_the_job_that_is_there(evenbeat: Command, store: Store):
    unique = ["x", "user=ann", "--unique-for", "1h", "--unique-by", "user"]
    first = add(evenbeat, *unique, "page=1")
    assert evenbeat("job", "add", *unique, "page=2").out.startswith(f"{first}  was there already")
    debounced = ["x", "--debounce", "30s", "--debounce-max", "5m"]
    waiting = add(evenbeat, *debounced, "page=1")
    said = evenbeat("job", "add", *debounced, "page=2")
    assert said.out.startswith(f"{waiting}  was there already")
    assert store.read.job(UUID(waiting)).payload == {"page": 2}


WRONG_ADDS = {
    "not KEY=VALUE": (["x", "to"], "'to' is not of the form KEY=VALUE"),
    "no key": (["x", "=5"], "'=5' is not of the form KEY=VALUE"),
    "not JSON": (["x", "--payload", "{"], "--payload is not JSON"),
    "not an object": (["x", "--payload", "[1]"], "--payload must be a JSON object"),
    "not a number": (["x", "--payload", '{"n": NaN}'], "--payload is not JSON: NaN is not JSON"),
    "no such file": (["x", "--payload", "@nowhere"], "nowhere cannot be read: No such file"),
    "two schedules": (["x", "--every", "1h", "--cron", "* * * * *"], "--every and --cron both say"),
    "no duration": (["x", "--every", "soon"], "'soon'"),
    "two ways to be unique": (
        ["x", "--throttle", "1h", "--debounce", "1m"],
        "Give one of unique_for",
    ),
    "no cron": (["x", "--cron", "* * *"], "cron"),
    "no zone": (["x", "--cron", "@daily", "--timezone", "Mars/Base"], "Mars/Base"),
    "no zone in a time": (["x", "--at", "2030-01-01T00:00:00"], "it has no time zone"),
    "priority": (["x", "--priority", "101"], "priority"),
    "scope": (["x", "--scope", "tenant"], "--scope tenant: give kind and id"),
    "empty task": ([""], "task"),
    "no task": ([], "Missing argument 'TASK'"),
    "unknown option": (["x", "--evry", "1h"], "--evry"),
    "both places": (["x", "--url", "http://localhost", "--database", "postgresql:///x"], "--url"),
    "no URL": (["x", "--url", "localhost:8060"], "--url must be the address of the service"),
}


def test_a_mistake_gets_one_line_and_adds_nothing(evenbeat: Command, store: Store):
    for mistake, (arguments, explanation) in WRONG_ADDS.items():
        said = evenbeat("job", "add", *arguments)

        assert (said.code, said.out) == (2, ""), mistake
        assert said.err.count("\n") == 1, mistake
        assert said.err.startswith("evenbeat: ")
        assert explanation in said.err, mistake
    assert store.read.jobs().total == 0


# -- listing and finding -------------------------------------------------------------------------


def test_an_empty_list_says_what_to_do(evenbeat: Command):
    said = evenbeat("job", "list")
    assert (said.code, said.out) == (0, "")
    assert "Add one: evenbeat job add" in said.err
    assert evenbeat("job", "list", "--json").json["jobs"] == []
    assert "No job matches" in evenbeat("job", "list", "--status", "failed").err
    assert evenbeat("job", "list", "--status", "lost").code == 2


def test_the_list_filters_sorts_and_pages(evenbeat: Command):
    for n in range(3):
        add(evenbeat, "x", "--name", f"job-{n}", "--tag", f"t{n % 2}", "--delay", "1h")
    add(evenbeat, "y", "--every", "1h", "--queue", "slow")

    listed = evenbeat("job", "list", "--sort", "name", "--limit", "2")
    lines = listed.out.splitlines()
    assert lines[0].split() == ["id", "status", "job", "schedule", "next", "run", "queue", "prio",
                                "runs", "takes"]  # fmt: skip
    assert [line.split()[2] for line in lines[1:]] == ["job-0", "job-1"]
    assert "in 1 h" in lines[1] or "in 59 min" in lines[1]
    assert listed.err == "2 more: --limit, or --offset 2.\n"
    assert evenbeat("job", "list", "--tag", "t0", "--json").json["total"] == 2
    assert evenbeat("job", "list", "--search", "JOB-2", "--json").json["total"] == 1
    assert evenbeat("job", "list", "--kind", "interval", "--queue", "slow").out.count("\n") == 2


def test_a_table_fits_its_terminal_and_has_no_colours_in_a_pipe(evenbeat: Command):
    add(evenbeat, "x", "--name", "n" * 150, "--cron", "1,2,3 4,5 * jan mon-fri")
    for columns in ("80", "120"):
        said = evenbeat("job", "list", COLUMNS=columns)
        assert max(map(len, said.out.splitlines())) <= int(columns)
        assert said.out.splitlines()[1].count("…") == 2
        assert "\x1b" not in said.out


def test_a_job_is_found_by_name_by_id_and_by_its_beginning(evenbeat: Command, store: Store):
    mail = add(evenbeat, "x", "--name", "mail", "--delay", "1h")
    tenants = [add(evenbeat, "x", "--name", "sync", "--scope", f"tenant/{n}") for n in "ab"]

    for text in ("mail", mail, mail.replace("-", ""), mail[:25], mail[:25].upper()):
        assert evenbeat("job", "show", text, "--json").json["id"] == mail, text
    both = evenbeat("job", "show", "sync")
    assert both.code == 2
    assert all(part in both.err for part in ("more than one", "sync [tenant/a]", tenants[1][:13]))
    assert evenbeat("job", "show", mail[:6]).code == 2
    for nobody in ("nobody", str(uuid4()), "ffff-ffff", ""):
        assert evenbeat("job", "show", nobody).code == 4, nobody


# -- one job -------------------------------------------------------------------------------------


def test_show_tells_the_definition_the_plans_and_why(evenbeat: Command):
    add(evenbeat, "x", "a=1", "--name", "report", "--cron", "0 9 * * mon-fri",
        "--timezone", "Europe/Berlin")  # fmt: skip

    said = evenbeat("job", "show", "report")

    assert said.out.startswith("report  scheduled\n")
    assert 'payload   {"a": 1}' in said.out
    assert "at 09:00 on Monday through Friday, Europe/Berlin  (0 9 * * mon-fri Europe/Berlin)" in (
        said.out.replace("1-5", "mon-fri").replace("MON-FRI", "mon-fri")
    )
    why = said.out.split("\nWhy\n")[1].split("\n\n")[0]
    assert "It is waiting for its next run" in why
    plans = said.out.split("Next runs\n")[1].split("\n\n")[0].strip().splitlines()
    assert len(plans) == 5
    assert all(" 08:00:00 UTC" in plan or " 07:00:00 UTC" in plan for plan in plans)
    document = evenbeat("job", "show", "report", "--json").json
    assert document["task"] == "x"
    assert {"explanation", "plans", "executions"} <= document.keys()


def test_what_a_job_says_cannot_command_the_terminal(evenbeat: Command):
    job_id = add(evenbeat, "x", 'evil="\\u001b[2J\\u202e"', "--delay", "1h")
    said = evenbeat("job", "show", job_id)
    assert "\x1b" not in said.out
    assert "\u202e" not in said.out
    assert "[2J" in said.out


def test_verbs_change_one_job_and_say_so(evenbeat: Command, store: Store):
    job_id = add(evenbeat, "x", "--name", "sync", "--every", "1h")
    for verb, words, status in (
        ("pause", "Paused sync.", "paused"),
        ("resume", "Resumed sync. Next run: ", "scheduled"),
        ("run", "Started sync.", "pending"),
        ("cancel", "Cancelled sync.", "cancelled"),
        ("retry", "Retrying sync.", "pending"),
    ):
        said = evenbeat("job", verb, "sync")
        assert (said.code, said.err) == (0, ""), verb
        assert said.out.startswith(words)
        assert store.read.job(UUID(job_id)).status == status

    again = evenbeat("job", "resume", "sync")
    assert again.code == 1
    assert "cannot be resumed" in again.err
    assert evenbeat("job", "pause", "sync", "--json").json["is_paused"] is True


def test_a_list_is_given_with_commas_or_several_times(evenbeat: Command, store: Store):
    lists = ["--retry-on", "OSError, httpx.ReadError", "--retry-delays", "5s,1m"]
    assert evenbeat("job", "add", "send", "--name", "lists", *lists).code == 0
    job = store.read.job_by_name("lists")
    assert job is not None
    assert (job.retry_on, job.retry_delays_seconds) == (["OSError", "httpx.ReadError"], [5, 60])
    assert evenbeat("job", "edit", "lists", "--retry-on", "A", "--retry-on", "B").code == 0
    assert store.read.job(job.id).retry_on == ["A", "B"]


def test_edit_changes_what_is_given_and_nothing_else(evenbeat: Command, store: Store):
    job_id = add(evenbeat, "x", "a=1", "b=2", "--name", "sync", "--timeout", "30s", "--every", "1h")

    said = evenbeat(*("job", "edit", "sync", "b=3", "c=null", "--every", "2h", "--priority", "9"))

    assert said.code == 0, said.err
    assert "sync: every 2 hours" in said.out
    job = store.read.job(UUID(job_id))
    assert (job.payload, job.interval_seconds) == ({"a": 1, "b": 3, "c": None}, 7200)
    assert (job.priority, job.timeout_seconds) == (9, 30)
    evenbeat("job", "edit", "sync", "--payload", "{}", "--unset", "timeout", "--name", "synced")
    job = store.read.job(UUID(job_id))
    assert (job.payload, job.timeout_seconds, job.name) == ({}, None, "synced")
    evenbeat("job", "edit", "synced", "--priority", "0", "--max-retries", "0")
    job = store.read.job(UUID(job_id))
    assert (job.priority, job.max_retries) == (0, 0)
    for wrong in ([], ["--unset", "nonsense"], ["--priority", "101"], ["a"], ["--paused"]):
        assert evenbeat("job", "edit", "synced", *wrong).code == 2, wrong
    assert evenbeat("job", "edit", "sync", "--priority", "1").code == 4
    assert store.read.job(UUID(job_id)) == job


def test_deleting_asks_first(evenbeat: Command, store: Store):
    add(evenbeat, "x", "--name", "old")
    refused = evenbeat("job", "delete", "old")
    assert refused.code == 1
    assert "give --yes" in refused.err
    assert store.read.jobs().total == 1
    done = evenbeat("job", "delete", "old", "--yes")
    assert (done.code, done.out) == (0, "Deleted 1 job.\n")
    assert store.read.jobs().total == 0


# -- many jobs -----------------------------------------------------------------------------------


def test_several_jobs_are_changed_together(evenbeat: Command):
    names = [add(evenbeat, "x", "--name", f"n{n}", "--delay", "1h") and f"n{n}" for n in range(3)]
    evenbeat("job", "cancel", "n1")

    said = evenbeat("job", "pause", *names, names[0])

    assert said.code == 1
    assert said.out == "Paused 2 jobs.\n"
    assert said.err.count("\n") == 1
    assert "cancelled cannot be paused" in said.err
    unknown = evenbeat("job", "resume", "n0", "nobody")
    assert unknown.code == 4
    assert evenbeat("job", "list", "--status", "paused", "--json").json["total"] == 2


def test_a_filter_changes_all_that_match_when_confirmed(evenbeat: Command):
    for n in range(3):
        add(evenbeat, "x", "--queue", "a" if n else "b", "--delay", "1h")
    assert "Pause 2 jobs?" in evenbeat("job", "pause", "--all", "--queue", "a").err
    assert evenbeat("job", "list", "--status", "paused", "--json").json["total"] == 0

    assert evenbeat("job", "pause", "--all", "--queue", "a", "-y").out == "Paused 2 jobs.\n"
    assert evenbeat("job", "delete", "--all", "--yes", "--json").json["changed"] == 3
    assert evenbeat("job", "delete", "--all", "--yes").out == "No job matches.\n"


def test_a_filter_without_all_and_names_beside_all_are_refused(evenbeat: Command):
    for arguments in ([], ["--status", "failed"], ["--all", "x"], ["x", "--queue", "a"]):
        said = evenbeat("job", "cancel", *arguments)
        assert said.code == 2, arguments
        assert "Name the jobs, or give --all" in said.err


# -- running -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("worker")
def test_watch_follows_to_the_end_and_logs_tell_the_rest(evenbeat: Command):
    add(evenbeat, "counts", "upto=5", "--name", "counted")
    add(evenbeat, "breaks", "--name", "broken", "--max-retries", "0")

    good = evenbeat("job", "watch", "counted", "--timeout", "20s")
    bad = evenbeat("job", "watch", "broken", "--timeout", "20s")

    assert good.code == 0, good.err
    assert good.out.startswith("Execution ")
    assert good.err.splitlines()[-1] == "counted: completed"
    assert bad.code == 1
    assert "fail: It was meant to." in bad.out
    logs = evenbeat("job", "logs", "broken", "--failed", "--json").json
    assert logs["executions"][0]["error_message"] == "It was meant to."
    assert "It was meant to." in evenbeat("job", "logs", "broken").out
    listed = evenbeat("execution", "list")
    assert {"counted", "broken"} <= set(listed.out.split())
    failed = evenbeat("execution", "list", "--status", "failed", "--json").json["executions"]
    assert len(failed) == 1
    shown = evenbeat("execution", "show", failed[0]["id"])
    assert "error    fail: It was meant to." in shown.out
    assert evenbeat("execution", "list", "--job", "broken").out.count("failed") == 1
    assert evenbeat("execution", "show", str(uuid4())).code == 4
    chosen = ("--task", "breaks", "--since", "1h", "--status", "failed")
    chosen_runs = evenbeat("execution", "list", *chosen, "--json").json["executions"]
    assert {one["job_name"] for one in chosen_runs} == {"broken"}
    assert evenbeat("execution", "list", "--until", "1d").out == ""
    (group,) = evenbeat("execution", "errors", *chosen, "--json").json["groups"]
    assert (group["task"], group["runs"]) == ("breaks", len(chosen_runs))
    assert (
        "breaks"
        in evenbeat("execution", "errors", "--worker", chosen_runs[0]["worker_id"][:18]).out
    )
    assert evenbeat("execution", "retry").code == 2
    assert "Would run" in evenbeat("execution", "retry", *chosen, "--dry-run").out
    assert "Started 1 job." in evenbeat("execution", "retry", chosen_runs[0]["id"]).out
    assert "Started 1 job." in evenbeat("execution", "retry", *chosen, "--yes").out


def test_watch_gives_up_when_told(evenbeat: Command):
    add(evenbeat, "nobody_has_it", "--name", "waits")
    said = evenbeat("job", "watch", "waits", "--timeout", "100ms", "--every", "20ms")
    assert said.code == 1
    assert "Still pending after 100ms" in said.err
    evenbeat("job", "cancel", "waits")
    said = evenbeat("job", "watch", "waits")
    assert said.code == 1
    assert "It is cancelled and did not run." in said.err


def test_backfill_adds_the_plans_of_the_past(evenbeat: Command):
    add(evenbeat, "x", "--name", "daily", "--cron", "@daily")
    span = ("--from", "2026-01-01T12:00:00Z", "--to", "2026-01-04T12:00:00Z")

    said = evenbeat("job", "backfill", "daily", *span)

    assert said.code == 0, said.err
    expected = "3 runs added. From 2026-01-02 00:00:00 UTC to 2026-01-04 00:00:00 UTC.\n"
    assert said.out == expected
    assert evenbeat("job", "backfill", "daily", *span, "--json").json["existing"] == 3
    assert evenbeat("job", "backfill", "daily", "--from", "then", "--to", "now").code == 2


def test_a_payload_beyond_the_limit_is_refused(evenbeat: Command, tmp_path: Path, store: Store):
    for size in (300_000, 2_000_000):
        (tmp_path / "large.json").write_text(json.dumps({"text": "x" * size}))
        said = evenbeat("job", "add", "x", "--payload", "@large.json")
        assert (said.code, said.err.count("\n")) == (2, 1), said.err
    assert store.read.jobs().total == 0


@pytest.mark.usefixtures("worker")
def test_the_fleet_is_listed_and_drained(evenbeat: Command, app: Evenbeat):
    listed = evenbeat("worker", "list")
    assert "alive" in listed.out
    worker_id = evenbeat("worker", "list", "--json").json["workers"][0]["id"]
    tasks = evenbeat("task", "list").out
    assert "to [n]" in tasks
    assert "Send something." in tasks

    drained = evenbeat("worker", "drain", worker_id[:20])

    assert drained.code == 0, drained.err
    assert "takes no more jobs; none running." in drained.out
    assert evenbeat("worker", "drain", "ffffffff").code == 4
    assert evenbeat("worker", "drain", str(uuid4())).code == 4


def test_queues_are_listed_paused_and_resumed(evenbeat: Command):
    assert "none is paused" in evenbeat("queue", "list").err
    add(evenbeat, "x", "--queue", "a b/c%")
    assert evenbeat("queue", "pause", "a b/c%").out == (
        "Paused queue a b/c%; 1 due jobs wait in it.\n"
    )
    assert evenbeat("queue", "list", "--json").json["queues"][0]["paused_at"]
    assert evenbeat("queue", "resume", "a b/c%").code == 0
    assert evenbeat("queue", "pause", "").code in (2, 4)


def test_a_schedule_is_explained_and_previewed(evenbeat: Command):
    said = evenbeat(
        *("schedule", "preview", "0 9 * * mon-fri", "--timezone", "Europe/Berlin"),
        *("--count", "2", "--after", "2026-11-14T00:00:00Z"),
    )
    lines = said.out.splitlines()
    assert lines[0] == "at 09:00 on Monday through Friday, Europe/Berlin"
    assert lines[1].startswith("  Mon 2026-11-16 09:00:00 CET  (")
    assert len(lines) == 3
    assert evenbeat("schedule", "preview", "90m").out.startswith("every 1 hour 30 minutes\n")
    wrong = evenbeat("schedule", "preview", "0 9 * *")
    assert (wrong.code, wrong.out) == (2, "")


def test_figures_are_shown_at_a_glance(evenbeat: Command):
    add(evenbeat, "x", "--delay", "1h")
    assert evenbeat("stats").out.startswith("1 job   scheduled 1\n")
    assert evenbeat("stats", "--json").json["jobs"]["scheduled"] == 1
    top = evenbeat("top", "--once").out
    assert all(part in top for part in ("Running (0)", "Queues", "Workers (0)"))
    assert evenbeat("top", "--json").json["workers"] == []


def test_balance_is_shown_previewed_and_applied(evenbeat: Command):
    add(evenbeat, "x", "--every", "6h")
    shown = evenbeat("distribution")
    assert shown.code == 0, shown.err
    assert "Starts per hour" in shown.out
    assert evenbeat("rebalance", "--json").json["would_move"] == 0
    done = evenbeat("rebalance", "--apply", "--yes", "--json")
    assert done.code == 0, done.err
    assert evenbeat("rebalance", "--undo", str(uuid4()), "--yes").code == 4


# -- a service -----------------------------------------------------------------------------------


def test_a_service_answers_as_the_database_does(
    evenbeat: Command, service: str, token_for: Callable[[str], str], store: Store
):
    here = {"EVENBEAT_URL": f"{service}/", "EVENBEAT_TOKEN": token_for("operator")}

    said = evenbeat("job", "add", "send", "to=a@b.c", "--name", "mail", **here)

    assert said.code == 0, said.err
    assert store.read.job_by_name("mail").created_by == "a operator"
    for command in (
        ["job", "list", "--json"],
        ["queue", "list", "--json"],
        ["execution", "list", "--json"],
        ["worker", "list", "--json"],
    ):
        assert evenbeat(*command, **here).json == evenbeat(*command).json, command
    for command in (["job", "show", "mail"], ["stats"], ["top", "--once"], ["distribution"]):
        remote, local = evenbeat(*command, **here), evenbeat(*command)
        assert remote.code == 0, remote.err
        assert remote.out.splitlines()[0] == local.out.splitlines()[0]
    refused = evenbeat("job", "add", "send", "wrong=1", **here)
    assert refused.code == 2
    assert "'wrong'" in refused.err or "'to'" in refused.err


def test_roles_and_tokens_are_told_apart(
    evenbeat: Command, service: str, token_for: Callable[[str], str]
):
    add(evenbeat, "send", "to=a@b.c", "--name", "mail")
    viewer = ("--url", service, "--token", token_for("viewer"))

    assert evenbeat("job", "show", "mail", *viewer).code == 0
    low = evenbeat("job", "pause", "mail", *viewer)
    assert low.code == 5
    assert "operator" in low.err
    none = evenbeat("job", "list", "--url", service)
    assert none.code == 5
    assert "set EVENBEAT_TOKEN, or give --token" in none.err
    wrong = evenbeat("job", "list", "--url", service, "--token", "nonsense-hunter2")
    assert wrong.code == 5
    assert "hunter2" not in wrong.err


def test_what_is_no_service_is_said_so(evenbeat: Command):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    gone = evenbeat("job", "list", "--url", f"http://127.0.0.1:{free}")
    assert gone.code == 3
    assert "cannot be reached" in gone.err
    assert gone.err.count("\n") == 1

    async def stranger(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"<html>hello</html>"})

    with served(stranger) as url:
        said = evenbeat("job", "list", "--url", url)
    assert said.code == 3
    assert "is not an Evenbeat service" in said.err


def test_a_database_that_is_gone_is_said_once(evenbeat: Command):
    url = "postgresql://ada:hunter2@127.0.0.1:1/shop"
    for command in (["job", "list"], ["stats"], ["migrate"]):
        said = evenbeat(*command, "--database", url)
        assert said.code == 3, said.err
        assert said.err.count("\n") == 1
        assert said.err.startswith("evenbeat: The database cannot be reached")
        assert "hunter2" not in said.err
    assert evenbeat("job", "list", "--database", "").code == 2


# -- the database itself -------------------------------------------------------------------------


def test_migrate_says_what_it_did(evenbeat: Command, empty_database_url: str):
    there = ("--database", empty_database_url)

    before = evenbeat("migrate", "--check", *there)
    assert before.code == 1
    assert "is at version 0. Missing: 0001 initial" in before.out
    done = evenbeat("migrate", *there)
    assert done.code == 0
    assert "Applied: 0001 initial" in done.out
    assert "Nothing to do" in evenbeat("migrate", *there).out
    after = evenbeat("migrate", "--check", "--json", *there)
    assert (after.code, after.json["missing"]) == (0, [])

    with psycopg.connect(empty_database_url) as connection:
        connection.execute("INSERT INTO evenbeat.migrations VALUES (9000, 'future')")
    assert evenbeat("migrate", "--check", *there).code == 1
    newer = evenbeat("migrate", *there)
    assert newer.code == 3
    assert "9000" in newer.err


def test_doctor_finds_what_is_wrong(
    evenbeat: Command, empty_database_url: str, service: str, token_for: Callable[[str], str]
):
    missing = evenbeat("doctor", "--database", empty_database_url)
    assert missing.code == 1
    assert "✗" in missing.out
    assert "evenbeat migrate" in missing.out

    codes = {one["code"]: one for one in evenbeat("doctor", "--json").json["findings"]}
    assert codes
    asked = evenbeat("doctor", "--json", "--url", service, "--token", token_for("viewer"))
    assert {one["code"] for one in asked.json["findings"]} == codes.keys()
    gone = evenbeat("doctor", "--database", "postgresql://ada:hunter2@127.0.0.1:1/shop")
    assert gone.code == 1
    assert "cannot be reached" in gone.out
    assert "hunter2" not in gone.out + gone.err


# -- as a process --------------------------------------------------------------------------------


def process(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("EVENBEAT_", "COLUMNS"))}
    return subprocess.run(
        [sys.executable, "-m", "evenbeat", *arguments],
        cwd=cwd,
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_watching_outlives_a_restart_of_the_service(
    start: Start, app: Evenbeat, access: Access, token_for: Callable[[str], str], evenbeat: Command
):
    job_id = add(evenbeat, "nobody_has_it", "--name", "waits")
    api, token = create(app, access=access), token_for("viewer")
    with served(api) as url:
        watching = start(
            *("-m", "evenbeat", "job", "watch", "waits", "--every", "100ms"),
            EVENBEAT_URL=url,
            EVENBEAT_TOKEN=token,
        )
        watching.wait_for_line("waits: waits")
    watching.wait_for_line("Trying again; Ctrl-C ends it.")
    with served(api, int(url.rpartition(":")[2])):
        watching.wait_for_line("It answers again.")
        app.store.control.cancel([UUID(job_id)])
        assert watching.exit_code() == 1
    assert "It is cancelled and did not run." in watching.lines


def test_top_is_a_live_picture_that_q_ends(tmp_path: Path, database_url: str):
    terminal, inside = pty.openpty()
    running = subprocess.Popen(
        [sys.executable, "-m", "evenbeat", "top", "--every", "200ms"],
        cwd=tmp_path,
        env=os.environ | {"EVENBEAT_DATABASE_URL": database_url, "TERM": "xterm", "COLUMNS": "90"},
        stdin=inside,
        stdout=inside,
        stderr=inside,
    )
    os.close(inside)
    seen = b""
    try:
        while b"q ends this" not in seen:
            seen += os.read(terminal, 65536)
        os.write(terminal, b"xq")
        with suppress(OSError):  # how Linux says that the other end of a terminal is gone
            while part := os.read(terminal, 65536):
                seen += part
        assert running.wait(PATIENCE) == 0
    finally:
        running.kill()
        running.wait()
        os.close(terminal)
    assert b"Workers (0)" in seen
    assert seen.rstrip().endswith(b"\x1b[?1049l")  # the screen is as it was before


def test_without_anything_configured_the_embedded_server_is_used_and_left(tmp_path: Path):
    data = tmp_path / "data"
    added = process("job", "add", "x", "--json", cwd=tmp_path, EVENBEAT_DATA_DIR=str(data))
    assert added.returncode == 0, added.stderr
    assert "private PostgreSQL" not in added.stderr  # which each command would repeat
    assert json.loads(added.stdout)["status"] == "pending"
    assert (data / "postgres" / "pgdata" / "PG_VERSION").exists()
    assert not (data / "postgres" / "pgdata" / "postmaster.pid").exists()


def test_help_lists_every_command_and_loads_none(tmp_path: Path):
    script = (
        "import sys; from evenbeat.cli import main\n"
        "try: main(['--help'])\n"
        "finally: print(sorted(set(sys.modules) & "
        "{'fastapi', 'numpy', 'psycopg', 'pydantic', 'httpx', 'evenbeat.app'}))"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert said.stdout.splitlines()[-1] == "[]"
    for command in COMMANDS:
        assert f" {command.name} " in said.stdout
        assert command.help in said.stdout
    assert "Exit codes:" in said.stdout


def test_completion_knows_commands_and_options(tmp_path: Path):
    def completed(words: str) -> str:
        return process(
            cwd=tmp_path,
            _EVENBEAT_COMPLETE="complete_bash",
            COMP_WORDS=words,
            COMP_CWORD=str(len(words.split(" ")) - 1),
        ).stdout

    assert {"job", "worker", "doctor"} <= set(completed("evenbeat ").split())
    assert {"pause", "watch"} <= set(completed("evenbeat job ").split())
    assert "--timezone" in completed("evenbeat schedule preview --t")
