"""`Idempotency-Key`: a request that creates something can be sent again without doing it twice."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

from fastapi import Header, Response
from pydantic import AfterValidator, BaseModel
from pydantic_core import to_json

from evenbeat.api.auth.tokens import Principal
from evenbeat.api.dependencies import Service
from evenbeat.domain.job import NewJob
from evenbeat.domain.schedule import Interval
from evenbeat.errors import InvalidInput
from evenbeat.store.database import Connection

REPLAYED = "Idempotency-Replayed"
REPLAYED_HEADER = {
    REPLAYED: {
        "description": "true where the Idempotency-Key was used before.",
        "schema": {"type": "string", "enum": ["true"]},
    }
}
"""For the OpenAPI document."""


def _printable(key: str | None) -> str | None:
    if key is not None and not (key.isascii() and key.isprintable() and key.strip()):
        raise ValueError("it must be 1 to 255 printable ASCII characters")
    return key


KeyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="Any text of your own, used once: the same request with the same key is "
        "answered as the first time, for a day, and changes nothing.",
    ),
    AfterValidator(_printable),
]


def json_response(
    document: BaseModel | str, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """The document as a response; written once, not validated again by the framework."""
    text = document if isinstance(document, str) else document.model_dump_json()
    return Response(text, status, headers, "application/json")


def done_once(
    service: Service,
    principal: Principal,
    asked: Any,
    jobs: Iterable[NewJob],
    work: Callable[[Connection], Response],
    *,
    key: str | None,
) -> Response:
    """Add the jobs by `work`, in one transaction, so that the response shows them as they were
    added even when a worker is quick. For a key that was used before, return its response, if the
    same was `asked` for."""
    database = service.store.database
    if any(isinstance(job.spec.schedule, Interval) for job in jobs):
        # Placing them reads the load, which takes connections. Doing that while holding one could
        # deadlock: enough such requests would all wait for a connection that nobody gives back.
        service.app.balancer.refresh(service.now)
    if key is None:
        return database.atomically(work)
    fingerprint = hashlib.sha256(to_json(asked)).digest()
    keys, subject = service.store.idempotency, principal.subject

    def work_once(connection: Connection) -> Response:
        stored = keys.reserve(subject, key, fingerprint, connection, now=service.now)
        if stored is None:
            response = work(connection)
            body = bytes(response.body).decode()
            keys.keep(subject, key, response.status_code, body, connection)
            return response
        stored_fingerprint, answer = stored
        if stored_fingerprint != fingerprint:
            raise InvalidInput(
                "This Idempotency-Key was used for another request in the last 24 hours. Use a "
                "new key for a new request.",
                field="Idempotency-Key",
            )
        return json_response(answer, 200, {REPLAYED: "true"})

    return database.atomically(work_once)
