"""Identifiers that sort by the time they were made (UUID version 7)."""

import os
import struct
import time
from datetime import UTC, datetime
from uuid import UUID

_MARKS = 0x7 << 76 | 0b10 << 62
"""The bits that every one has: its version and its variant."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def uuid7(unix_seconds: float | None = None) -> UUID:
    """A new id. The twelve bits after the milliseconds are the fraction of the present one, so ids
    that a process makes one after another sort in that order."""
    random = int.from_bytes(os.urandom(8), "big") >> 2
    if unix_seconds is not None:
        return UUID(int=int(unix_seconds * 1000) << 80 | _MARKS | random)
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    return UUID(int=milliseconds << 80 | (rest << 12) // 1_000_000 << 64 | _MARKS | random)


def uuid7_floor(moment: datetime) -> UUID:
    """The lowest id of a moment, as the function of this name in the database."""
    return UUID(int=int(max(moment, _EPOCH).timestamp() * 1000) << 80 | _MARKS)


def uuid7_many(count: int, unix_seconds: float | None = None) -> list[UUID]:
    """`count` new ids that sort in the order they are returned, so that a bulk insert appends to
    the end of its index."""
    first = uuid7(unix_seconds).int
    ticks = first >> 80 << 12 | first >> 64 & 0xFFF  # 4096 in a millisecond
    return [
        UUID(int=(ticks + i) >> 12 << 80 | (ticks + i & 0xFFF) << 64 | _MARKS | tail >> 2)
        for i, tail in enumerate(struct.unpack(f">{count}Q", os.urandom(8 * count)))
    ]


def parse_id(value: object) -> UUID | None:
    """The id that a text is, with or without dashes; None for anything else. `UUID` alone also
    takes braces and "urn:uuid:", which no id of ours has."""
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value) if isinstance(value, str) and len(value) in {32, 36} else None
    except ValueError:
        return None
