"""When a failed run may try again, and how long it waits first."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from evenbeat.domain.catch_up import FEW
from evenbeat.domain.duration import format_duration
from evenbeat.errors import InvalidInput

LONGEST_CAP = timedelta(hours=24)
_MICROSECOND = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)
_SOON = timedelta(minutes=1)
_MOST_ERRORS = 1000
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


class FailuresAlike:
    """Runs that fail with the same error, one soon after the other: most likely something that they
    all need is away, and must not be met by all of their retries at once when it is back."""

    def __init__(self, longest: timedelta) -> None:
        self._longest = longest
        self._counts: dict[str, tuple[int, datetime]] = {}

    def extra_wait(self, error: str, wait: timedelta, now: datetime) -> timedelta:
        """How much longer than `wait` the retry of one more such run waits, so that a few retry
        within each wait, in the order in which they failed; `longest` at most."""
        count, since = self._counts.pop(error, (0, now))
        if now - since > _SOON:
            count = 0
        self._counts[error] = count + 1, now
        if len(self._counts) > _MOST_ERRORS:
            del self._counts[next(iter(self._counts))]  # the one not seen for longest
        if count <= FEW or not self._longest:
            return timedelta(0)
        return min(max(wait, _SECOND), self._longest) * (count - FEW) / FEW % self._longest
