"""Names: a class is defined in one module, and what public signatures mention can be imported."""

import ast
import inspect
import typing
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import evenbeat
from evenbeat import Eager
from evenbeat.balance.balancer import Balancer
from evenbeat.engine.ends import EndWatch
from evenbeat.observe.metrics import Metrics
from evenbeat.observe.telemetry import WorkerStatus
from evenbeat.settings import Settings
from evenbeat.store.bulk import Added
from evenbeat.store.store import Store
from evenbeat.tasks.context import Leases
from evenbeat.tasks.steps import RunSteps
from evenbeat.testing import Harness

SRC = Path(evenbeat.__file__).parent

INSIDE = {Added, Balancer, EndWatch, Leases, Metrics, RunSteps, Settings, Store, WorkerStatus}
"""What leads to Evenbeat's own parts: `app.add`, `app.balancer`, `app.metrics`, `ctx.leases` …"""


def test_no_class_name_is_defined_in_two_modules():
    homes = defaultdict(list)
    for file in SRC.rglob("*.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(str(file.relative_to(SRC)))
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


def public_types() -> list[type]:
    exported = [getattr(evenbeat, name) for name in evenbeat.__all__]
    return [Harness, *(one for one in exported if isinstance(one, type))]


def mentioned(hint: object) -> Iterator[type]:
    """The classes in an annotation."""
    if isinstance(hint, list | tuple):
        for part in hint:
            yield from mentioned(part)
    elif origin := typing.get_origin(hint):
        yield from mentioned((origin, *typing.get_args(hint)))
    elif isinstance(hint, type):
        yield hint


def signatures(owner: type) -> Iterator[tuple[str, dict[str, object]]]:
    """The annotations of its public methods and properties, inherited ones too."""
    unknown = dict.fromkeys(("ASGIApp", "SignIn"), object)  # those of others, and an alias
    names = unknown | {"Balancer": Balancer, "Eager": Eager, "Metrics": Metrics}
    for kind in owner.__mro__:
        for name, member in vars(kind).items() if kind.__module__.startswith("evenbeat") else ():
            function = getattr(member, "__func__", getattr(member, "fget", None)) or member
            function = inspect.unwrap(getattr(function, "_make", function))
            if not name.startswith("_") and inspect.isfunction(function):
                hints = typing.get_type_hints(
                    function, names | vars(evenbeat.app) | function.__globals__
                )
                yield f"{kind.__name__}.{name}", hints


@pytest.mark.parametrize("owner", public_types(), ids=lambda owner: owner.__name__)
def test_what_public_signatures_mention_can_be_imported_from_evenbeat(owner: type):
    public = {getattr(evenbeat, name) for name in evenbeat.__all__} | INSIDE
    missing = {
        f"{kind.__name__} of {where}"
        for where, hints in signatures(owner)
        for hint in hints.values()
        for kind in mentioned(hint)
        if kind.__module__.startswith("evenbeat.")
        and kind.__module__ != "evenbeat.errors"
        and kind not in public
    }
    assert missing == set()
