"""What the shop does, whoever calls it: nothing here knows of queues, so a port leaves it alone."""

from collections import Counter
from pathlib import Path

OUTBOX = Path("outbox.txt")
SHELVES = {
    "berlin": {"tea": 12, "rice": 3},
    "paris": {"tea": 5, "salt": 8},
    "rome": {"rice": 9, "salt": 1},
}
_called: set[str] = set()


class UnknownStore(Exception):
    """No retry will help."""


class MailboxBusy(Exception):
    """The mail server says when to come back."""

    seconds = 1


def stock(store: str) -> dict[str, int]:
    """What a store has on its shelves. Of every line, the first call gets lost."""
    if store not in SHELVES:
        raise UnknownStore(f"There is no store in {store}.")
    if _is_first(store):
        raise ConnectionError(f"the line to {store} is dead")
    return SHELVES[store]


def total(stocks: list[dict[str, int]]) -> dict[str, int]:
    counter: Counter[str] = Counter()
    for each in stocks:
        counter.update(each)
    return dict(counter)


def listed(stock: dict[str, int]) -> str:
    return ", ".join(f"{number} {ware}" for ware, number in sorted(stock.items()))


def send(to: str, text: str) -> None:
    if _is_first(to):
        raise MailboxBusy(f"the mailbox of {to} is busy")
    write(f"to {to}: {text}")


def write(line: str) -> None:
    with OUTBOX.open("a", encoding="utf-8") as outbox:
        outbox.write(f"{line}\n")


def _is_first(call: str) -> bool:
    is_first = call not in _called
    _called.add(call)
    return is_first
