"""Columns of a batch as PostgreSQL's array literals.

Thousands of values go with every finish. The driver looks at each of them to find its type; here
the type of a column is known, and making the text takes a fifth of the time. A column of which
every value is None is None: `unnest` fills a missing column with nulls.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from uuid import UUID


def uuids(values: Iterable[UUID | None]) -> str:
    """Ids."""
    return "{" + ",".join(["NULL" if value is None else value.hex for value in values]) + "}"


def words(values: Iterable[str]) -> str:
    """Texts of ours that need no quotes, such as states."""
    return "{" + ",".join(values) + "}"


def numbers(values: Sequence[float | None]) -> str | None:
    """Whole numbers or floats."""
    if values.count(None) == len(values):
        return None
    return "{" + ",".join(["NULL" if value is None else repr(value) for value in values]) + "}"


def times(values: Sequence[datetime | None]) -> str | None:
    """Moments with a timezone."""
    if values.count(None) == len(values):
        return None
    return (
        "{" + ",".join(["NULL" if value is None else value.isoformat() for value in values]) + "}"
    )


def texts(values: Sequence[str | None]) -> str | None:
    """Any texts."""
    if values.count(None) == len(values):
        return None
    return "{" + ",".join(["NULL" if value is None else quoted(value) for value in values]) + "}"


def quoted(text: str) -> str:
    """One text as an element."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
