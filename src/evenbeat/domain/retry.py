"""When a failed run may try again, and how long it waits first."""

from dataclasses import dataclass
from datetime import timedelta

from evenbeat.domain.duration import format_duration
from evenbeat.errors import InvalidInput

LONGEST_CAP = timedelta(hours=24)
_MICROSECOND = timedelta(microseconds=1)
# 2^64 microseconds exceed every allowed cap, so doubling further changes nothing.
_MOST_DOUBLINGS = 64


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """At most `max_retries` retries, spaced by `delays`, or by doubling from `backoff`."""

    max_retries: int = 3
    backoff: timedelta = timedelta(seconds=60)
    cap: timedelta = timedelta(hours=1)
    jitter: float = 0.2
    delays: tuple[timedelta, ...] = ()

    def __post_init__(self) -> None:
        """A spec checks each value by its setting; what is left is how they fit together."""
        object.__setattr__(self, "delays", tuple(self.delays))
        if self.cap < self.backoff:
            backoff, cap = format_duration(self.backoff), format_duration(self.cap)
            raise InvalidInput(
                f"The retry cap {cap!r} is shorter than the backoff {backoff!r}; "
                "for example backoff '60s' with cap '1h'.",
                field="retry_cap",
            )

    def allows(self, attempt: int) -> bool:
        """Say whether retry number `attempt` (1 is the first retry) may still happen."""
        return attempt <= self.max_retries

    def delay(self, attempt: int, spread: float) -> timedelta:
        """Give the wait before retry `attempt`, never longer than the cap; `spread` in [-1, 1] is
        the caller's random draw."""
        if self.delays:
            return self.delays[min(attempt, len(self.delays)) - 1]
        doubled = (self.backoff // _MICROSECOND) << min(attempt - 1, _MOST_DOUBLINGS)
        cap = self.cap // _MICROSECOND
        varied = min(doubled, cap) * (1 + self.jitter * spread)
        # What would be beyond the cap is mirrored at it, so that capped retries spread out as well.
        return _MICROSECOND * round(cap - abs(cap - varied))
