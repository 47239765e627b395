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
        object.__setattr__(self, "delays", tuple(self.delays))
        if type(self.max_retries) is not int or self.max_retries < 0:
            raise InvalidInput(
                f"max_retries is {self.max_retries!r}; it must be a whole number, 0 (never retry) "
                "or more, for example 3.",
                field="max_retries",
            )
        backoff, cap = format_duration(self.backoff), format_duration(self.cap)
        if self.backoff < timedelta(0):
            raise InvalidInput(
                f"The retry backoff {backoff!r} must not be negative; for example '60s'.",
                field="retry_backoff",
            )
        if self.cap < self.backoff:
            raise InvalidInput(
                f"The retry cap {cap!r} is shorter than the backoff {backoff!r}; "
                "for example backoff '60s' with cap '1h'.",
                field="retry_cap",
            )
        if self.cap > LONGEST_CAP:
            raise InvalidInput(
                f"The retry cap {cap!r} is longer than 24h, the most allowed; for example '1h'.",
                field="retry_cap",
            )
        if not 0 <= self.jitter <= 1:
            raise InvalidInput(
                f"The retry jitter {self.jitter!r} is outside 0 to 1; for example 0.2 for ±20 %.",
                field="retry_jitter",
            )
        if self.delays and min(self.delays) < timedelta(0):
            raise InvalidInput(
                f"The retry delay {format_duration(min(self.delays))!r} must not be negative; "
                "for example ['10s', '60s'].",
                field="retry_delays",
            )

    def allows(self, attempt: int) -> bool:
        """Say whether retry number `attempt` (1 is the first retry) may still happen."""
        return attempt <= self.max_retries

    def delay(self, attempt: int, spread: float) -> timedelta:
        """Give the wait before retry `attempt`; `spread` in [-1, 1] is the caller's random draw."""
        if attempt < 1:
            raise InvalidInput(
                f"Retry {attempt!r} does not exist: the first retry is 1.", field="attempt"
            )
        if not -1 <= spread <= 1:
            raise InvalidInput(
                f"A spread of {spread!r} is outside -1 to 1; for example 0 for no jitter.",
                field="spread",
            )
        if self.delays:
            return self.delays[min(attempt, len(self.delays)) - 1]
        doubled = (self.backoff // _MICROSECOND) << min(attempt - 1, _MOST_DOUBLINGS)
        # The jitter comes after the cap, so that capped retries spread out as well.
        capped = min(doubled, self.cap // _MICROSECOND)
        return _MICROSECOND * round(capped * (1 + self.jitter * spread))
