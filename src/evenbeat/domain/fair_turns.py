"""Fair turns: the keys of a queue take turns, each of as many jobs as its weight says.

This is deficit round robin with jobs of equal cost. A worker remembers only where it goes on. Each
worker by itself is fair, and so are all of them together.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, TypeVar

_T = TypeVar("_T")


class Turn(NamedTuple):
    """Whose turn it is: a fair key of a queue, how many jobs it has started in it, and whether it
    is over. The default comes before the first key."""

    queue: str = ""
    key: str = ""
    started: int = 0
    is_over: bool = True


class Deal(NamedTuple):
    """How many jobs each key may start, which key comes last, and how many of its jobs belong to
    the turn that it has then."""

    shares: list[int]
    last: int
    started: int


def deal(room: int, weights: Sequence[int], started: int = 0, *, is_all: bool = True) -> Deal:
    """Deal room for so many jobs out to keys with these weights, in the order of their turns. The
    first has `started` some in its turn before. Where these are not all the keys (`is_all`), they
    get whole rounds only, if any, and none comes twice to a turn before the others had theirs."""
    shares, order = [0] * len(weights), list(range(len(weights)))
    last, begun = 0, started
    if started:
        shares[0] = max(0, min(room, weights[0] - started))
        begun += shares[0]
        order = [*order[1:], 0] if is_all else order[1:]
    rounds, rest = divmod(room - shares[0], max(1, sum(weights[index] for index in order)))
    if rounds and order:
        for index in order:
            shares[index] += rounds * weights[index]
        last, begun = order[-1], weights[order[-1]]
    if is_all or not rounds:
        for index in order:
            if rest:
                turn = min(rest, weights[index])
                shares[index] += turn
                rest -= turn
                last, begun = index, turn
    return Deal(shares, last, begun)


def in_turns(
    jobs: Iterable[_T], key_of: Callable[[_T], Hashable], weight_of: Callable[[_T], int]
) -> list[_T]:
    """The jobs as they start: each key's in the order that they have, the keys in turns."""
    by_key: dict[Hashable, list[_T]] = {}
    for job in jobs:
        by_key.setdefault(key_of(job), []).append(job)
    ordered: list[_T] = []
    while by_key:
        for key, own in list(by_key.items()):
            weight = weight_of(own[0])
            ordered += own[:weight]
            by_key[key] = own[weight:]
            if not by_key[key]:
                del by_key[key]
    return ordered
