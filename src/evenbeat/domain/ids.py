"""Identifiers that sort by the time they were made (UUID version 7)."""

import os
import struct
import time
from uuid import UUID

_MARKS = 0x7 << 76 | 0b10 << 62
"""The bits that every one has: its version and its variant."""


def uuid7(unix_seconds: float | None = None) -> UUID:
    """A new id. The twelve bits after the milliseconds are the fraction of the present one, so ids
    that a process makes one after another sort in that order."""
    return _uuid7(_ticks(unix_seconds), int.from_bytes(os.urandom(8), "big"))


def uuid7_many(count: int, unix_seconds: float | None = None) -> list[UUID]:
    """`count` new ids that sort in the order they are returned, so that a bulk insert appends to
    the end of its index."""
    first = _ticks(unix_seconds)
    tails = struct.unpack(f">{count}Q", os.urandom(8 * count))
    return [_uuid7(ticks, tail) for ticks, tail in enumerate(tails, first)]


def _ticks(unix_seconds: float | None) -> int:
    """Time in 4096ths of a millisecond."""
    if unix_seconds is None:
        return (time.time_ns() << 12) // 1_000_000
    return int(unix_seconds * 1000) << 12


def _uuid7(ticks: int, random: int) -> UUID:
    return UUID(int=ticks >> 12 << 80 | (ticks & 0xFFF) << 64 | _MARKS | random >> 2)


def parse_id(value: object) -> UUID | None:
    """The id that a text is, with or without dashes; None for anything else. `UUID` alone also
    takes braces and "urn:uuid:", which no id of ours has."""
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value) if isinstance(value, str) and len(value) in {32, 36} else None
    except ValueError:
        return None
