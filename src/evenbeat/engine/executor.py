"""The steps of one execution that are the same wherever it runs: validate, perform, normalise."""

import re
import traceback
from typing import Any

from pydantic_core import to_jsonable_python

from evenbeat.domain.duration import parse_duration
from evenbeat.domain.execution import Outcome
from evenbeat.domain.states import ExecutionStatus
from evenbeat.engine.run import Run, StopReason
from evenbeat.errors import EvenbeatError, Fail, InvalidInput, LeaseLost, Retry
from evenbeat.store.rows import encode_json

MAX_RESULT_BYTES = 64 * 1024
MAX_TRACE = 20_000
MAX_MESSAGE = 2_000
MAX_CODE = 100
MAX_PROGRESS_BYTES = 8192
_ESCAPE = re.compile(r"\\(?:u(d[89ab]..\\ud[c-f]..|....)|.)")


def arguments(run: Run) -> dict[str, Any]:
    """The handler's arguments from the payload, with the context where it asks for one."""
    signature = run.task.signature
    values = signature.decode(run.job.payload)
    if signature.context_name is not None:
        values[signature.context_name] = run.context
    return values


def completed(run: Run, value: Any) -> Outcome | None:
    """The outcome of a handler that returned; None when the run is not its worker's any more."""
    if run.stop_reason is not None and run.stop_reason is not StopReason.SHUTDOWN:
        return stopped(run)
    outcome = _measured(run, Outcome())
    if value is not None:
        outcome.result = encode_result(value)
    return outcome


def failed(run: Run, error: BaseException) -> Outcome | None:
    """The outcome of a handler that raised; a stopped one raises because of the stop."""
    if isinstance(error, LeaseLost) or run.stop_reason is not None:
        return stopped(run)
    outcome = Outcome(
        ExecutionStatus.FAILED,
        error_code=type(error).__name__,
        error_message=_message(error),
        stack_trace=_trace(error),
    )
    _apply_wish(run, error, outcome)
    return _measured(run, outcome)


def stopped(run: Run) -> Outcome | None:
    """The outcome of a run that was ended from outside: only a timeout is its worker's to write."""
    if run.stop_reason is not StopReason.TIMEOUT:
        return None
    limit = run.job.timeout_seconds or 0
    return _measured(
        run,
        Outcome(
            ExecutionStatus.FAILED,
            error_code="timeout",
            error_message=f"The run took longer than its timeout of {limit:g} s.",
        ),
    )


def encode_result(value: Any) -> str:
    """A handler's return value as JSON text; what cannot be kept says so instead of failing."""
    try:
        text = encode_json("result", to_jsonable_python(value), limit=MAX_RESULT_BYTES)
    except Exception as error:  # a value may raise anything when it is looked at
        note = {"omitted": _message(error), "type": type(value).__name__}
        text = encode_json("result", note)
    return _storable(text)


def encode_progress(progress: dict[str, Any]) -> str:
    """A progress report as JSON text."""
    return _storable(encode_json("progress", progress, limit=MAX_PROGRESS_BYTES))


def _storable(text: str) -> str:
    """JSON may spell a NUL or half a surrogate pair, which the database cannot hold."""
    return _ESCAPE.sub(_storable_escape, text) if "\\u" in text else text


def _storable_escape(escape: re.Match[str]) -> str:
    code = escape[1]
    ill = code is not None and (code == "0000" or (code[0] == "d" and code[1] > "7"))
    return "\\ufffd" if ill and len(code) == 4 else escape[0]


def _apply_wish(run: Run, error: BaseException, outcome: Outcome) -> None:
    """What the handler, or its task, said about trying again."""
    if isinstance(error, Retry):
        _describe(error, outcome, "retry")
        outcome.stack_trace = None
        _apply_wait(error, outcome)
    elif isinstance(error, Fail):
        _describe(error, outcome, "fail")
        outcome.final = True
    elif isinstance(error, run.task.never_retry):
        outcome.final = True
    elif isinstance(error, InvalidInput) and error.field == "payload":
        outcome.error_code, outcome.final = "invalid_payload", True


def _describe(error: Retry | Fail, outcome: Outcome, default: str) -> None:
    """The code and the result that the handler gave its failure."""
    outcome.error_code = default
    if error.code is not None:  # a failure with a name needs no trace to be understood
        outcome.error_code, outcome.stack_trace = str(error.code)[:MAX_CODE], None
    if error.result is not None:
        outcome.result = encode_result(error.result)


def _apply_wait(error: Retry, outcome: Outcome) -> None:
    """A wait that makes no sense is told and left to the job's own policy."""
    try:
        if error.after is not None:
            outcome.retry_after = parse_duration(error.after)
    except Exception as problem:
        outcome.error_message = f"{_message(error)} ({_message(problem)})"[:MAX_MESSAGE]


def _measured(run: Run, outcome: Outcome) -> Outcome:
    outcome.duration_ms = run.duration_ms
    outcome.queued_ms = run.queued_ms
    outcome.cpu_time_ms = run.cpu_ns / 1e6 if run.cpu_ns else None
    figures = run.context.figures
    if figures:
        outcome.items_crawled = figures.get("items_crawled")
        outcome.items_indexed = figures.get("items_indexed")
        outcome.rows_affected = figures.get("rows_affected")
    return outcome


def _message(error: BaseException) -> str:
    """What the error says; an exception of a handler's own may fail even at that."""
    try:
        text = str(error)
    except BaseException:
        text = ""
    return (text or type(error).__name__)[:MAX_MESSAGE]


def _trace(error: BaseException) -> str | None:
    if isinstance(error, EvenbeatError):
        return None
    try:
        text = "".join(traceback.format_exception(error))
    except BaseException:
        return None
    return (
        text
        if len(text) <= MAX_TRACE
        else text[: MAX_TRACE // 2] + "\n…\n" + text[-MAX_TRACE // 2 :]
    )
