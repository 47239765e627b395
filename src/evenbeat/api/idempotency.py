"""`Idempotency-Key`: a request that creates something can be sent again without doing it twice."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, NamedTuple

from fastapi import Header, Response
from pydantic import AfterValidator, BaseModel

from evenbeat.api.auth.tokens import Principal
from evenbeat.api.dependencies import Service
from evenbeat.domain.job import NewJob
from evenbeat.domain.schedule import Interval
from evenbeat.errors import InvalidInput
from evenbeat.store.database import Connection

REPLAYED = "Idempotency-Replayed"


def _printable(key: str) -> str:
    if not key.isascii() or not key.isprintable() or not key.strip():
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
    AfterValidator(lambda key: None if key is None else _printable(key)),
]


class Answer(NamedTuple):
    """What to answer: a status, a JSON text, and headers."""

    status: int
    text: str
    headers: Mapping[str, str]

    def response(self) -> Response:
        """The same as a response."""
        return Response(
            self.text, self.status, headers=dict(self.headers), media_type="application/json"
        )


def done_once(
    service: Service,
    principal: Principal,
    request: BaseModel,
    jobs: Iterable[NewJob],
    work: Callable[[Connection], Answer],
    *,
    key: str | None,
) -> Answer:
    """Add the jobs by `work`, in a transaction, so that the answer shows them as they were added
    even when a worker is quick. With a key that has been used, give the kept answer."""
    database = service.app.store.database
    if any(isinstance(job.spec.schedule, Interval) for job in jobs):
        # Placing them reads the load, which takes connections. Whoever did that while holding one
        # would, with enough company, wait for a connection that nobody gives back.
        service.app.balancer.refresh(service.now)
    if key is None:
        return database.atomically(work)
    fingerprint = _fingerprint(request)
    keys, subject = service.app.store.idempotency, principal.subject

    def work_once(connection: Connection) -> Answer:
        kept = keys.reserve(subject, key, fingerprint, connection, now=service.now)
        if kept is None:
            answer = work(connection)
            keys.keep(subject, key, answer.status, answer.text, connection)
            return answer
        if kept.fingerprint != fingerprint:
            raise InvalidInput(
                "This Idempotency-Key was used for another request in the last 24 hours. Use a "
                "new key for a new request.",
                field="Idempotency-Key",
            )
        return Answer(200, kept.answer, {REPLAYED: "true"})

    return database.atomically(work_once)


def _fingerprint(request: BaseModel) -> bytes:
    text = f"{type(request).__name__}:{request.model_dump_json(exclude_unset=True)}"
    return hashlib.sha256(text.encode()).digest()


def json_answer(
    document: BaseModel, status: int = 200, headers: Mapping[str, Any] | None = None
) -> Answer:
    """The answer that a document makes; written once, not checked again by the framework."""
    return Answer(status, document.model_dump_json(), headers or {})
