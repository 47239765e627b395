"""The larger examples: two projects before and after their move, a fan-out and an ETL, each started
by the commands of its first lines."""

import ast
import importlib
import os
import re
import shlex
import signal
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from real_processes import Running, Start
from test_examples import EXAMPLES

from evenbeat.domain.schedule import Interval
from evenbeat.domain.states import JobStatus
from evenbeat.importers.celery_beat import read_celery
from evenbeat.importers.plan import schedule_of
from evenbeat.store.lists import JobFilter
from evenbeat.store.store import Store
from waiting import wait_for

Commands = Callable[[str], list[Callable[[], Running]]]


@pytest.fixture
def commands(start: Start, database_url: str, tmp_path: Path) -> Commands:
    """The commands of an example's first lines, each to be started with the variables that they
    set, in an empty directory."""

    def read(example: str) -> list[Callable[[], Running]]:
        docstring = ast.get_docstring(ast.parse((EXAMPLES / example).read_text())) or ""
        here = re.sub(r"\bexamples\b", str(EXAMPLES), docstring)
        variables = {"EVENBEAT_DATABASE_URL": database_url, "PYTHONUNBUFFERED": "1"}
        found = []
        for line in re.findall(r"^    (\S.+)", here, re.MULTILINE):
            words = shlex.split(line, comments=True)
            if words[0] == "echo":
                (tmp_path / words[-1]).write_text(" ".join(words[1:-2]))
                continue
            variables |= dict(word.split("=") for word in words if "=" in word)
            program, *rest = [word for word in words if "=" not in word]
            if program != "export":
                module = [] if program == "python" else ["-m", program]
                found.append(partial(start, *module, *rest, **variables))
        return found

    return read


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Any]:
    """Imports an example's module."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module


def output(running: Running) -> list[str]:
    """What it has printed, once it has ended well."""
    assert running.exit_code() == 0, running.text
    return running.lines


def has_lines(path: Path, *texts: str) -> Callable[[], bool]:
    return lambda: path.exists() and set(texts) <= set(path.read_text().splitlines())


# -- from_celery ---------------------------------------------------------------------------------

MAIL = (
    "till closed for 2030-01-31",
    "to ann: order tea",
    "to bob: call ann",
    "the freezer is cold",
)


def test_the_shop_gives_on_evenbeat_what_it_gives_on_celery(
    commands: Commands, store: Store, tmp_path: Path
):
    outbox = tmp_path / "outbox.txt"
    work, order = commands("from_celery/before.py")
    given = {}
    for side in ("before", "after"):
        work, order = commands(f"from_celery/{side}.py")
        worker, printed = work(), output(order())
        wait_for(has_lines(outbox, *MAIL), f"the outbox {side}")
        worker.stop()
        once = [line for line in outbox.read_text().splitlines() if "freezer" not in line]
        given[side] = printed, sorted(once)
        outbox.unlink()

    assert given["after"] == given["before"]
    assert given["after"][0] == [
        "in stock: 12 rice, 9 salt, 17 tea",
        "failed: There is no store in atlantis.",
        "later: 12 rice, 9 salt, 17 tea",
    ]
    assert len(given["after"][1]) == 3  # nothing is sent twice
    counts = store.read.jobs(JobFilter(tasks=["count_stock"])).jobs
    assert sorted((job.status, job.run_count) for job in counts) == [
        ("completed", 2),  # the first call gets lost, and the second is made a second later
        ("completed", 2),
        ("completed", 2),
        ("failed", 1),
    ]


def test_the_beat_schedule_of_the_shop_is_that_of_its_port(module: Callable[[str], Any]):
    source = read_celery(module("from_celery.before").app, origin="the example")
    declared = module("from_celery.after").app.declared
    assert not source.reviews
    assert {job.where for job in source.jobs} == declared.keys()
    for job in source.jobs:
        theirs, ours = schedule_of(job.document), declared[job.where].spec.schedule
        assert job.document["payload"] == declared[job.where].payload
        if isinstance(ours, Interval):
            assert theirs == ours
            continue
        plan = datetime(2030, 3, 27, tzinfo=UTC)  # clocks change in between
        for _ in range(10):
            assert theirs.next_after(plan) == ours.next_after(plan)
            plan = ours.next_after(plan)


def test_the_shop_closes_its_till_though_a_worker_dies_of_it(
    commands: Commands, store: Store, tmp_path: Path
):
    outbox = tmp_path / "outbox.txt"
    os.mkfifo(outbox)  # who writes into it waits for a reader, so the run lasts
    work, order = commands("from_celery/after.py")
    victim, client = work(), order()

    def till() -> Any:
        return next(iter(store.read.jobs(JobFilter(tasks=["close_till"])).jobs), None)

    wait_for(lambda: till() and till().status == JobStatus.RUNNING, "the run")
    victim.signal(signal.SIGKILL)
    victim.exit_code()
    outbox.unlink()
    work()
    wait_for(lambda: till().status == JobStatus.COMPLETED, "the second run")
    runs = store.read.executions_of(till().id).executions
    assert [run.error_code for run in runs] == [None, "lease_expired"]
    assert has_lines(outbox, "till closed for 2030-01-31")()
    client.process.kill()


# -- from_apscheduler ----------------------------------------------------------------------------


def test_the_feed_reader_prints_on_evenbeat_what_it_prints_on_apscheduler(
    commands: Commands, store: Store
):
    (before,), (after,) = (
        commands("from_apscheduler/before.py"),
        commands("from_apscheduler/after.py"),
    )
    running = before(), after()
    printed, again = map(output, running)
    assert again == printed
    assert printed == [
        "digest-ann {'reader': 'ann'} runs",
        "feed-ann {'feed': 'news'} runs",
        "read news",
        "read sport",
        "digest-ann {'reader': 'ann'} runs",
        "feed-ann {'feed': 'sport'} paused",
        "read digest for ann",
    ]
    left = store.read.jobs(JobFilter(tasks=["read_feed", "send_digest"])).jobs
    assert [(job.schedule_kind, job.status) for job in left] == [("once", "completed")]


def test_the_digest_comes_at_the_same_times(module: Callable[[str], Any], database_url: str):
    before, after = module("from_apscheduler.before"), module("from_apscheduler.after")
    after.app.configure(database_url=database_url)
    with after.app:
        for reader in (before, after):
            reader.daily_digest("ann", 9, "Europe/Berlin")
        (theirs,) = before.scheduler.get_jobs()
        ours = after.app.schedules.get("digest-ann")
        now = datetime.now(UTC)
        assert ours.next_run_at == theirs.trigger.get_next_fire_time(None, now)
    before.scheduler.remove_all_jobs()


# -- fan_out.py ----------------------------------------------------------------------------------


def test_fan_out_awaits_a_thousand_results(commands: Commands, store: Store):
    work, ask = commands("fan_out.py")
    worker = work()
    printed = output(ask())
    assert printed[0] == "1000 results, 75 primes, 10 failures"
    assert "failed with ValueError" in printed[-1]
    assert store.read.jobs(JobFilter(statuses=[JobStatus.COMPLETED])).total == 990
    assert worker.stop() == 0


# -- etl.py --------------------------------------------------------------------------------------


def test_etl_loads_the_last_hour_of_every_shop(commands: Commands, store: Store, tmp_path: Path):
    begin, _ = commands("etl.py")
    running = begin()
    running.wait_for_line("acme: sum_up gave {'orders': 36, 'amount': 180}")
    running.wait_for_line("globex: sum_up gave {'orders': 54, 'amount': 270}")
    running.signal(signal.SIGINT)
    assert running.exit_code() == 0
    assert "Traceback" not in running.text

    (acme,) = store.read.jobs(JobFilter(tasks=["extract"], scope_kind="shop", scope_id="acme")).jobs
    (run,) = store.read.executions_of(acme.id).executions
    assert (run.rows_affected, run.figures) == (36, {"skipped": 4})


def test_etl_makes_up_for_the_hours_of_an_outage(
    module: Callable[[str], Any], evenbeat_harness: Any, tmp_path: Path
):
    (tmp_path / "shops.txt").write_text("acme")
    etl = module("etl")
    harness = evenbeat_harness(etl.app)
    harness.advance("90m")
    (tmp_path / "shops.txt").write_text("acme globex")  # a shop opens
    etl.app.sync_schedules()
    harness.skip("3h")
    harness.advance("90m")
    with sqlite3.connect(tmp_path / "warehouse.sqlite") as warehouse:
        loaded = warehouse.execute(
            "SELECT shop, hour, count(*) FROM orders GROUP BY 1, 2"
        ).fetchall()
    midnight = harness.now.replace(hour=0, minute=0)
    hours = [(midnight + timedelta(hours=n)).isoformat() for n in range(-1, 6)]
    assert {(shop, hour) for shop, hour, _ in loaded} == {
        *(("acme", hour) for hour in hours[1:6]),
        *(("globex", hour) for hour in hours[2:6]),
    }
    assert {count for *_, count in loaded} == {36, 54}
