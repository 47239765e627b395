"""Jobs that run after others: the rules, and what is said of them."""

from datetime import UTC, datetime
from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenbeat.cli.run_import import in_dependency_order
from evenbeat.domain.dependencies import (
    Dependency,
    circle,
)
from evenbeat.importers.plan import ImportStep
from evenbeat.importers.source import ParsedJob
from evenbeat.observe.explain import describe_dependencies, describe_missing

NOW = datetime(2030, 1, 1, tzinfo=UTC)
ids = st.integers(0, 9).map(lambda n: UUID(int=n))
edges = st.lists(st.tuples(ids, ids), max_size=30)


def awaited(name: str | None = "load", **values: object) -> Dependency:
    standard = {"id": UUID(int=1), "name": name, "task": "noop", "wanted": "success",
                "satisfied": False, "status": "pending"}  # fmt: skip
    return Dependency(**(standard | values))  # type: ignore[arg-type]


# -- circles ---------------------------------------------------------------------------------------


@given(edges)
def test_a_circle_is_found_where_there_is_one_and_is_one(pairs: list[tuple[UUID, UUID]]) -> None:
    every = {job for pair in pairs for job in pair}
    way = circle(pairs, sorted(every))
    assert (way is not None) == _has_circle(pairs)
    if way is not None:
        assert way[0] == way[-1]
        assert len(set(way)) == len(way) - 1
        for earlier, later in pairwise(way):
            assert (later, earlier) in pairs, "each runs after the one before it"


@given(edges, ids)
def test_a_circle_elsewhere_is_nobodys_business(pairs: list[tuple[UUID, UUID]], job: UUID) -> None:
    way = circle(pairs, [job])
    assert way is None or way[0] == job


def test_a_long_chain_is_no_trouble() -> None:
    chain = [(UUID(int=n + 1), UUID(int=n)) for n in range(20_000)]
    assert circle(chain, [UUID(int=20_000)]) is None
    assert len(circle([*chain, (UUID(int=0), UUID(int=20_000))], [UUID(int=0)]) or ()) == 20_002


def _has_circle(pairs: list[tuple[UUID, UUID]]) -> bool:
    """By taking away what waits for nothing, again and again."""
    rest = set(pairs)
    while True:
        waiting = {job for job, _ in rest}
        kept = {pair for pair in rest if pair[1] in waiting}
        if kept == rest:
            return bool(rest)
        rest = kept


# -- words -----------------------------------------------------------------------------------------


def test_what_it_runs_after() -> None:
    assert describe_dependencies([]) == "after other jobs"
    assert describe_dependencies([awaited()]) == "after load has completed"
    both = [awaited("a"), awaited("b")]
    assert describe_dependencies(both) == "after a and b have completed"
    mixed = [*both, awaited("c", wanted="any"), awaited("d", wanted="failure")]
    assert (
        describe_dependencies(mixed)
        == "after a and b have completed and c has ended and d has failed"
    )


@pytest.mark.parametrize(
    ("given_jobs", "words"),
    [
        ([awaited()], "It is waiting for load, which is pending (it must succeed)."),
        (
            [awaited(status="scheduled", last_end="failed", last_end_at=NOW)],
            "load, which is scheduled and last ended failed (it must succeed)",
        ),
        (
            [awaited(status="failed")],
            "load, which ended failed (it must succeed): retry load, or run this job by hand",
        ),
        ([awaited(status="cancelled", wanted="failure")], "ended cancelled (it must fail)"),
        ([awaited(None, status=None, task=None)], "which was deleted: give it another job"),
        ([awaited(satisfied=True)], "it starts again when they end again"),
        ([], "no longer exist"),
    ],
)
def test_why_it_waits(given_jobs: list[Dependency], words: str) -> None:
    assert words in describe_missing(given_jobs)


def test_what_will_not_come_by_itself_is_told_first() -> None:
    jobs = [awaited(f"a{n}") for n in range(5)] + [awaited("stuck", status="failed")]
    told = describe_missing(jobs)
    assert told.startswith("It is waiting for stuck, which ended failed")
    assert told.endswith("and 3 more.")


# -- imports ---------------------------------------------------------------------------------------


def step(name: str, *before: object) -> ImportStep:
    document = {"name": name, "task": "noop"} | ({"after": list(before)} if before else {})
    return ImportStep(ParsedJob(name, name, document), "add", "", None, {})


@given(st.permutations(["a", "b", "c", "d", "e"]))
def test_what_is_waited_for_is_added_first(names: list[str]) -> None:
    waits = {"a": ["b"], "b": [{"job": "c", "on": "any"}], "d": ["a", "e"]}
    ordered = [
        one.parsed.where for one in in_dependency_order([step(n, *waits.get(n, ())) for n in names])
    ]
    assert sorted(ordered) == sorted(names)
    for later, earlier in (("a", "b"), ("b", "c"), ("d", "a"), ("d", "e")):
        assert ordered.index(earlier) < ordered.index(later)


def test_what_waits_for_nothing_keeps_its_order() -> None:
    ordered = in_dependency_order([step(name) for name in "zay"])
    assert [one.parsed.where for one in ordered] == ["z", "a", "y"]


def test_circles_are_left_to_whoever_adds_them() -> None:
    ordered = in_dependency_order([step("a", "b"), step("b", "a"), step("c", "c")])
    assert sorted(one.parsed.where for one in ordered) == ["a", "b", "c"]
