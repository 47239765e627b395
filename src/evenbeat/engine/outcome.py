"""What a handler's return value or exception becomes: the step `outcome` of a run."""

import logging
import re
import traceback
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, NamedTuple

from pydantic_core import to_jsonable_python

from evenbeat.domain.duration import parse_duration
from evenbeat.domain.execution import Outcome, not_kept
from evenbeat.domain.setting_kinds import error_names
from evenbeat.domain.states import ExecutionStatus
from evenbeat.engine.run import Run, StopReason
from evenbeat.errors import (
    EvenbeatError,
    EventTimeout,
    Fail,
    InvalidInput,
    LeaseLost,
    Retry,
    Snooze,
    TooLarge,
)
from evenbeat.observe.logs import LogEvent
from evenbeat.store.rows import MAX_RESULT_BYTES, SNOOZED, encode_json
from evenbeat.tasks.context import COLUMNS
from evenbeat.tasks.steps import Suspended, suspension_in

logger = logging.getLogger("evenbeat.worker")

RESULT_NOT_KEPT = LogEvent(
    "Result not kept",
    "%(task)s, job %(job_id)s: %(error)s",
)
EVENT_TIMEOUT = "event_timeout"
MAX_TRACE = 20_000
MAX_MESSAGE = 2_000
MAX_CODE = 100
MAX_PROGRESS_BYTES = 8192
_ESCAPE = re.compile(r"\\(?:u(d[89ab]..\\ud[c-f]..|....)|.)")


class ChildReport(NamedTuple):
    """What the child process of an isolated run has to say: the outcome, and what it took."""

    outcome: Outcome | None
    cpu_time_ms: float | None = None
    memory_peak_mb: float | None = None


def completed(run: Run, value: Any) -> Outcome | None:
    """The outcome of a handler that returned, or of a child process that reported. None if the run
    is not its worker's any more."""
    if run.stop_reason is not None and run.stop_reason is not StopReason.SHUTDOWN:
        return stopped(run)
    if isinstance(value, GeneratorType | AsyncGeneratorType | CoroutineType):
        kind = type(value).__name__.replace("_", " ")
        raise Fail(f"The handler returned a {kind}, which has not run.", code="not_run")
    if not isinstance(value, ChildReport):
        result = None if value is None else encode_result(value, run)
        return _measured(run, Outcome(result=result))
    outcome = value.outcome
    if outcome is not None:
        outcome.duration_ms, outcome.queued_ms = run.duration_ms, run.queued_ms
        outcome.cpu_time_ms, outcome.memory_peak_mb = value.cpu_time_ms, value.memory_peak_mb
    return outcome


def failed(  # noqa: PLR0912 - each way to raise has its own end
    run: Run, error: BaseException
) -> Outcome | None:
    """The outcome of a handler that raised. One that was stopped raised because of that."""
    put_off = suspension_in(error)
    if isinstance(error, LeaseLost) or (
        run.stop_reason is not None and not (put_off and run.stop_reason is StopReason.SHUTDOWN)
    ):
        return stopped(run)
    if isinstance(error, Snooze):
        try:
            until = run.context.now + parse_duration(error.after)
            put_off = Suspended(until, SNOOZED, _message(error))
        except InvalidInput as problem:
            error = problem
    if put_off is not None:
        later, code, reason = put_off.until, put_off.code, put_off.reason
        outcome = Outcome(error_code=code, error_message=reason, resume_at=later)
        outcome.status = ExecutionStatus.CANCELLED
        return _measured(run, outcome)
    outcome = Outcome(
        ExecutionStatus.FAILED,
        error_code=type(error).__name__,
        error_message=_message(error),
        stack_trace=_trace(error),
    )
    if isinstance(error, Retry | Fail):
        outcome.error_code = "retry" if isinstance(error, Retry) else "fail"
        if error.code is not None:  # a failure with a name needs no trace to be understood
            outcome.error_code, outcome.stack_trace = str(error.code)[:MAX_CODE], None
        if error.result is not None:
            outcome.result = encode_result(error.result, run)
        if isinstance(error, Retry):
            outcome.stack_trace = None
            try:
                outcome.retry_after = None if error.after is None else parse_duration(error.after)
            except Exception as problem:  # a wait that makes no sense: the job's policy decides
                outcome.error_message = f"{_message(error)} ({_message(problem)})"[:MAX_MESSAGE]
        else:
            outcome.final = True
    elif isinstance(error, InvalidInput) and error.field == "payload":
        outcome.error_code, outcome.final = "invalid_payload", True
        outcome.unfit = run.unfit
    elif isinstance(error, EventTimeout):
        outcome.error_code, outcome.final = EVENT_TIMEOUT, True
    else:
        outcome.raised = tuple(error_names(type(error)))
    if outcome.stack_trace is not None:
        outcome.error = error
    return _measured(run, outcome)


def stopped(run: Run) -> Outcome | None:
    """The outcome of a run that was ended from outside: only a timeout is its worker's to write."""
    if run.stop_reason is not StopReason.TIMEOUT:
        return None
    limit = run.job.timeout_seconds or 0
    outcome = Outcome(
        ExecutionStatus.FAILED,
        error_code="timeout",
        error_message=f"The run took longer than its timeout of {limit:g} s.",
    )
    return _measured(run, outcome)


def encode_result(value: Any, run: Run) -> str:
    """A handler's return value as JSON text. One that cannot be stored is replaced by a note."""
    try:
        text = encode_json(
            "result", to_jsonable_python(value), limit=MAX_RESULT_BYTES, storable=False
        )
    except Exception as error:  # a value may raise anything when it is looked at
        reason = _message(error)
        if not isinstance(error, TooLarge):
            reason = f"{reason.rstrip('.')}. Return plain JSON, or None."
        fields = {"job_id": str(run.job.id), "task": run.job.task, "error": reason}
        logger.warning(RESULT_NOT_KEPT, fields, extra=fields)
        text = encode_json("result", not_kept(reason, type(value).__name__), storable=False)
    return _storable(text)


def encode_progress(progress: dict[str, Any]) -> str:
    """A progress report as JSON text."""
    text = encode_json("progress", progress, limit=MAX_PROGRESS_BYTES, storable=False)
    return _storable(text)


def _storable(text: str) -> str:
    """JSON may spell a NUL or half a surrogate pair, which the database cannot hold."""

    def replaced(escape: re.Match[str]) -> str:
        code = escape[1]
        ill = code is not None and (code == "0000" or (code[0] == "d" and code[1] > "7"))
        return "\\ufffd" if ill and len(code) == 4 else escape[0]

    return _ESCAPE.sub(replaced, text) if "\\u" in text else text


def _measured(run: Run, outcome: Outcome) -> Outcome:
    outcome.duration_ms = run.duration_ms
    outcome.queued_ms = run.queued_ms
    outcome.cpu_time_ms = run.cpu_ms
    if figures := run.context.figures:
        for name in COLUMNS & figures.keys():
            setattr(outcome, name, figures[name])
        outcome.figures = run.context.own_figures
    return outcome


def _message(error: BaseException) -> str:
    """What the error says. The text of a handler's own exception may itself raise."""
    try:
        text = str(error)
    except BaseException:
        text = ""
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    return f"{text or type(error).__name__}{notes}"[:MAX_MESSAGE]


def _trace(error: BaseException) -> str | None:
    if isinstance(error, EvenbeatError):
        return None
    try:
        text = "".join(traceback.format_exception(error))
    except BaseException:
        return None
    if len(text) <= MAX_TRACE:
        return text
    return text[: MAX_TRACE // 2] + "\n…\n" + text[-MAX_TRACE // 2 :]
