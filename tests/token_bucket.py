"""The token bucket of a rate limit in a few lines: what the statements must agree with."""

from datetime import datetime

from evenbeat.domain.limits import RateLimit


def startable(rate: RateLimit, next_start_at: datetime, now: datetime) -> int:
    """How many may start now."""
    if next_start_at > now:
        return 0
    return min(rate.burst, (now - next_start_at) // rate.step + 1)


def after_starts(rate: RateLimit, next_start_at: datetime, now: datetime, count: int) -> datetime:
    """When the next one may start, after `count` have started now."""
    full = now - (rate.burst - 1) * rate.step
    return max(next_start_at, full) + count * rate.step
