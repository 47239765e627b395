"""Jobs that others wait for come first, so that any part of a list can be added by itself."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from evenbeat.importers.plan import Key, Step, key_of
from evenbeat.importers.source import Document


def in_order(steps: Sequence[Step]) -> list[Step]:
    """The same steps; each after those that it waits for, and otherwise as they were. Steps that
    wait for each other stay where they are: whoever adds them says what is wrong."""
    named = {key: step for step in steps if (key := key_of(step.found.document)) is not None}
    placed: dict[int, Step] = {}
    for step in steps:
        waiting = [(step, _awaited(step, named))]
        begun = {id(step)}
        while waiting:
            here, rest = waiting[-1]
            earlier = next((s for s in rest if id(s) not in placed and id(s) not in begun), None)
            if earlier is None:
                placed.setdefault(id(here), here)
                waiting.pop()
            else:
                begun.add(id(earlier))
                waiting.append((earlier, _awaited(earlier, named)))
    return list(placed.values())


def _awaited(step: Step, named: Mapping[Key, Step]) -> Iterator[Step]:
    document = step.found.document
    scope = document.get("scope") or {}
    own = (scope.get("kind", "global"), scope.get("id", "global"))
    for name in names_awaited(document):
        found = named.get((*own, name)) or named.get(("global", "global", name))
        if found is not None:
            yield found


def names_awaited(document: Document) -> Iterable[Any]:
    """What a document says that it waits for."""
    given = document.get("after")
    rows = given if isinstance(given, list) else [] if given is None else [given]
    return [one.get("job") if isinstance(one, Mapping) else one for one in rows]
