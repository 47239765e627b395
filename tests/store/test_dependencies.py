"""Jobs that run after others, in the database: marks, starts, circles, deletion, and races."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from evenbeat.domain.decision import decide
from evenbeat.domain.execution import Outcome
from evenbeat.domain.job import JobRecord, JobSpec, NewJob, OnFailure
from evenbeat.domain.retry import RetryPolicy
from evenbeat.domain.schedule import After, Interval, Once, after_jobs
from evenbeat.domain.scope import Scope
from evenbeat.domain.states import ExecutionStatus
from evenbeat.errors import Conflict, InvalidInput, InvalidSchedule
from evenbeat.observe.explain import explain
from evenbeat.store.lists import JobFilter
from evenbeat.store.rows import finish_params
from evenbeat.store.store import Store

T0 = datetime(2030, 3, 1, 12, 0, tzinfo=UTC)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
WORKER = uuid4()
GOOD, BAD = ExecutionStatus.COMPLETED, ExecutionStatus.FAILED
NO_RETRY = RetryPolicy(max_retries=0)


def once(store: Store, name: str, now: datetime = T0, **spec: Any) -> UUID:
    return store.add(NewJob(JobSpec("noop", retry=NO_RETRY, **spec), name=name), now=now).id


def hourly(store: Store, name: str, now: datetime = T0, **spec: Any) -> UUID:
    return once(store, name, now, schedule=Interval(HOUR), **spec)


def after(
    store: Store, name: str, *jobs: Any, on: str = "success", now: datetime = T0, **spec: Any
) -> UUID:
    return once(store, name, now, schedule=after_jobs(jobs, on), **spec)


def claim(store: Store, now: datetime) -> list[JobRecord]:
    return store.claim(WORKER, 100, now=now)


def end(
    store: Store, jobs: Sequence[JobRecord], now: datetime, how: ExecutionStatus = GOOD
) -> None:
    outcome = Outcome(how, error_message=None if how is GOOD else "no")
    store.finish([decide(job, outcome, now) for job in jobs], now=now)


def run(store: Store, now: datetime, how: ExecutionStatus = GOOD) -> list[str]:
    """Run what is due, once; the names of what ran."""
    jobs = claim(store, now)
    end(store, jobs, now, how)
    return sorted(job.name or "" for job in jobs)


def job_named(store: Store, name: str) -> UUID:
    job = store.read.job_by_name(name)
    assert job is not None
    return job.id


def state(store: Store, job_id: UUID) -> tuple[str, datetime | None]:
    job = store.read.job(job_id)
    return job.status, job.next_run_at


# -- chains ----------------------------------------------------------------------------------------


def test_a_job_waits_for_another_and_runs_once_after_it(store):
    once(store, "load")
    report = after(store, "report", "load")
    assert state(store, report) == ("pending", None)
    assert store.next_due()[0] == T0
    assert run(store, T0 + MINUTE) == ["load"]
    assert state(store, report) == ("pending", T0 + MINUTE)
    assert store.read.job(report).plan_time == T0 + MINUTE
    assert run(store, T0 + 2 * MINUTE) == ["report"]
    assert state(store, report) == ("completed", None)
    assert run(store, T0 + HOUR) == []


def test_a_chain_runs_link_by_link(store):
    once(store, "a")
    for here, before in (("b", "a"), ("c", "b"), ("d", "c")):
        after(store, here, before)
    ran = [run(store, T0 + n * MINUTE) for n in range(5)]
    assert ran == [["a"], ["b"], ["c"], ["d"], []]
    assert {job.status for job in store.read.each(JobFilter())} == {"completed"}


def test_several_are_all_waited_for(store):
    start_late = T0 + HOUR
    a, b = once(store, "a"), once(store, "b", start_late)
    both = after(store, "both", a, b)
    assert run(store, T0) == ["a"]
    assert state(store, both) == ("pending", None)
    assert run(store, start_late) == ["b"]
    assert run(store, start_late) == ["both"]
    assert run(store, start_late + HOUR) == []


def test_each_may_be_wanted_in_its_own_way(store):
    for name in ("a", "b", "c"):
        once(store, name)
    good, bad, any_ = (after(store, f"on-{on}", "a", on=on) for on in ("success", "failure", "any"))
    jobs = claim(store, T0)
    end(store, [job for job in jobs if job.name == "a"], T0, BAD)
    assert state(store, good) == ("pending", None)
    assert state(store, bad)[1] == state(store, any_)[1] == T0


def test_retries_come_first(store):
    patient = RetryPolicy(max_retries=1, delays=(MINUTE,))
    store.add(NewJob(JobSpec("noop", retry=patient), name="a"), now=T0)
    bad = after(store, "bad", "a", on="failure")
    any_ = after(store, "any", "a", on="any")
    assert run(store, T0, BAD) == ["a"]
    assert state(store, bad)[1] is state(store, any_)[1] is None
    assert run(store, T0 + MINUTE, BAD) == ["a"]
    assert state(store, bad)[1] == state(store, any_)[1] == T0 + MINUTE


def test_a_recurring_job_triggers_each_time(store):
    hourly(store, "tick")
    tock = after(store, "tock", "tick")
    for hour in range(1, 5):
        now = T0 + hour * HOUR
        assert run(store, now) == ["tick"]
        assert run(store, now) == ["tock"]
        assert state(store, tock) == ("pending", None)
        assert run(store, now + MINUTE) == []
    assert store.read.executions_of(tock).total == 4


def test_a_recurring_job_that_fails_triggers_those_who_want_that(store):
    hourly(store, "tick")
    after(store, "fine", "tick")
    after(store, "alarm", "tick", on="failure")
    assert run(store, T0 + HOUR, BAD) == ["tick"]
    assert run(store, T0 + HOUR) == ["alarm"]
    assert run(store, T0 + 2 * HOUR) == ["tick"]
    assert run(store, T0 + 2 * HOUR) == ["fine"]


def test_with_two_rhythms_it_runs_for_each_complete_set(store):
    hourly(store, "a")
    once(store, "b", schedule=Interval(2 * HOUR))
    both = after(store, "both", "a", "b")
    ran = [name for hour in range(1, 9) for _ in range(2) for name in run(store, T0 + hour * HOUR)]
    assert (ran.count("a"), ran.count("b"), ran.count("both")) == (8, 4, 4)
    assert store.read.executions_of(both).total == 4


def test_one_off_jobs_stay_satisfied_beside_recurring_ones(store):
    once(store, "setup")
    hourly(store, "tick")
    after(store, "tock", "setup", "tick")
    assert run(store, T0) == ["setup"]
    for hour in range(1, 4):
        assert run(store, T0 + hour * HOUR) == ["tick"]
        assert run(store, T0 + hour * HOUR) == ["tock"]


def test_a_delay_and_a_window_count_from_the_end(store):
    once(store, "a")
    late = after(store, "late", "a", schedule_delay=10 * MINUTE)
    run(store, T0)
    assert state(store, late) == ("scheduled", T0 + 10 * MINUTE)
    assert run(store, T0 + 9 * MINUTE) == []
    assert run(store, T0 + 10 * MINUTE) == ["late"]


def test_two_occurrences_of_one_moment_are_told_apart(store):
    a = once(store, "a")
    after(store, "b", "a")
    assert [run(store, T0), run(store, T0)] == [["a"], ["b"]]
    store.control.run_now([a], now=T0 + SECOND)
    assert [run(store, T0 + SECOND), run(store, T0)] == [["a"], []]
    store.dependencies.start(now=T0)
    assert run(store, T0 + SECOND) == ["b"]


# -- asked for again -------------------------------------------------------------------------------


def test_asked_for_again_while_it_runs_it_runs_once_more(store):
    tick = hourly(store, "tick")
    tock = after(store, "tock", "tick")
    run(store, T0 + HOUR)
    (running,) = claim(store, T0 + HOUR)
    for hour in (2, 3, 4):
        assert run(store, T0 + hour * HOUR) == ["tick"]
    assert store.read.job(tock).status == "running"
    end(store, [running], T0 + 4 * HOUR + MINUTE)
    assert run(store, T0 + 4 * HOUR + MINUTE) == ["tock"]
    assert run(store, T0 + 4 * HOUR + 2 * MINUTE) == []
    assert state(store, tock) == ("pending", None)
    assert tick != tock


def test_asked_for_again_while_it_waits_for_a_retry(store):
    hourly(store, "tick")
    patient = RetryPolicy(max_retries=1, delays=(2 * HOUR,))
    spec = JobSpec("noop", retry=patient, schedule=after_jobs(["tick"]))
    store.add(NewJob(spec, name="tock"), now=T0)
    run(store, T0 + HOUR)
    assert run(store, T0 + HOUR, BAD) == ["tock"]
    assert run(store, T0 + 2 * HOUR) == ["tick"]
    assert run(store, T0 + 3 * HOUR) == ["tick", "tock"]
    assert run(store, T0 + 3 * HOUR) == ["tock"]
    assert run(store, T0 + 3 * HOUR) == []


def test_paused_it_waits_and_runs_once_when_resumed(store):
    hourly(store, "tick")
    tock = after(store, "tock", "tick")
    store.control.pause([tock], now=T0)
    for hour in (1, 2, 3):
        assert run(store, T0 + hour * HOUR) == ["tick"]
    assert state(store, tock) == ("paused", None)
    (resumed,) = store.control.resume([tock], now=T0 + 3 * HOUR).changed
    assert (resumed.status, resumed.next_run_at) == ("pending", T0 + 3 * HOUR)
    assert run(store, T0 + 3 * HOUR) == ["tock"]
    assert run(store, T0 + 3 * HOUR) == []


def test_resumed_before_its_time_it_goes_on_waiting(store):
    once(store, "a", T0)
    b = after(store, "b", "a")
    store.control.pause([b], now=T0)
    (resumed,) = store.control.resume([b], now=T0).changed
    assert (resumed.status, resumed.next_run_at) == ("pending", None)
    run(store, T0)
    assert run(store, T0) == ["b"]


def test_paused_during_its_run_it_waits_paused(store):
    hourly(store, "tick")
    tock = after(store, "tock", "tick")
    run(store, T0 + HOUR)
    (running,) = claim(store, T0 + HOUR)
    store.control.pause([tock], now=T0 + HOUR)
    end(store, [running], T0 + HOUR + MINUTE)
    assert state(store, tock) == ("paused", None)
    run(store, T0 + 2 * HOUR)
    assert state(store, tock) == ("paused", None)
    store.control.resume([tock], now=T0 + 2 * HOUR)
    assert run(store, T0 + 2 * HOUR) == ["tock"]


def test_run_by_hand_it_still_waits_for_its_set(store):
    once(store, "a", T0 + HOUR)
    b = after(store, "b", "a")
    store.control.run_now([b], now=T0)
    assert run(store, T0) == ["b"]
    assert state(store, b) == ("pending", None)
    assert run(store, T0 + HOUR) == ["a"]
    assert run(store, T0 + HOUR) == ["b"]
    assert state(store, b) == ("completed", None)


def test_a_predecessor_run_by_hand_triggers_a_completed_job_again(store):
    a = once(store, "a")
    b = after(store, "b", "a")
    assert [run(store, T0), run(store, T0)] == [["a"], ["b"]]
    store.control.run_now([a], now=T0 + MINUTE)
    assert run(store, T0 + MINUTE) == ["a"]
    assert run(store, T0 + MINUTE) == ["b"]
    assert state(store, b) == ("completed", None)


def test_failed_it_goes_on_with_the_next_set_unless_told_to_stop(store):
    hourly(store, "tick")
    goes_on = after(store, "goes-on", "tick")
    stops = after(store, "stops", "tick", on_failure=OnFailure.STOP)
    run(store, T0 + HOUR)
    assert run(store, T0 + HOUR, BAD) == ["goes-on", "stops"]
    assert store.read.job(goes_on).status == "pending"
    assert store.read.job(stops).status == "failed"
    run(store, T0 + 2 * HOUR)
    assert run(store, T0 + 2 * HOUR) == ["goes-on"]
    store.control.retry([stops], now=T0 + 3 * HOUR - MINUTE)
    assert run(store, T0 + 3 * HOUR - MINUTE) == ["stops"]
    assert run(store, T0 + 3 * HOUR - MINUTE) == [], "the retried run was what the set asked for"


def test_a_failed_one_off_job_ends_failed(store):
    once(store, "a")
    b = after(store, "b", "a")
    run(store, T0)
    run(store, T0, BAD)
    job = store.read.job(b)
    assert (job.status, job.error_message) == ("failed", "no")


def test_cancelled_it_stays_so_until_it_is_retried(store):
    hourly(store, "tick")
    tock = after(store, "tock", "tick")
    store.control.cancel([tock], now=T0)
    assert run(store, T0 + HOUR) == ["tick"]
    assert run(store, T0 + HOUR) == []
    store.control.retry([tock], now=T0 + HOUR + MINUTE)
    assert run(store, T0 + HOUR + MINUTE) == ["tock"]
    assert run(store, T0 + HOUR + 2 * MINUTE) == []
    assert run(store, T0 + 2 * HOUR) == ["tick"]
    assert run(store, T0 + 2 * HOUR) == ["tock"]


def test_a_cancelled_predecessor_is_an_end_but_no_success_and_no_failure(store):
    a = once(store, "a", T0 + HOUR)
    good, bad, any_ = (after(store, f"on-{on}", "a", on=on) for on in ("success", "failure", "any"))
    store.control.cancel([a], now=T0)
    assert state(store, any_) == ("pending", T0)
    assert state(store, good) == state(store, bad) == ("pending", None)


def test_what_ended_before_counts_once(store):
    a = once(store, "a")
    run(store, T0)
    after(store, "b", "a", now=T0 + MINUTE)
    (job,) = claim(store, T0 + MINUTE)
    store.control.run_now([a], now=T0 + 2 * MINUTE)
    end(store, [job], T0 + 2 * MINUTE)
    assert store.dependencies.catch_up(now=T0 + 2 * MINUTE) == 0
    assert run(store, T0 + 2 * MINUTE) == ["a"]
    assert run(store, T0 + 2 * MINUTE) == ["b"]
    assert store.dependencies.catch_up(now=T0 + 2 * MINUTE) == 0


def test_what_ended_before_counts(store):
    once(store, "a")
    run(store, T0)
    b = after(store, "b", "a", now=T0 + MINUTE)
    assert state(store, b) == ("pending", T0 + MINUTE)
    c = after(store, "c", "a", on="failure", now=T0 + MINUTE)
    assert state(store, c) == ("pending", None)


# -- what is refused -------------------------------------------------------------------------------


def test_unknown_jobs_are_refused_and_nothing_is_added(store):
    missing = str(uuid4())
    for reference in ("nobody", missing, "ünknown 世界"):
        with pytest.raises(InvalidSchedule, match=f"There is no job '{reference}' to wait for"):
            after(store, "b", reference)
    assert store.read.jobs().total == 0


def test_a_time_and_jobs_to_wait_for_do_not_go_together(store):
    once(store, "a")
    spec = JobSpec("noop", schedule=after_jobs(["a"]))
    with pytest.raises(InvalidSchedule, match="starts when they have ended"):
        store.add(NewJob(spec, start=MINUTE), now=T0)


def test_nothing_to_wait_for_is_refused(store):
    with pytest.raises(InvalidSchedule, match="names at least one"):
        store.add(NewJob(JobSpec("noop", schedule=After())), now=T0)


def test_a_name_means_a_job_of_the_same_scope_before_a_global_one(store):
    tenant, other = Scope("tenant", "1"), Scope("tenant", "2")
    spec = JobSpec("noop")
    everyones = store.add(NewJob(spec, name="load"), now=T0).id
    own = store.add(NewJob(spec, name="load", scope=tenant), now=T0).id
    waiting = JobSpec("noop", schedule=after_jobs(["load"]))
    mine = store.add(NewJob(waiting, name="report", scope=tenant), now=T0).id
    theirs = store.add(NewJob(waiting, name="report", scope=other), now=T0).id
    found = store.dependencies.awaited_by([mine, theirs])
    assert [[one.id for one in found[id_]] for id_ in (mine, theirs)] == [[own], [everyones]]


def test_by_name_and_by_id_is_twice(store):
    a = once(store, "a")
    with pytest.raises(InvalidSchedule, match="waited for twice"):
        after(store, "b", "a", a)


def test_itself_is_a_circle(store):
    with pytest.raises(InvalidSchedule, match="forever: b → b"):
        after(store, "b", "b")
    assert store.read.jobs().total == 0


def test_a_circle_within_a_batch_is_spelled_out(store):
    def job(name: str, before: str) -> NewJob:
        return NewJob(JobSpec("noop", schedule=after_jobs([before])), name=name)

    with pytest.raises(InvalidSchedule, match="forever: a → b → c → a"):
        store.add_many([job("a", "c"), job("b", "a"), job("c", "b")], now=T0)
    assert store.read.jobs().total == 0


def test_a_batch_may_name_what_comes_later_in_it(store):
    last = NewJob(JobSpec("noop", schedule=after_jobs(["first"])), name="last")
    store.add_many([last, NewJob(JobSpec("noop"), name="first")], now=T0)
    assert [run(store, T0), run(store, T0)] == [["first"], ["last"]]


def rewire(store: Store, job: UUID, *names: Any, on: str = "success") -> JobRecord:
    schedule = after_jobs(names, on)
    return store.control.update(
        job, lambda spec: replace(spec, schedule=schedule), rewiring=True, now=T0
    )


def test_an_edit_that_closes_a_circle_is_refused(store):
    a = once(store, "a", T0 + HOUR)
    after(store, "b", "a")
    after(store, "c", "b")
    with pytest.raises(InvalidSchedule, match="forever: a → b → c → a"):
        rewire(store, a, "c")
    with pytest.raises(InvalidSchedule, match="forever: a → a"):
        rewire(store, a, "a")
    assert store.read.job(a).schedule_kind == "once"
    assert run(store, T0 + HOUR) == ["a"]


def test_two_edits_that_together_close_a_circle(store):
    """Each alone is sound; one of them must see the other."""
    jobs = {name: once(store, name, T0 + HOUR) for name in ("a", "b")}
    for _ in range(5):
        errors: list[Exception] = []
        gate = threading.Barrier(2)

        def edit(name: str, before: str, gate=gate, errors=errors) -> None:
            gate.wait()
            try:
                rewire(store, jobs[name], before)
            except InvalidSchedule as error:
                errors.append(error)

        both = [threading.Thread(target=edit, args=pair) for pair in (("a", "b"), ("b", "a"))]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
        assert len(errors) == 1
        assert "→" in str(errors[0])
        for job in jobs.values():
            store.control.update(job, lambda spec: replace(spec, schedule=Once(T0 + HOUR)), now=T0)


def test_diamonds_are_no_circles_and_cost_little(store):
    before = [once(store, "top", T0 + HOUR)]
    for level in range(12):
        before = [after(store, f"{level}-{n}", *before) for n in range(3)]
    last = after(store, "bottom", *before)
    edited = rewire(store, last, before[0], "top")
    assert edited.schedule_kind == "after"
    ways = [one.id for one in store.dependencies.awaited_by([last])[last]]
    assert ways[0] == before[0]
    assert len(ways) == 2


# -- edits -----------------------------------------------------------------------------------------


def test_an_edit_keeps_the_marks_of_what_stays(store):
    once(store, "a")
    once(store, "b", T0 + HOUR)
    once(store, "c", T0 + HOUR)
    job = after(store, "job", "a", "b")
    run(store, T0)
    rewire(store, job, "a", "c")
    marks = {one.name: one.satisfied for one in store.dependencies.awaited_by([job])[job]}
    assert marks == {"a": True, "c": False}
    edited = rewire(store, job, "a")
    assert edited.next_run_at == T0, "the last one that was missing is no longer waited for"


def test_a_job_can_begin_and_cease_to_wait(store):
    once(store, "a", T0 + HOUR)
    job = once(store, "job", T0 + MINUTE)
    assert rewire(store, job, "a")[:5][4] is None
    assert state(store, job) == ("pending", None)
    store.control.update(job, lambda spec: replace(spec, schedule=Interval(MINUTE)), now=T0)
    assert store.dependencies.awaited_by([job]) == {job: []}
    assert store.read.job(job).status == "scheduled"


def test_an_edit_of_something_else_leaves_it_waiting(store):
    once(store, "a", T0 + HOUR)
    job = after(store, "job", "a")
    store.control.update(job, lambda spec: replace(spec, priority=7), now=T0)
    assert state(store, job) == ("pending", None)
    assert len(store.dependencies.awaited_by([job])[job]) == 1


def test_an_edit_of_its_delay_keeps_the_run_that_was_asked_for(store):
    once(store, "a")
    b = after(store, "b", "a", schedule_delay=10 * MINUTE)
    sooner = store.control.update(b, lambda spec: replace(spec, schedule_delay=MINUTE), now=T0)
    assert sooner.schedule_delay_seconds == 60
    run(store, T0)
    assert state(store, b) == ("scheduled", T0 + MINUTE)
    store.control.update(b, lambda spec: replace(spec, schedule_delay=HOUR), now=T0)
    assert state(store, b) == ("scheduled", T0 + MINUTE)
    assert run(store, T0 + MINUTE) == ["b"]


def test_edited_during_its_run_to_wait_it_waits_after_the_run(store):
    once(store, "a", T0 + HOUR)
    job = once(store, "job")
    running = [one for one in claim(store, T0) if one.id == job]
    rewire(store, job, "a")
    end(store, running, T0 + MINUTE)
    assert state(store, job) == ("pending", None)
    assert run(store, T0 + HOUR) == ["a"]
    assert run(store, T0 + HOUR) == ["job"]


def test_a_completed_job_that_gets_something_to_wait_for_waits(store):
    job = once(store, "job")
    run(store, T0)
    once(store, "a", T0 + HOUR)
    assert rewire(store, job, "a").status == "pending"


# -- deletion --------------------------------------------------------------------------------------


def test_a_job_that_others_wait_for_stays(store):
    a = once(store, "a", T0 + HOUR)
    after(store, "b", "a")
    after(store, "c", "a")
    (refused,) = store.control.delete([a]).refused
    with pytest.raises(Conflict, match="waited for by b and c"):
        raise refused.error()
    assert store.read.job(a).name == "a"


def test_by_force_it_goes_and_the_others_say_what_they_lack(store):
    a = once(store, "a", T0 + HOUR)
    b = after(store, "b", "a")
    assert len(store.control.delete([a], force=True).changed) == 1
    assert state(store, b) == ("pending", None)
    assert "was deleted" in explain(store.read.circumstances(b, now=T0)).summary
    store.control.run_now([b], now=T0)
    assert run(store, T0) == ["b"]


def test_together_they_go(store):
    a = once(store, "a", T0 + HOUR)
    b = after(store, "b", "a")
    assert len(store.control.delete([a, b]).changed) == 2
    assert store.database.rows("upstream_of", {"ids": [b]}) == []


def test_what_has_ended_as_wanted_may_go(store):
    a, _ = once(store, "a"), once(store, "b", T0 + HOUR)
    job = after(store, "job", "a", "b")
    run(store, T0)
    assert store.control.delete([a]).refused == []
    assert run(store, T0 + HOUR) == ["b"]
    assert run(store, T0 + HOUR) == ["job"]
    assert state(store, job) == ("completed", None)


def test_retention_leaves_what_is_waited_for(store):
    failed = once(store, "failed")
    run(store, T0, BAD)
    waiting = after(store, "waiting", "failed", now=T0)
    once(store, "gone")
    run(store, T0)
    after(store, "gone too", "gone", now=T0)
    run(store, T0)
    assert store.upkeep.prune_jobs(older_than=T0 + HOUR) == 2
    assert {job.id for job in store.read.each(JobFilter())} == {failed, waiting}
    store.control.cancel([waiting], now=T0)
    assert store.upkeep.prune_jobs(older_than=T0 + HOUR) == 2


def test_retention_ends_although_much_is_waited_for(store):
    for n in range(6):
        once(store, f"a{n}")
    run(store, T0, BAD)
    for n in range(6):
        after(store, f"b{n}", f"a{n}")
    assert store.upkeep.prune_jobs(older_than=T0 + HOUR, batch=2) == 0


# -- crashes and races -----------------------------------------------------------------------------


def test_an_end_whose_writer_died_is_caught_up_with(store, monkeypatch):
    once(store, "a")
    b = after(store, "b", "a")
    monkeypatch.setattr(store.dependencies, "start_if_possible", lambda **_: 0)
    run(store, T0)
    assert state(store, b) == ("pending", None)
    assert store.dependencies.catch_up(now=T0 + SECOND) == 1
    assert store.dependencies.catch_up(now=T0 + SECOND) == 0
    assert run(store, T0 + SECOND) == ["b"]


@pytest.mark.parametrize("rhythm", ["once", "hourly"])
def test_an_end_during_the_making_is_not_lost(store, connect: Callable[[], Any], rhythm):
    """The statement that ends a job does not see a row that is not committed yet."""
    hourly(store, "a") if rhythm == "hourly" else once(store, "a")
    (job,) = claim(store, T0 + HOUR)
    connection = connect()
    new = NewJob(JobSpec("noop", schedule=after_jobs(["a"])), name="b")
    b = store.add(new, connection=connection, now=T0 + HOUR).id
    end(store, [job], T0 + HOUR + SECOND)
    connection.commit()
    assert state(store, b) == ("pending", None)
    assert store.dependencies.catch_up(now=T0 + HOUR + 2 * SECOND) == 1
    assert run(store, T0 + HOUR + 2 * SECOND) == ["b"]
    assert store.dependencies.catch_up(now=T0 + HOUR + 3 * SECOND) == 0, "it is noticed once"
    assert run(store, T0 + HOUR + 3 * SECOND) == []


def test_an_end_during_a_long_transaction_is_not_lost(store, connect):
    once(store, "a")
    (job,) = claim(store, T0)
    connection = connect()
    new = NewJob(JobSpec("noop", schedule=after_jobs(["a"])), name="b")
    store.add(new, connection=connection, now=T0)
    end(store, [job], T0 + 9 * MINUTE)
    connection.commit()
    assert store.dependencies.catch_up(now=T0 + HOUR) == 1
    assert run(store, T0 + HOUR) == ["b"]


def test_ended_jobs_with_one_dedup_key_come_one_after_the_other(store):
    once(store, "a")
    run(store, T0)
    schedule = after_jobs(["a"])
    for name in ("b", "c"):
        new = NewJob(JobSpec("noop", schedule=schedule, retry=NO_RETRY), name=name, dedup_key="x")
        store.add(new, now=T0)
        assert run(store, T0) == [name]
    after(store, "d", "a")
    run(store, T0)
    store.control.run_now([job_named(store, "a")], now=T0 + MINUTE)
    assert run(store, T0 + MINUTE) == ["a"]
    assert run(store, T0 + MINUTE) == ["c", "d"]
    store.dependencies.catch_up(now=T0 + MINUTE)
    assert run(store, T0 + MINUTE) == ["b"]
    assert store.dependencies.catch_up(now=T0 + MINUTE) == 0


def test_a_retry_takes_the_marks_in_the_same_moment(store):
    """Whoever asks for it may be gone right after."""
    hourly(store, "a")
    b = after(store, "b", "a")
    store.control.cancel([b], now=T0)
    run(store, T0 + HOUR)
    sources = {"ids": [b], "sources": ["cancelled"], "channel": "c", "now": T0 + HOUR}
    store.database.rows("run_again", sources)
    assert run(store, T0 + HOUR) == ["b"]
    assert store.dependencies.catch_up(now=T0 + HOUR) == 0
    assert state(store, b) == ("pending", None)


def test_the_transaction_of_the_caller_decides(store, connect):
    once(store, "a")
    run(store, T0)
    connection = connect()
    new = NewJob(JobSpec("noop", schedule=after_jobs(["a"])), name="b")
    store.add(new, connection=connection, now=T0)
    assert run(store, T0) == []
    connection.rollback()
    assert store.read.job_by_name("b") is None
    store.add(new, connection=connection, now=T0)
    connection.commit()
    assert run(store, T0) == ["b"]


def test_many_who_look_at_once_start_each_job_once(store):
    count = 40
    for n in range(count):
        once(store, f"a{n}")
    for n in range(count):
        after(store, f"b{n}", f"a{n}", f"a{(n + 1) % count}")
    jobs = claim(store, T0)
    gate = threading.Barrier(4)

    def finish(part: list[JobRecord]) -> None:
        gate.wait()
        for job in part:
            end(store, [job], T0)
            store.dependencies.catch_up(now=T0)

    threads = [threading.Thread(target=finish, args=(jobs[n::4],)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert run(store, T0) == sorted(f"b{n}" for n in range(count))
    assert run(store, T0) == []


def test_deleting_waits_for_who_begins_to_wait(store, connect):
    a = once(store, "a", T0 + HOUR)
    connection = connect()
    new = NewJob(JobSpec("noop", schedule=after_jobs(["a"])), name="b")
    store.add(new, connection=connection, now=T0)
    refused: list[Any] = []
    thread = threading.Thread(target=lambda: refused.extend(store.control.delete([a]).refused))
    thread.start()
    _until_somebody_waits(store)
    connection.commit()
    thread.join()
    assert [one.awaited_by for one in refused] == [("b",)]


def _until_somebody_waits(store: Store) -> None:
    with psycopg.connect(store.database.url, autocommit=True, prepare_threshold=None) as looking:
        while not looking.execute(
            "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
            "AND datname = current_database()"
        ).fetchone():
            pass


# -- reading ---------------------------------------------------------------------------------------


def test_who_waits_for_whom(store):
    a = once(store, "a", T0 + HOUR)
    b = after(store, "b", "a", on="any")
    ((awaited,),) = store.dependencies.awaited_by([b]).values()
    assert (awaited.id, awaited.name, awaited.wanted, awaited.satisfied) == (a, "a", "any", False)
    (dependent,) = store.dependencies.dependents_of(a)
    assert (dependent.id, dependent.label, dependent.wanted) == (b, "b", "any")


def test_explain_says_for_whom_it_waits_and_what_would_help(store):
    once(store, "load")
    b = after(store, "report", "load")
    waits = explain(store.read.circumstances(b, now=T0))
    assert waits.facts[0].code == "waits_for_jobs"
    assert waits.summary == "It is waiting for load, which is pending (it must succeed)."
    run(store, T0, BAD)
    assert explain(store.read.circumstances(b, now=T0)).summary == (
        "It is waiting for load, which ended failed (it must succeed): "
        "retry load, or run this job by hand."
    )


def test_lists_have_jobs_that_wait(store):
    once(store, "a", T0 + HOUR, queue="x")
    after(store, "b", "a", queue="x")
    for sort in ("-created_at", "next_run_at", "name"):
        page = store.read.jobs(JobFilter(statuses=["pending"], queues=["x"]), sort=sort)
        assert "b" in {job.name for job in page.jobs}
    assert store.read.jobs(JobFilter(kinds=["after"])).total == 1


def test_ends_cost_nothing_where_nobody_waits(store):
    """Asked once whether anybody waits for anything; if not, the rows are not looked for."""
    once(store, "a")
    (job,) = claim(store, T0)
    outcome = Outcome(GOOD)
    params = finish_params([decide(job, outcome, T0)])
    params |= {"expired_only": False, "now": T0}
    with store.database.connect() as connection, psycopg.Cursor(connection) as cursor:
        text = store.database.statements["finish"].text
        cursor.execute("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) " + text, params)
        plan = "\n".join(row[0] for row in cursor.fetchall())
    at = plan.index("Update on dependencies")
    assert "One-Time Filter" in plan[at : at + 1500]
    assert "never executed" in plan[at : at + 1500]


def test_input_that_cannot_be_stored_is_refused(store):
    with pytest.raises(InvalidInput):
        after(store, "b", "\x00")


@pytest.mark.parametrize(("lead", "retries"), [(hourly, 0), (once, 1)])
def test_one_that_waits_on_after_its_retries_begins_anew_and_one_that_ends_shows_them(
    store, lead, retries
):
    patient = RetryPolicy(max_retries=1, delays=(MINUTE,))
    lead(store, "lead")
    spec = JobSpec("noop", schedule=after_jobs(["lead"]), retry=patient)
    follower = store.add(NewJob(spec, name="follower"), now=T0).id
    now = store.next_due()[0]
    assert run(store, now) == ["lead"]
    assert run(store, now, BAD) == run(store, now + MINUTE, BAD) == ["follower"]
    job = store.read.job(follower)
    assert (job.status, job.current_retry_count) == ("failed" if retries else "pending", retries)


def test_an_interval_that_takes_its_place_during_the_last_attempt_begins_anew(store):
    once(store, "lead")
    patient = RetryPolicy(max_retries=1, delays=(MINUTE,))
    spec = JobSpec("noop", schedule=after_jobs(["lead"]), retry=patient)
    job_id = store.add(NewJob(spec, name="follower"), now=T0).id
    assert run(store, T0) == ["lead"]
    assert run(store, T0, BAD) == ["follower"]
    (job,) = claim(store, T0 + MINUTE)
    edit = lambda spec: replace(spec, schedule=Interval(HOUR))  # noqa: E731
    store.control.update(job_id, edit, rewiring=True, now=T0 + MINUTE)
    end(store, [job], T0 + MINUTE, BAD)
    after = store.read.job(job_id)
    assert (after.status, after.current_retry_count) == ("scheduled", 0)
