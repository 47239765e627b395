"""Results handed from job to job: chains, and what a job reads of those that it ran after."""

from collections.abc import Iterator

import pytest
from pydantic import BaseModel

from evenbeat import Context, Evenbeat, Fail, JobFailed, chain
from evenbeat.errors import InvalidInput
from evenbeat.testing import Harness


class Page(BaseModel):
    """What a task returns that JSON must carry."""

    url: str
    words: int


@pytest.fixture
def app(database_url: str) -> Iterator[Evenbeat]:
    app = Evenbeat(database_url, threads=2)
    yield app
    app.close()


class TestInputs:
    def test_they_are_read_by_task_and_by_name_as_the_annotated_type(self, app: Evenbeat) -> None:
        seen: list[object] = []

        @app.task
        def extract(url: str) -> Page:
            return Page(url=url, words=7)

        @app.task
        async def load(ctx: Context) -> int:
            seen.extend(
                (
                    ctx.inputs["extract"],
                    ctx.inputs[extract].words,
                    await ctx.inputs.get_async("first"),
                    list(ctx.inputs.results()),
                )
            )
            return 1

        page = Page(url="a", words=7)
        with Harness(app) as harness:
            first = extract.options(name="first").enqueue("a")
            load.options(after=first).enqueue()
            harness.drain()
            assert seen == [page, 7, page, [page]]

    def test_of_several_jobs_of_a_task_all_are_read_in_their_order(self, app: Evenbeat) -> None:
        seen: list[object] = []

        @app.task
        def double(number: int) -> int:
            return 2 * number

        @app.task
        def total(ctx: Context) -> None:
            seen.append(sum(ctx.inputs.results(double)))
            with pytest.raises(InvalidInput, match="Several of the jobs"):
                ctx.inputs["double"]
            with pytest.raises(KeyError, match="no job of this name"):
                ctx.inputs["triple"]

        with Harness(app) as harness:
            parts = app.enqueue_many(double.job(number) for number in range(5))
            job = total.options(after=parts).enqueue()
            harness.drain()
            assert job.status() == "completed"
        assert seen == [20]

    def test_one_that_failed_raises_how(self, app: Evenbeat) -> None:
        @app.task(max_retries=0)
        def extract() -> None:
            raise Fail("no such page", code="gone")

        @app.task
        def mend(ctx: Context) -> str:
            with pytest.raises(JobFailed) as raised:
                ctx.inputs[extract]
            return str(raised.value.error_code)

        with Harness(app) as harness:
            job = mend.options(after=extract.enqueue(), after_on="failure").enqueue()
            harness.drain()
            assert job.result(timeout=0) == "gone"

    def test_a_recurring_one_hands_on_the_run_that_started_it(self, app: Evenbeat) -> None:
        runs: list[int] = []
        seen: list[object] = []

        @app.every("1h")
        def load() -> int:
            runs.append(1)
            return len(runs)

        @app.after(load)
        def report(ctx: Context) -> None:
            seen.append((ctx.inputs[load], ctx.predecessor_plan_time == ctx.plan_time))

        with Harness(app) as harness:
            harness.advance("3h")
        assert seen == [(number, True) for number in range(1, len(runs) + 1)]

    def test_a_context_of_ones_own_says_what_it_is_missing(self, app: Evenbeat) -> None:
        @app.task
        def load() -> None: ...

        with Harness(app):
            context = Context(load.enqueue().record())
            with pytest.raises(InvalidInput, match="harness"):
                context.inputs["extract"]


class TestChain:
    def test_each_step_runs_after_the_one_before(self, app: Evenbeat) -> None:
        order: list[str] = []

        @app.task
        def step(name: str) -> str:
            order.append(name)
            return name

        steps = chain(
            step.job("a"), [step.job("b"), step.job("c")], chain(step.job("d"), step.job("e"))[:1]
        )
        with Harness(app) as harness:
            last = app.enqueue_many(steps)[-1]
            harness.drain()
            assert last.result(timeout=0) == "d"
        assert order[0] == "a"
        assert set(order[1:3]) == {"b", "c"}
        assert order[3:] == ["d"]

    def test_a_chain_may_be_a_branch_of_another(self, app: Evenbeat) -> None:
        order: list[str] = []

        @app.task
        def step(name: str) -> None:
            order.append(name)

        branch = chain(step.job("b1"), step.job("b2"))
        with Harness(app) as harness:
            app.enqueue_many(chain(step.job("a"), [*branch, step.job("c")], step.job("d")))
            harness.drain()
        assert order[0] == "a"
        assert order.index("b1") < order.index("b2")
        assert order[-1] == "d"

    def test_in_a_batch(self, app: Evenbeat) -> None:
        @app.task
        def step(ctx: Context, first: bool = False) -> int:
            return 1 if first else 1 + ctx.inputs[step]

        with Harness(app) as harness:
            jobs = chain(step.job(first=True), step.job(), step.job())
            batch = app.batch(jobs)
            harness.drain()
            assert list(batch.results()) == [1, 2, 3]
            assert batch.status() == "completed"

    def test_what_is_no_job_is_refused(self, app: Evenbeat) -> None:
        @app.task
        def step() -> None: ...

        with pytest.raises(InvalidInput, match="yet to be added"):
            chain(step)  # type: ignore[arg-type]


def test_a_job_waits_for_ten_thousand_others_and_reads_them_all(app: Evenbeat) -> None:
    @app.task
    async def double(number: int) -> int:
        return 2 * number

    @app.task
    def total(ctx: Context) -> int:
        return sum(ctx.inputs.results(double))

    with Harness(app) as harness:
        parts = app.enqueue_many(double.job(number) for number in range(10_000))
        job = total.options(after=parts).enqueue()
        harness.drain(timeout="10m")
        assert job.result(timeout=0) == sum(2 * number for number in range(10_000))
