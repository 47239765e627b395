"""Two versions of an application beside each other on one database, as during a deploy."""

import logging
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from evenbeat import Evenbeat
from evenbeat.declared import version_numbers
from evenbeat.domain.decision import MOST_REFUSALS
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.scope import Scope
from evenbeat.errors import InvalidInput
from evenbeat.observe.explain import explain
from evenbeat.store.lists import JobFilter
from evenbeat.testing import Harness

START = datetime(2030, 1, 1, tzinfo=UTC)


def old_version() -> Evenbeat:
    app = Evenbeat(name="shop")

    @app.task
    async def greet(name: str) -> str:
        return f"Hello {name}"

    return app


def new_version() -> Evenbeat:
    app = Evenbeat(name="shop")

    @app.task
    async def greet(name: str, title: str = "") -> str:
        return f"Hello {title} {name}"

    return app


@pytest.fixture
def beside(evenbeat_harness):
    """Starts applications on one database, each with a registered worker on the same clock."""
    harnesses: list[Harness] = []

    def start(app: Evenbeat) -> Harness:
        if harnesses:
            first = harnesses[0]
            app.configure(**{k: first.app._overrides[k] for k in ("database_url", "db_schema")})
            harness = Harness(app, first.clock.now())
        else:
            harness = evenbeat_harness(app, START)
        harnesses.append(harness)
        harness.worker.registration.register()
        return harness

    yield start
    for harness in harnesses[1:]:
        harness.close()


def enqueue_with_title(harness: Harness):
    """As a web server of the new version would."""
    return harness.app.add(NewJob(JobSpec("greet"), {"name": "Ada", "title": "Dr"}))


def go_to(moment: datetime, *harnesses: Harness) -> None:
    for harness in harnesses:
        harness.clock.move_to(moment)
        harness.worker.registration.beat()


def status_of(harness: Harness, added) -> str:
    return harness.app.store.read.job(added.id).status


def history(harness: Harness, added) -> list[tuple[str, str | None]]:
    runs = harness.app.store.read.executions_of(added.id).executions
    return [(run.status, run.error_code) for run in reversed(runs)]


def test_a_payload_that_an_old_worker_refuses_is_run_by_a_new_one(beside, caplog):
    old, new = beside(old_version()), beside(new_version())
    added = enqueue_with_title(old)
    with caplog.at_level(logging.WARNING, "evenbeat.worker"):
        old.drain()
    job = old.app.store.read.job(added.id)
    assert (job.status, job.current_retry_count) == ("scheduled", 0)
    assert job.next_run_at == START + timedelta(seconds=1)
    (line,) = [r for r in caplog.records if r.name == "evenbeat.worker"]
    assert (line.job_id, line.task) == (str(added.id), "greet")
    assert "'title'" in line.reason
    text = explain(old.app.store.read.circumstances(added.id, now=START)).summary
    assert "'title'" in text

    go_to(job.next_run_at, old, new)
    new.drain()
    assert history(new, added) == [("cancelled", "payload_refused"), ("completed", None)]


def test_a_payload_that_all_live_workers_refuse_fails(beside):
    one, two = beside(old_version()), beside(old_version())
    added = enqueue_with_title(one)
    one.drain()
    go_to(START + timedelta(seconds=1), one, two)
    two.drain()
    assert history(one, added) == [("cancelled", "payload_refused"), ("failed", "invalid_payload")]
    job = one.app.store.read.job(added.id)
    assert job.status == "failed"
    assert "'title'" in job.error_message


def test_a_worker_hands_back_again_what_it_has_refused_and_waits_longer(beside):
    old, new = beside(old_version()), beside(new_version())
    added = enqueue_with_title(old)
    waits = []
    for _ in range(7):
        old.drain()
        due = old.app.store.read.job(added.id).next_run_at
        waits.append((due - old.clock.now()).total_seconds())
        go_to(due, old, new)
    assert waits == [1, 2, 4, 8, 16, 30, 30]


def test_a_payload_is_not_handed_back_for_ever(beside):
    old, new = beside(old_version()), beside(new_version())
    added = enqueue_with_title(old)
    for _ in range(MOST_REFUSALS + 1):
        old.drain()
        go_to(old.app.store.read.job(added.id).next_run_at or old.clock.now(), old, new)
    assert status_of(old, added) == "failed"
    assert history(old, added)[-1] == ("failed", "invalid_payload")


def drains(new: Harness, _old: Harness) -> None:
    new.worker.drain()
    new.worker.registration.beat()


def stops(new: Harness, _old: Harness) -> None:
    new.worker.registration.deregister()


def falls_silent(_new: Harness, old: Harness) -> None:
    go_to(START + timedelta(minutes=2), old)


@pytest.mark.parametrize("leaves", [drains, stops, falls_silent])
def test_a_worker_that_takes_no_jobs_is_not_waited_for(beside, leaves):
    old, new = beside(old_version()), beside(new_version())
    leaves(new, old)
    added = enqueue_with_title(old)
    old.drain()
    assert history(old, added) == [("failed", "invalid_payload")]


def test_a_worker_of_another_queue_or_task_is_not_waited_for(beside):
    old = beside(old_version())
    other = Evenbeat(name="other")
    other.task(name="something")(lambda: None)
    beside(other)
    added = enqueue_with_title(old)
    old.drain()
    assert history(old, added) == [("failed", "invalid_payload")]


def test_a_payload_that_was_edited_is_shown_to_all_workers_again(beside):
    one, two = beside(old_version()), beside(old_version())
    added = enqueue_with_title(one)
    one.drain()
    one.app.store.control.update(added.id, payload={"nobody": "knows"}, now=START)
    go_to(START + timedelta(seconds=1), one, two)
    two.drain()
    assert history(one, added) == [("cancelled", "payload_refused")] * 2


def test_a_handler_that_has_run_is_not_handed_back(beside):
    app, calls = old_version(), []

    @app.task
    async def clumsy() -> None:
        calls.append(1)
        raise InvalidInput("Its own payload is wrong.", field="payload")

    one, _two = beside(app), beside(app_like(app))
    added = clumsy.enqueue()
    one.drain()
    assert calls == [1]
    assert history(one, added) == [("failed", "invalid_payload")]


def app_like(app: Evenbeat) -> Evenbeat:
    twin = Evenbeat(name=app.name)
    for task in app.registry:
        twin.registry.add(task)
    return twin


def scheduled(**named: str) -> Evenbeat:
    app = Evenbeat(**named)
    app.every("1h", name="sync")(lambda: None)
    return app


def test_applications_without_a_name_do_not_stop_each_others_schedules(beside):
    one = beside(scheduled())
    two = beside(Evenbeat())
    with pytest.raises(InvalidInput, match="a name of its own"):
        two.app.sync_schedules(disable_removed=True)
    assert one.app.store.read.job_by_name("sync").status == "scheduled"


def test_an_application_that_gets_a_name_keeps_its_schedules_and_can_be_rolled_back(beside):
    before = beside(scheduled())
    row = before.app.store.read.job_by_name("sync")
    named = beside(scheduled(name="shop"))
    adopted = named.app.store.read.job_by_name("sync")
    assert adopted == row._replace(created_by="code:shop")
    assert before.app.sync_schedules().changed == 0
    assert named.app.store.read.job_by_name("sync") == adopted


def test_another_application_with_a_name_does_not_take_over_a_schedule(beside):
    beside(scheduled(name="shop"))
    with pytest.raises(InvalidInput, match="was made elsewhere"):
        beside(scheduled(name="other"))


def release(interval: str, scopes: list[str] | None = None, **options: str) -> Evenbeat:
    """The application with a schedule that differs from release to release."""
    app = Evenbeat(name="shop", **options)
    tenants = None if scopes is None else lambda: [Scope("tenant", one) for one in scopes]

    @app.every(interval, name="bill", scopes=tenants)
    def bill() -> None: ...

    return app


def interval_of(harness: Harness) -> int:
    return harness.app.store.read.job_by_name("bill").interval_seconds


def test_the_older_of_two_releases_leaves_schedules_alone(beside):
    old = beside(release("1h"))
    go_to(START + timedelta(minutes=1), old)
    new = beside(release("30m"))
    assert interval_of(old) == 1800
    assert old.app.sync_schedules().left == ["bill"]
    assert new.app.sync_schedules().left == []
    assert interval_of(old) == 1800


def test_a_version_counts_more_than_who_started_last(beside):
    new = beside(release("30m", version="1.10"))
    go_to(START + timedelta(minutes=1), new)
    old = beside(release("1h", version="1.9"))
    assert old.app.sync_schedules().left == ["bill"]
    assert new.app.sync_schedules().left == []
    assert interval_of(old) == 1800


@pytest.mark.parametrize("leaves", [stops, falls_silent])
def test_after_a_rollback_the_older_release_has_its_schedules_again(beside, leaves):
    new = beside(release("30m", version="2"))
    old = beside(release("1h", version="1"))
    assert interval_of(old) == 1800
    leaves(new, old)
    assert old.app.sync_schedules().updated == ["bill"]
    assert interval_of(old) == 3600


def test_an_older_release_does_not_stop_what_a_newer_one_declares(beside):
    old, new = release("1h", version="1"), release("1h", version="2")
    new.every("1h", name="refund")(lambda: None)
    first, _second = beside(old), beside(new)
    old.sync_schedules(disable_removed=True)
    assert first.app.store.read.job_by_name("refund").status == "scheduled"


def sync_by_chore(harness: Harness) -> int | None:
    maintenance = harness.worker.maintenance
    (chore,) = [one for one in maintenance._chores if one.name.startswith("schedule_sync")]
    return maintenance.do(chore)


def test_two_releases_with_scopes_do_not_keep_a_schedule_from_running(beside):
    """Each asks for its scopes every minute, and rewrote what the other had written."""
    old = beside(release("1h", ["a", "b"]))
    go_to(START + timedelta(minutes=1), old)
    new = beside(release("30m", ["a", "c"]))
    for minute in range(2, 122):
        go_to(START + timedelta(minutes=minute), old, new)
        for harness in (old, new):
            sync_by_chore(harness)
            harness.drain()
    store = old.app.store
    counts = {job.scope_id: (job.run_count, job.is_paused) for job in store.read.each(JobFilter())}
    assert counts["b"][1], "the newer release has no such scope"
    assert counts["a"][0] in (4, 5)
    assert counts["c"][0] in (3, 4)


def test_each_application_asks_for_its_scopes_every_minute(beside):
    tenants: dict[str, list[Scope]] = {"one": [], "two": []}

    def scoped(name: str) -> Evenbeat:
        app = Evenbeat(name=name)
        app.every("1h", name=f"bill-{name}", scopes=lambda: tenants[name])(lambda: None)
        return app

    harnesses = [beside(scoped(name)) for name in tenants]
    tenants |= {name: [Scope("tenant", name)] for name in tenants}
    go_to(START + timedelta(minutes=2), *harnesses)
    for harness in harnesses:
        assert sync_by_chore(harness) == 1
    scopes = {job.scope_id for job in harnesses[0].app.store.read.each(JobFilter())}
    assert scopes == {"one", "two"}


@pytest.mark.parametrize("version", ["", "abc", "1.0rc1", "7f3a9c2", "1..2", " 1"])
def test_a_version_that_cannot_be_compared_is_refused(version):
    with pytest.raises(InvalidInput, match="numbers that grow"):
        Evenbeat(version=version)


@pytest.mark.parametrize(
    ("older", "newer"),
    [("9", "10"), ("1.9", "1.10"), ("v1.2", "1.2.1"), ("2026-11-18.3", "2026-11-18.12")],
)
def test_versions_are_compared_number_by_number(older, newer):
    assert version_numbers(older) < version_numbers(newer)
    assert version_numbers(None) < version_numbers(older)


def test_the_fingerprint_of_schedules_is_the_same_in_every_process():
    code = """
from evenbeat import Evenbeat
from evenbeat.declared import fingerprint
app = Evenbeat()
app.every("1h", name="a", payload={"b": 1, "a": 2}, concurrency_key="k")(lambda b, a: None)
app.after("a", name="c")(lambda: None)
app.cron("0 9 * * *", name="d", window="Mon-Fri 22:00-06:00")(lambda: None)
print(fingerprint(app.declared.values()))
"""
    prints = {
        subprocess.check_output(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": s}
        )
        for s in ("1", "2", "3")
    }
    assert len(prints) == 1
