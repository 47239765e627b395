"""Identifiers that sort by the time they were made (UUID version 7)."""

import os
import struct
import time
from uuid import UUID

_MARKS = 0x7 << 76 | 0b10 << 62
"""The bits that every one has: its version and its variant."""


def uuid7(unix_seconds: float | None = None) -> UUID:
    """A new id; ids of different milliseconds sort by time."""
    moment = time.time() if unix_seconds is None else unix_seconds
    return UUID(int=int(moment * 1000) << 80 | _MARKS | int.from_bytes(os.urandom(8), "big") >> 2)


def uuid7_many(count: int, unix_seconds: float | None = None) -> list[UUID]:
    """`count` new ids that sort in the order they are returned.

    The twelve bits after the timestamp count upwards within the batch, and the millisecond
    moves on when they are used up, so a bulk insert appends to the end of its index.
    """
    moment = time.time() if unix_seconds is None else unix_seconds
    base = int(moment * 1000)
    return [
        UUID(int=base + (i >> 12) << 80 | (i & 0xFFF) << 64 | _MARKS | tail >> 2)
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
