"""Errors as responses: every refusal is an RFC 9457 problem document that says what to do.

A problem has `title`, `status` and `detail`; one about the request also has `errors`, a list of
`{field, message}`. Some carry more: a refused transition names the `state` and what is `allowed`,
a name that is taken the `job_id` that has it.
"""

import logging
import re
from http import HTTPStatus
from typing import Any

import psycopg
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from evenbeat.errors import (
    AccessDenied,
    Conflict,
    EvenbeatError,
    IllegalTransition,
    InvalidInput,
    NameTaken,
    NotAuthenticated,
    NotFound,
    NotSignedIn,
    SignInFailed,
    StatementTimeout,
    StoreError,
    TaskUnknown,
    TooLarge,
    validation_message,
)
from evenbeat.store.pool import NoConnection

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"


class FieldError(BaseModel):
    field: str
    message: str


class Problem(BaseModel):
    """An RFC 9457 problem document."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    errors: list[FieldError] | None = Field(None, description="What is wrong, field by field.")
    state: str | None = Field(None, description="The state that forbids what was asked.")
    allowed: list[str] | None = Field(None, description="What is possible from that state.")
    job_id: str | None = Field(None, description="The job that stands in the way.")


def problem(
    status: int,
    detail: str,
    *,
    errors: list[FieldError] | None = None,
    headers: dict[str, str] | None = None,
    **members: Any,
) -> JSONResponse:
    """The response for a problem."""
    title = HTTPStatus(status).phrase
    document = Problem(title=title, status=status, detail=detail, errors=errors, **members)
    content = document.model_dump(exclude_none=True)
    return JSONResponse(content, status, headers=headers, media_type=MEDIA_TYPE)


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For the OpenAPI document: these statuses are answered with a problem document."""
    return {
        str(status): {
            "description": HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status in statuses
    }


def install(api: FastAPI) -> None:
    """Answer every exception with a problem."""
    for kind in (
        RequestValidationError,
        HTTPException,
        EvenbeatError,
        psycopg.OperationalError,
        Exception,
    ):
        api.add_exception_handler(kind, problem_for)


def problem_for(request: Request, error: Exception) -> JSONResponse:  # noqa: PLR0911 - a table
    """The problem that an exception stands for."""
    match error:
        case RequestValidationError():
            return _wrong_request(error)
        case HTTPException():
            return _http(request, error)
        case InvalidInput() | TaskUnknown():
            field = getattr(error, "field", None)
            errors = None if field is None else [FieldError(field=field, message=str(error))]
            status = 413 if isinstance(error, TooLarge) else 422
            return problem(status, str(error), errors=errors)
        case NotFound():
            return problem(404, str(error))
        case IllegalTransition():
            return problem(409, str(error), state=error.state, allowed=list(error.allowed))
        case NameTaken():
            return problem(409, str(error), job_id=str(error.job_id))
        case Conflict():
            return problem(409, str(error))
        case NotSignedIn():  # by means that only the host knows, so there is no challenge to name
            return problem(401, str(error))
        case SignInFailed():
            return problem(500, str(error))
        case NotAuthenticated():
            return problem(401, str(error), headers={"WWW-Authenticate": 'Bearer realm="evenbeat"'})
        case AccessDenied():
            return problem(403, str(error))
        case StoreError() | psycopg.OperationalError():
            return _no_database(request, error)
    logger.error(
        "A request failed by a bug",
        extra={"method": request.method, "path": request.url.path},
        exc_info=error,
    )
    return problem(500, "Evenbeat failed by a bug of its own; its log has the details.")


def _wrong_request(error: RequestValidationError) -> JSONResponse:
    errors = [_field_error(entry) for entry in error.errors()[:20]]
    if isinstance(error.body, bytes) and any(one.field == "body" for one in errors):
        message = "The body was not read: send JSON, with Content-Type: application/json."
        return problem(422, message, errors=[FieldError(field="body", message=message)])
    if any(entry["type"] == "json_invalid" for entry in error.errors()):
        return problem(400, "The body is not valid JSON.", errors=errors)
    details = "; ".join(f"{one.field}: {one.message}" for one in errors[:3])
    return problem(422, f"The request is not valid. {details}", errors=errors)


def _field_error(entry: dict[str, Any]) -> FieldError:
    """Where and what, in our words; the value itself is never repeated (it may be a secret)."""
    place = [str(part) for part in entry["loc"] if part not in ("body", "query", "path", "header")]
    # A field that may be one of several types: which of them was tried says nothing to people.
    place = [part for part in place if "[" not in part and not part.endswith("Fields")]
    field = getattr(entry.get("ctx", {}).get("error"), "field", None)
    if field and isinstance(entry.get("input"), dict):
        place.append(field)  # the error of a whole document, about one of its fields
    elif field and isinstance(entry.get("input"), list):
        place[-1:] = [field]  # of a whole list, about one of its items
    field = ".".join(place) or str(entry["loc"][0])
    return FieldError(field=field, message=validation_message(entry))


def _http(request: Request, error: HTTPException) -> JSONResponse:
    headers = dict(error.headers or {})
    if error.status_code == 400 and isinstance(error.__cause__, Exception):
        # FastAPI's own words say only that there was an error.
        return problem(
            400,
            "The body cannot be read as JSON: it is not UTF-8, is nested without end, or has a "
            "number of thousands of digits.",
        )
    if error.status_code == 405:
        # A route alone names only its own method, and several share a path.
        path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
        for template, operations in request.app.openapi()["paths"].items():
            if re.fullmatch(re.sub(r"{\w+}", "[^/]+", template), path):
                headers["Allow"] = ", ".join(sorted(map(str.upper, operations)))
                break
    return problem(error.status_code, str(error.detail), headers=headers)


def _no_database(request: Request, error: Exception) -> JSONResponse:
    logger.warning("The database did not answer a request", extra={"error": type(error).__name__})
    if isinstance(error, StatementTimeout):
        return problem(503, str(error), headers={"Retry-After": "5"})
    detail = "The database cannot be reached right now. "
    if isinstance(error, NoConnection) or request.method in ("GET", "HEAD"):
        detail += "Nothing was changed; try again shortly."
    else:
        detail += (
            "Whether the change was made before the connection broke is not known: look before you "
            "ask again. A request with an Idempotency-Key can simply be sent again."
        )
    return problem(503, detail, headers={"Retry-After": "5"})
