"""When a job runs: once, at an interval, by cron, or after other jobs.

Every datetime in and out is aware UTC. Plans exist from the year 2 to the start of 9999; beyond
that `next_after` raises InvalidSchedule and the other methods see no plans.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from evenbeat.domain.cron import CRON_EXAMPLE, NAMED_CRON, calendar_of, pieces
from evenbeat.domain.duration import format_duration, parse_duration
from evenbeat.domain.moments import BEGIN, END, EPOCH, as_utc, zone_named
from evenbeat.errors import InvalidDuration, InvalidSchedule
from evenbeat.humanize import interval, timestamp

LONGEST_INTERVAL = timedelta(days=3650)
MOST_AWAITED = 100

_SECOND = timedelta(seconds=1)
_EVERY_FEW_MINUTES = re.compile(r"\*/([1-9]|[1-5][0-9]) \* \* \* \*")


# ---------------------------------------------------------------- the four kinds of schedule


@dataclass(frozen=True, slots=True)
class Once:
    """One run at `run_at`, or as soon as possible."""

    run_at: datetime | None = None

    def __post_init__(self) -> None:
        if self.run_at is not None:
            object.__setattr__(self, "run_at", as_utc(self.run_at, field="run_at"))

    def describe(self) -> str:
        """Say in plain English when it runs."""
        if self.run_at is None:
            return "once, as soon as possible"
        return f"once at {timestamp(self.run_at)}"


@dataclass(frozen=True, slots=True)
class Interval:
    """Plans at anchor + k * every, for every integer k; without an anchor, from the Unix epoch."""

    every: timedelta
    anchor: datetime | None = None

    def __post_init__(self) -> None:
        _check_interval(self.every)
        if self.anchor is not None:
            object.__setattr__(self, "anchor", as_utc(self.anchor, field="anchor"))

    def next_after(self, moment: datetime) -> datetime:
        """Give the first plan strictly after `moment`."""
        origin = self.anchor or EPOCH
        distance = (self._beats_until(max(as_utc(moment), BEGIN)) + 1) * self.every
        if distance > END - origin:
            raise _no_more_plans(self.describe())
        return origin + distance

    def latest_until(self, moment: datetime) -> datetime | None:
        """Give the newest plan at or before `moment`."""
        origin = self.anchor or EPOCH
        distance = self._beats_until(min(as_utc(moment), END)) * self.every
        return origin + distance if distance > BEGIN - origin else None

    def count(self, after: datetime, until: datetime) -> int:
        """Count the plans in (after, until]."""
        after, until = max(as_utc(after), BEGIN), min(as_utc(until), END)
        return max(0, self._beats_until(until) - self._beats_until(after))

    def preview(self, after: datetime, n: int) -> list[datetime]:
        """List the first `n` plans after `after`."""
        return _preview(self, after, n)

    def describe(self) -> str:
        """Say in plain English how often it runs."""
        return f"every {interval(self.every)}"

    def _beats_until(self, moment: datetime) -> int:
        # Dividing timedeltas is integer arithmetic: no drift, whatever the distance.
        return (moment - (self.anchor or EPOCH)) // self.every


@dataclass(frozen=True, slots=True)
class Cron:
    """Plans by a five-field cron expression or a named form, read in an IANA time zone.

    As in Debian's cron, a fixed time fires exactly once a day whatever the clocks do (at the end
    of a gap, at the first of two passes); with a `*` minute or hour, plans follow real time.
    """

    expression: str
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        object.__setattr__(self, "expression", _normal_expression(self.expression))
        zone_named(self.timezone)
        calendar_of(self.expression)

    def next_after(self, moment: datetime) -> datetime:
        """Give the first plan strictly after `moment`."""
        for piece in pieces(self.expression, self.timezone, max(as_utc(moment), BEGIN), END):
            plan = piece.first()
            if plan is not None:
                return plan
        raise _no_more_plans(self.describe())

    def latest_until(self, moment: datetime) -> datetime | None:
        """Give the newest plan at or before `moment`."""
        until = min(as_utc(moment), END)
        found = pieces(self.expression, self.timezone, BEGIN, until, newest_first=True)
        return next((plan for piece in found if (plan := piece.last()) is not None), None)

    def count(self, after: datetime, until: datetime) -> int:
        """Count the plans in (after, until], by arithmetic on months instead of walking."""
        span = max(as_utc(after), BEGIN), min(as_utc(until), END)
        return sum(piece.count() for piece in pieces(self.expression, self.timezone, *span))

    def preview(self, after: datetime, n: int) -> list[datetime]:
        """List the first `n` plans after `after`."""
        return _preview(self, after, n)

    def describe(self) -> str:
        """Say in plain English when it runs."""
        step = _EVERY_FEW_MINUTES.fullmatch(self.expression)
        if step and 60 % int(step[1]) == 0:  # the same in every time zone
            return f"every {interval(timedelta(minutes=int(step[1])))}"
        text = calendar_of(self.expression).fields.explain()
        text = text[0].lower() + text[1:]
        if text.endswith(" every day"):
            text = "daily " + text.removesuffix(" every day")
        return f"{text}, {self.timezone}"


class AfterCondition(StrEnum):
    """How the awaited jobs must have ended."""

    SUCCESS = "success"
    FAILURE = "failure"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Awaited:
    """A job to wait for, by its id or by its name, and how it must have ended."""

    job: UUID | str
    on: AfterCondition = AfterCondition.SUCCESS

    def __post_init__(self) -> None:
        object.__setattr__(self, "job", _checked_reference(self.job))
        object.__setattr__(self, "on", _condition(self.on))


@dataclass(frozen=True, slots=True)
class After:
    """One run whenever all of `jobs` have ended as each is wanted to; see `after_jobs`.

    Without jobs it stands for those that the database has: a row knows that it waits, not for whom.
    """

    jobs: tuple[Awaited, ...] = ()

    def describe(self) -> str:
        """Say in plain English what it waits for."""
        if not self.jobs:
            return "after other jobs"
        wanted = {awaited.on for awaited in self.jobs}
        verb = _ENDED[wanted.pop()] if len(wanted) == 1 else "ended as wanted"
        jobs = "1 job has" if len(self.jobs) == 1 else f"{len(self.jobs)} jobs have"
        return f"after {jobs} {verb}"


_ENDED = {
    AfterCondition.SUCCESS: "completed",
    AfterCondition.FAILURE: "failed",
    AfterCondition.ANY: "ended",
}


Schedule = Once | Interval | Cron | After
Recurring = Interval | Cron


def _preview(schedule: Recurring, after: datetime, n: int) -> list[datetime]:
    plans: list[datetime] = []
    for _ in range(n):
        after = schedule.next_after(after)
        plans.append(after)
    return plans


# ---------------------------------------------------------------- reading what people write


def parse_schedule(text: str, *, timezone: str = "UTC") -> Interval | Cron:
    """Read a recurring schedule: "@every 1h30m", "30m", five cron fields, or "@daily" and its kin.

    `timezone` is the one that cron is read in; it must be valid even where it is not needed.
    """
    zone_named(timezone)
    words = _words(text)
    if words[0].lower() == "@every":
        return _interval(text, " ".join(words[1:]))
    if len(words) == 1 and not words[0].startswith("@"):
        return _interval(text, words[0])
    return Cron(text, timezone)


def _words(given: object) -> list[str]:
    words = given.split() if isinstance(given, str) else []
    if not words:
        raise InvalidSchedule(
            f'{given!r} is not a schedule. Write for example "@every 30m" or {CRON_EXAMPLE}.'
        )
    return words


def _interval(text: str, duration: str) -> Interval:
    try:
        return Interval(parse_duration(duration))
    except InvalidDuration as error:
        reason = f"{error} Or write cron, for example {CRON_EXAMPLE}."
    except InvalidSchedule as error:
        reason = str(error)
    raise InvalidSchedule(f"{text!r} is not a schedule: {reason}")


def _check_interval(every: timedelta) -> None:
    given = format_duration(every)
    if every < _SECOND:
        reason = "an interval must be at least 1 second"
    elif every % _SECOND:
        reason = "an interval must be a whole number of seconds"
    elif every > LONGEST_INTERVAL:
        reason = f"an interval may be at most {format_duration(LONGEST_INTERVAL)}"
    else:
        return
    raise InvalidSchedule(
        f'{given!r} cannot be repeated: {reason}; for example "@every 10s" or "@every 1h30m".',
        field="every",
    )


def _normal_expression(given: str) -> str:
    fields = _words(given)
    if fields[0].startswith("@"):
        return _named_form(given, " ".join(fields).lower())
    if len(fields) == 6:
        raise InvalidSchedule(
            f"{given!r} has 6 fields, but cron here has 5: seconds are not supported. "
            f'Write for example {CRON_EXAMPLE}, or "@every 10s" for every ten seconds.'
        )
    if len(fields) != 5:
        raise InvalidSchedule(
            f"{given!r} has {len(fields)} fields, but a cron expression has 5. "
            f"Write for example {CRON_EXAMPLE}."
        )
    return " ".join(fields)


def _named_form(given: str, name: str) -> str:
    if name not in NAMED_CRON:
        names = ", ".join(NAMED_CRON)
        raise InvalidSchedule(
            f"{given!r} is not a named schedule. The names are {names}; "
            'any interval is written like "@every 1h30m".'
        )
    return name


def after_jobs(
    jobs: Iterable[UUID | str | Awaited], on: AfterCondition | str = AfterCondition.SUCCESS
) -> After:
    """The schedule of a job that waits for these; `on` is for those that do not say themselves.

    A job that is named twice is waited for once, and must not be wanted in two ways.
    """
    wished = _condition(on)
    chosen: dict[UUID | str, Awaited] = {}
    for job in jobs:
        awaited = job if isinstance(job, Awaited) else Awaited(job, wished)
        if chosen.setdefault(awaited.job, awaited) != awaited:
            raise InvalidSchedule(
                f"{awaited.job} is waited for in two ways: {chosen[awaited.job].on} and "
                f"{awaited.on}. Name it once; any stands for every end.",
                field="after",
            )
    if not chosen:
        raise InvalidSchedule(
            'There is no job to wait for: name at least one, for example after=["load-data"].',
            field="after",
        )
    if len(chosen) > MOST_AWAITED:
        raise InvalidSchedule(
            f"{len(chosen)} jobs are too many to wait for; at most {MOST_AWAITED} are allowed. "
            "Let some wait for a job in between.",
            field="after",
        )
    return After(tuple(chosen.values()))


def _checked_reference(given: object) -> UUID | str:
    if isinstance(given, UUID):
        return given
    if not isinstance(given, str) or not given.strip() or not given.isprintable():
        raise InvalidSchedule(
            f"{given!r} cannot be waited for: give the id or the name of a job.", field="after"
        )
    return _id_in(given) or given


def _id_in(text: str) -> UUID | None:
    try:
        return UUID(text) if len(text) in {32, 36} else None
    except ValueError:
        return None


def _condition(given: str) -> AfterCondition:
    try:
        return AfterCondition(given)
    except ValueError:
        raise InvalidSchedule(
            f"{given!r} is not a condition; choose one of {', '.join(AfterCondition)}, "
            "for example 'success'.",
            field="after_on",
        ) from None


def _no_more_plans(description: str) -> InvalidSchedule:
    return InvalidSchedule(f"The schedule {description!r} has no plan left before the year 9999.")
