"""Identifiers that sort by the time they were made (UUID version 7)."""

import os
import struct
import time
from uuid import UUID


def uuid7(unix_seconds: float | None = None) -> UUID:
    """A new id; ids of different milliseconds sort by time."""
    return uuid7_many(1, unix_seconds)[0]


def uuid7_many(count: int, unix_seconds: float | None = None) -> list[UUID]:
    """`count` new ids that sort in the order they are returned, from one read of the random source.

    The twelve bits after the timestamp count upwards within the batch, and the millisecond
    moves on when they are used up, so a bulk insert appends to the end of its index.
    """
    moment = time.time() if unix_seconds is None else unix_seconds
    base = int(moment * 1000)
    tails = struct.unpack(f">{count}Q", os.urandom(8 * count))
    return [
        UUID(int=base + (i >> 12) << 80 | 0x7 << 76 | (i & 0xFFF) << 64 | 0b10 << 62 | tail >> 2)
        for i, tail in enumerate(tails)
    ]
