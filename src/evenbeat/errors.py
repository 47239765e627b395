"""Every exception that Evenbeat raises, in one tree.

    EvenbeatError
    ├── InvalidInput (ValueError)      what the caller passed is wrong; says what would be right
    │   ├── InvalidDuration
    │   ├── InvalidSchedule
    │   ├── InvalidWindow
    │   ├── InvalidSettings
    │   └── TooLarge                   a payload or result beyond the limit
    ├── NotFound (LookupError)         no such job, execution or worker
    ├── Conflict                       the request is sound, the present state forbids it
    │   ├── IllegalTransition          names the state and what is allowed from there
    │   ├── CannotIssue                tokens are made elsewhere, or none are needed
    │   └── NameTaken                  another job has this name in this scope
    ├── AccessDenied                   this caller may not do this
    │   ├── NotAuthenticated           no token, or one that does not count
    │   │   └── NotSignedIn            nobody is signed in to the host of this service
    │   ├── RoleTooLow                 names the role that is needed and the one that is held
    │   └── ForeignRequest             another site's page, or a foreign host name, is behind it
    ├── LeaseLost                      the claim belongs to someone else now; stop and write nothing
    ├── EventTimeout (TimeoutError)    a run has waited in vain for an event
    ├── TaskUnknown                    no task of this name in this process
    ├── JobFailed                      the job whose result is asked for has failed
    │   └── JobCancelled               it was cancelled
    ├── ResultNotKept                  it has completed, but what it returned could not be stored
    ├── NotDrained (TimeoutError)      a test's jobs do not come to an end
    ├── SignInFailed                   the host's `auth` function raised, or gave no caller
    ├── LifespanFailed                 a worker could not start: one of its lifespans raised
    └── StoreError
        ├── DatabaseUnavailable        no connection in time
        ├── StatementTimeout           another transaction holds a lock; nothing was done
        ├── SchemaTooNew               the database was migrated by a newer Evenbeat
        ├── SchemaBehind               the database is yet to be migrated
        └── EmbeddedUnavailable        the private server cannot be had on this machine

Three more are raised by handlers, not by Evenbeat: `Retry` (try this run again later), `Fail`
(trying again is pointless) and `Snooze` (later, and this was no attempt).
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID


def validation_message(entry: Mapping[str, Any]) -> str:
    """What one of the errors of pydantic's `ValidationError.errors()` says, without the prefix that
    it puts before the text of a ValueError."""
    unknown = entry["type"] == "extra_forbidden"
    return "There is no such field." if unknown else entry["msg"].removeprefix("Value error, ")


class EvenbeatError(Exception):
    """The root: catching it catches everything that Evenbeat itself raises."""


class InvalidInput(EvenbeatError, ValueError):
    """An argument is wrong. `field` names it when it has a name."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class InvalidDuration(InvalidInput):
    """A text or number that is not a duration."""


class InvalidSchedule(InvalidInput):
    """A schedule that cannot be understood or would never fire."""


class InvalidWindow(InvalidInput):
    """An execution window that cannot be understood or never opens."""


class InvalidSettings(InvalidInput):
    """A setting from the environment or `evenbeat.toml` that cannot be used."""


class TooLarge(InvalidInput):
    """A value takes more bytes as JSON than is allowed."""


class NotFound(EvenbeatError, LookupError):
    """Nothing with this id."""

    def __init__(self, kind: str, id_: UUID | str, *, by: str = "id") -> None:
        super().__init__(f"There is no {kind} with {by} {id_}.")


class Conflict(EvenbeatError):
    """The request makes sense, but not in the present state."""


class IllegalTransition(Conflict):
    """A job cannot go from `state` to `wanted`; `allowed` lists where it can go. A `verb` such as
    "retried" says what was asked for, and `sources` which jobs it is for."""

    def __init__(
        self,
        state: str,
        wanted: str,
        allowed: Iterable[str],
        *,
        verb: str | None = None,
        sources: Iterable[str] = (),
    ) -> None:
        self.state = state
        self.wanted = wanted
        self.allowed = tuple(sorted(allowed))
        options = ", ".join(self.allowed) or "nothing: this state is final"
        problem = f"A job that is {state} cannot become {wanted}."
        if verb is not None:
            suitable = " or ".join(sorted(sources))
            problem = f"A job that is {state} cannot be {verb}; one that is {suitable} can."
        super().__init__(f"{problem} From {state} it can become: {options}.")


class NameTaken(Conflict):
    """A job with this name and scope exists already; `job_id` is its id."""

    def __init__(self, name: str, scope: str, job_id: UUID) -> None:
        super().__init__(
            f"A job named {name!r} exists already in scope {scope} (id {job_id}). "
            "Update that job, or choose another name or scope."
        )
        self.job_id = job_id


class CannotIssue(Conflict):
    """This process has no key to sign tokens with; the message says where tokens come from."""


class AccessDenied(EvenbeatError):
    """The caller is not allowed to do this."""


class NotAuthenticated(AccessDenied):
    """No token, or one that does not count. The message never repeats any of it."""


class NotSignedIn(NotAuthenticated):
    """Nobody is signed in to the application that this service is mounted in."""


class SignInFailed(EvenbeatError):
    """The `auth` function of `app.asgi(auth=…)` raised an error, or returned what it may not."""


class RoleTooLow(AccessDenied):
    """The caller is known, but has `held` where `needed` is the least."""

    def __init__(self, needed: str, held: str) -> None:
        super().__init__(f"This takes the role {needed} or above; you have {held}.")


class ForeignRequest(AccessDenied):
    """A browser was made to send this by a page that is not ours."""


class LeaseLost(EvenbeatError):
    """This claim was taken over or cancelled: stop the run, its result no longer counts."""


class EventTimeout(EvenbeatError, TimeoutError):
    """The event that a run waited for has not come in time."""


class TaskUnknown(EvenbeatError, LookupError):
    """No task of this name is registered in this process."""


class LifespanFailed(EvenbeatError):
    """A worker has not started, because a lifespan raised; that error is the cause."""


class JobFailed(EvenbeatError):
    """The job whose result was asked for has failed. `error_code`, `error` and `trace` are those of
    its last run, as its worker wrote them."""

    def __init__(
        self,
        job_id: UUID,
        task: str,
        error_code: str | None,
        error: str | None,
        trace: str | None = None,
    ) -> None:
        self.job_id = job_id
        self.task = task
        self.error_code = error_code
        self.error = error
        self.trace = trace
        super().__init__(f"The job {job_id} ({task}) {self._how()}")
        if trace:
            self.add_note(f"In its worker:\n{trace.rstrip()}")

    def _how(self) -> str:
        return f"failed with {self.error_code}: {self.error}"


class JobCancelled(JobFailed):
    """The job was cancelled before it completed."""

    def _how(self) -> str:
        return "was cancelled."


class ResultNotKept(EvenbeatError):
    """The job has completed, but what its handler returned was too large or not JSON."""


class StoreError(EvenbeatError):
    """The database refused or failed in a way the caller cannot mend by other arguments."""


class DatabaseUnavailable(StoreError):
    """No connection to the database could be had in time."""


class StatementTimeout(StoreError):
    """A statement waited too long for what another transaction has locked; nothing was done."""


class SchemaBehind(StoreError):
    """The database has a schema that this Evenbeat cannot use before it is migrated."""


class SchemaTooNew(StoreError):
    """The database was migrated by a newer Evenbeat than this one."""


class EmbeddedUnavailable(StoreError):
    """The embedded PostgreSQL server cannot run here; the message says what to set instead."""


class NotDrained(EvenbeatError, TimeoutError):
    """A harness has run jobs for as long as it may, and there are still some to run."""


class Retry(Exception):
    """Raised by a handler: try this run again, `after` a while of its own choosing (seconds, a
    timedelta or a text such as "5m"), else by the job's retry policy. It counts as an attempt.

    `code` becomes the run's error_code in place of "retry", and `result` is kept with the run."""

    code: str | None = None
    result: object = None

    def __init__(
        self, reason: str = "The handler asked for a retry.", *,
        after: timedelta | float | str | None = None,
        code: str | None = None, result: object = None,
    ) -> None:  # fmt: skip
        super().__init__(reason)
        self.after = after
        self.code = code
        self.result = result


class Fail(Exception):
    """Raised by a handler: this run has failed, and trying it again is pointless.

    `code` becomes the run's error_code in place of "fail", and `result` is kept with the run."""

    code: str | None = None
    result: object = None

    def __init__(self, *reason: object, code: str | None = None, result: object = None) -> None:
        super().__init__(*reason)
        self.code = code
        self.result = result


class Snooze(Exception):
    """Raised by a handler: not now, but `after` a while (seconds, a timedelta or a text such as
    "10m"). It costs no attempt, and may be raised any number of times."""

    def __init__(self, after: timedelta | float | str, reason: str = "") -> None:
        super().__init__(reason or f"Snoozed for {after}.")
        self.after = after
