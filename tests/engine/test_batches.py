"""Batches in the life of an application: what runs after them, what it is handed, and the verbs."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from evenbeat import Context, Evenbeat, Fail
from evenbeat.domain.batch import BatchCounts
from evenbeat.domain.job import NewJob
from evenbeat.errors import Conflict, InvalidInput, NotFound
from evenbeat.testing import Harness


class Shop:
    """An application whose tasks note what they were handed."""

    def __init__(self, database_url: str) -> None:
        self.app = app = Evenbeat(database_url, threads=4)
        self.broken: set[int] = set()
        self.reports: list[tuple[BatchCounts, list[object]]] = []

        @app.task(max_retries=0)
        def send(number: int) -> int:
            if number in self.broken:
                raise Fail(f"{number} is broken")
            return number * 10

        @app.task(max_retries=0)
        def report(ctx: Context) -> int:
            self.reports.append((ctx.batch.counts(), list(ctx.batch.results())))
            return len(self.reports)

        self.send, self.report = send, report
        self.harness = Harness(app)

    def mend(self) -> None:
        """Nothing is broken any more, a minute later."""
        self.broken = set()
        self.harness.skip("1m")

    def restart(self) -> None:
        """Let the worker know the tasks that a test has added."""
        self.harness.close()
        self.harness = Harness(self.app)


@pytest.fixture
def shop(database_url: str) -> Iterator[Shop]:
    shop = Shop(database_url)
    yield shop
    shop.harness.close()


def some(shop: Shop, count: int) -> Iterator[NewJob]:
    return (shop.send.job(number) for number in range(count))


class TestCallback:
    def test_it_runs_once_after_all_with_counts_and_results(self, shop: Shop) -> None:
        batch = shop.app.batch(some(shop, 5), then=shop.report, name="five")
        assert batch.status() == "running"
        assert batch.counts().total == 5
        shop.harness.drain()
        assert shop.reports == [(BatchCounts(completed=5), [0, 10, 20, 30, 40])]
        assert batch.status() == "completed"
        assert batch.callback is not None
        assert batch.callback.result(timeout=0) == 1

    def test_a_failed_job_holds_it_back_until_it_has_succeeded(self, shop: Shop) -> None:
        shop.broken = {3}
        batch = shop.app.batch(some(shop, 5), then=shop.report)
        shop.harness.drain()
        assert (batch.status(), shop.reports) == ("failed", [])
        shop.mend()
        assert batch.retry() == 1
        assert batch.status() == "running"
        shop.harness.drain()
        assert shop.reports == [(BatchCounts(completed=5), [0, 10, 20, 30, 40])]
        assert batch.status() == "completed"

    def test_with_any_it_runs_whatever_happened_and_never_again(self, shop: Shop) -> None:
        shop.broken = {3}
        batch = shop.app.batch(some(shop, 5), then=shop.report, on="any")
        shop.harness.drain()
        assert shop.reports == [(BatchCounts(completed=4, failed=1), [0, 10, 20, 40])]
        shop.mend()
        batch.retry()
        shop.harness.drain()
        assert (batch.status(), len(shop.reports)) == ("completed", 1)

    def test_a_batch_without_jobs_has_ended(self, shop: Shop) -> None:
        batch = shop.app.batch([], then=shop.report)
        assert batch.status() == "completed"
        shop.harness.drain()
        assert shop.reports == [(BatchCounts(), [])]

    def test_it_waits_for_retries(self, shop: Shop) -> None:
        tries: list[int] = []

        @shop.app.task(max_retries=2, retry_backoff=60)
        def flaky() -> str:
            tries.append(1)
            if len(tries) < 3:
                raise ValueError("not yet")
            return "at last"

        shop.restart()
        shop.app.batch([flaky.job(), shop.send.job(1)], then=shop.report)
        shop.harness.drain()
        assert shop.reports == []
        shop.harness.advance("1h")
        assert shop.reports == [(BatchCounts(completed=2), ["at last", 10])]

    def test_other_jobs_may_run_after_a_batch_too(self, shop: Shop) -> None:
        batch = shop.app.batch(some(shop, 2))
        later = shop.send.options(after=batch).enqueue(7)
        shop.harness.drain()
        assert later.result(timeout=0) == 70
        assert shop.send.options(after=batch).enqueue(8).record().next_run_at is not None

    def test_it_takes_a_job_with_arguments_and_settings(self, shop: Shop) -> None:
        batch = shop.app.batch(some(shop, 2), then=shop.send.options(priority=7).job(9))
        shop.harness.drain()
        assert batch.callback is not None
        assert batch.callback.result(timeout=0) == 90
        assert batch.callback.record().priority == 7


class TestMembers:
    def test_all_or_none(self, shop: Shop) -> None:
        def broken() -> Iterator[NewJob]:
            yield from some(shop, 3000)
            raise ValueError("the list ends here")

        with pytest.raises(ValueError, match="ends here"):
            shop.app.batch(broken(), then=shop.report)
        assert shop.app.jobs.count() == 0
        assert shop.app.batches.list() == []

    def test_in_the_callers_transaction(self, shop: Shop, database_url: str) -> None:
        with psycopg.connect(database_url) as connection:
            kept = shop.app.batch(some(shop, 3), then=shop.report, connection=connection)
            assert shop.harness.drain() == 0
            connection.commit()
            shop.app.batch(some(shop, 3), then=shop.report, connection=connection)
            connection.rollback()
        shop.harness.drain()
        assert len(shop.reports) == 1
        assert [batch.id for batch in shop.app.batches.list()] == [kept.id]

    def test_it_is_added_and_read_some_at_a_time(self, shop: Shop) -> None:
        jobs, alive, most = 9_000, 0, 0

        class Arguments(dict[str, Any]):
            """Counts how many of them there are."""

            def __init__(self, number: int) -> None:
                nonlocal alive, most
                super().__init__(number=number)
                alive += 1
                most = max(most, alive)

            def __del__(self) -> None:
                nonlocal alive
                alive -= 1

        spec = shop.send.spec
        batch = shop.app.batch((NewJob(spec, Arguments(n)) for n in range(jobs)), then=shop.report)
        assert batch.counts().total == jobs
        assert (alive, most < jobs / 2) == (0, True), most
        shop.harness.drain()
        # More than two pages of results, each once and in the order of the jobs.
        assert shop.reports == [(BatchCounts(completed=jobs), [n * 10 for n in range(jobs)])]
        results = batch.results()
        assert [next(results) for _ in range(3)] == [0, 10, 20]

    def test_a_taken_key_is_refused_and_nothing_added(self, shop: Shop) -> None:
        shop.send.options(dedup_key="one").enqueue(1)
        with pytest.raises(Conflict, match="dedup_key 'one'"):
            shop.app.batch([shop.send.job(2), shop.send.options(dedup_key="one").job(3)])
        assert shop.app.jobs.count() == 1

    def test_a_recurring_job_is_refused(self, shop: Shop) -> None:
        from dataclasses import replace

        from evenbeat.domain.schedule import Interval

        job = shop.send.job(1)
        job = replace(job, spec=replace(job.spec, schedule=Interval(timedelta(hours=1))))
        with pytest.raises(InvalidInput, match="never end"):
            shop.app.batch([job])

    def test_an_open_batch_takes_more_and_ends_when_it_is_closed(self, shop: Shop) -> None:
        with shop.app.open_batch(then=shop.report) as batch:
            batch.add(shop.send.job(1))
            shop.harness.drain()
            assert (batch.status(), shop.reports) == ("open", [])
            batch.add(some(shop, 2))
        shop.harness.drain()
        assert shop.reports == [(BatchCounts(completed=3), [10, 0, 10])]
        with pytest.raises(Conflict, match="completed"):
            batch.add(shop.send.job(4))

    def test_an_error_while_it_is_open_cancels_it(self, shop: Shop) -> None:
        with pytest.raises(ZeroDivisionError), shop.app.open_batch(then=shop.report) as batch:  # noqa: PT012
            batch.add(some(shop, 2))
            raise ZeroDivisionError
        shop.harness.drain()
        assert (batch.status(), batch.counts(), shop.reports) == (
            "cancelled",
            BatchCounts(cancelled=2),
            [],
        )

    def test_a_job_may_add_to_its_own_batch(self, shop: Shop) -> None:
        @shop.app.task
        def split(ctx: Context) -> str:
            ctx.batch.add(some(shop, 3))
            return "split"

        shop.restart()
        shop.app.batch([split.job()], then=shop.report)
        shop.harness.drain()
        assert shop.reports == [(BatchCounts(completed=4), ["split", 0, 10, 20])]


class TestNesting:
    def test_the_outer_one_waits_for_the_inner_one_and_what_runs_after_it(self, shop: Shop) -> None:
        order: list[str] = []

        @shop.app.task
        def open_inner(ctx: Context) -> None:
            shop.app.batch(some(shop, 3), then=inner_done, within=ctx.batch)
            order.append("opened")

        @shop.app.task
        def inner_done() -> None:
            order.append("inner")

        @shop.app.task
        def outer_done() -> None:
            order.append("outer")

        shop.restart()
        outer = shop.app.batch([open_inner.job()], then=outer_done)
        shop.harness.drain()
        assert order == ["opened", "inner", "outer"]
        assert outer.status() == "completed"

    def test_a_failure_within_fails_the_outer_one_and_a_retry_mends_both(self, shop: Shop) -> None:
        shop.broken = {2}
        outer = shop.app.open_batch(then=shop.report)
        inner = shop.app.batch(some(shop, 3), then=shop.send.job(5), within=outer)
        outer.close()
        shop.harness.drain()
        assert (inner.status(), outer.status(), shop.reports) == ("failed", "failed", [])
        shop.mend()
        assert outer.retry() == 1
        shop.harness.drain()
        assert (inner.status(), outer.status()) == ("completed", "completed")
        assert shop.reports == [(BatchCounts(completed=1), [50])]

    def test_cancelling_the_outer_one_cancels_the_inner_one(self, shop: Shop) -> None:
        outer = shop.app.open_batch(then=shop.report)
        inner = shop.app.batch(some(shop, 3), then=shop.report, within=outer)
        assert outer.cancel() == 5
        shop.harness.drain()
        assert (inner.status(), outer.status(), shop.reports) == ("cancelled", "cancelled", [])


class TestVerbs:
    def test_pause_and_resume(self, shop: Shop) -> None:
        batch = shop.app.batch(some(shop, 4), then=shop.report)
        assert batch.pause() == 4
        assert shop.harness.drain() == 0
        assert batch.resume() == 4
        shop.harness.drain()
        assert len(shop.reports) == 1

    @pytest.mark.parametrize("on", ["success", "any"])
    def test_a_cancelled_batch_goes_on_when_it_is_retried(self, shop: Shop, on: str) -> None:
        batch = shop.app.batch(some(shop, 4), then=shop.report, on=on)
        assert batch.cancel() == 5
        shop.harness.drain()
        assert (batch.status(), shop.reports) == ("cancelled", [])
        shop.mend()
        assert batch.retry() == 4
        shop.harness.drain()
        assert batch.status() == "completed"
        assert shop.reports == [(BatchCounts(completed=4), [0, 10, 20, 30])]

    def test_cancelling_its_last_job_ends_it(self, shop: Shop) -> None:
        batch = shop.app.batch(some(shop, 1), then=shop.report, on="any")
        (job,) = shop.app.jobs.list(batch=batch)
        shop.app.jobs.cancel(job)
        assert batch.status() == "failed"
        shop.harness.drain()
        assert shop.reports == [(BatchCounts(cancelled=1), [])]

    def test_retrying_a_single_job_goes_on_with_the_batch(self, shop: Shop) -> None:
        shop.broken = {1}
        batch = shop.app.batch(some(shop, 2), then=shop.report)
        shop.harness.drain()
        shop.mend()
        (failed,) = shop.app.jobs.list(batch=batch, status="failed")
        shop.app.jobs.retry(failed)
        shop.harness.drain()
        assert (batch.status(), len(shop.reports)) == ("completed", 1)

    def test_waiting_times_out(self, shop: Shop) -> None:
        batch = shop.app.batch(some(shop, 1))
        with pytest.raises(TimeoutError, match="has not ended"):
            batch.wait("50ms")
        shop.harness.drain()
        assert batch.wait("50ms") == "completed"

    def test_getting_and_listing(self, shop: Shop) -> None:
        older = shop.app.batch(some(shop, 1), name="nightly")
        newer = shop.app.batch(some(shop, 1), name="nightly")
        shop.app.batch(some(shop, 1), name="other")
        assert shop.app.batches.get("nightly") == newer
        assert shop.app.batches.get(older.id) == older
        assert [b.id for b in shop.app.batches.list(name="nightly")] == [newer.id, older.id]
        assert shop.app.batches.list(status="completed") == []
        with pytest.raises(NotFound, match="no batch"):
            shop.app.batches.get("daily")
        with pytest.raises(NotFound, match="no batch"):
            shop.app.batches.get(uuid4())


class TestChains:
    def test_with_any_a_chain_that_broke_does_not_hold_a_batch_up(self, shop: Shop) -> None:
        """What waits for a job that has failed will not start by itself."""
        shop.broken = {1}
        first = shop.send.options(name="first").job(1)
        second = shop.send.options(after="first").job(2)
        batch = shop.app.batch([first, second, shop.send.job(3)], then=shop.report, on="any")
        shop.harness.drain()
        assert shop.reports == [(BatchCounts(pending=1, completed=1, failed=1), [30])]
        shop.mend()
        batch.retry()
        shop.harness.drain()
        assert batch.status() == "completed"
        assert batch.counts() == BatchCounts(completed=3)
