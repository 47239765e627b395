"""The built-in task `http`: call a URL, and judge the run by the status that comes back."""

import asyncio
import importlib
import json
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

from pydantic import AfterValidator, Field, JsonValue

from evenbeat.domain.duration import parse_duration
from evenbeat.domain.job import JobSpec
from evenbeat.errors import Fail, InvalidInput, Retry
from evenbeat.external.addresses import AddressRefused, Policy, Resolver, check_url
from evenbeat.external.output import fitting
from evenbeat.settings import Settings
from evenbeat.tasks.registry import TaskDefinition, define

if TYPE_CHECKING:
    from evenbeat.external.fetching import Answer, Call

NAME = "http"
LONGEST_TIMEOUT = timedelta(hours=1)
LONGEST_RETRY_AFTER = timedelta(hours=1)
MOST_KEPT = 48 * 1024
MOST_REDIRECTS = 10
_ROOM = 56 * 1024  # of a result's 64 KiB, as JSON

_KEPT_HEADERS = (
    "content-type", "content-length", "date", "etag", "last-modified", "location", "retry-after",
    "server", "x-request-id",
)  # fmt: skip
_OWN_HEADERS = frozenset({
    "connection", "content-length", "expect", "host", "keep-alive", "te", "trailer",
    "transfer-encoding", "upgrade",
})  # fmt: skip
_PUBLIC_HEADERS = frozenset({"accept", "accept-language", "content-type", "user-agent"})
"""Headers that other origins may see after a redirect. Any other may be a key to the first one."""
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")
_REFERENCE = re.compile(r"\$\{env:([^}]*)\}")
_RANGE = re.compile(r"([1-5])xx|([1-5][0-9]{2})(?:-([1-5][0-9]{2}))?", re.IGNORECASE)
_TEXT = re.compile(r"text/|application/(.*\+)?(json|xml|yaml|javascript|x-www-form-urlencoded|"
                   r"problem|x-ndjson)", re.IGNORECASE)  # fmt: skip


# -- what the payload may say --------------------------------------------------------------------


def expected_ranges(expected: int | str | list[int | str]) -> list[tuple[int, int]]:
    """Statuses as ranges: 200, "2xx", "200-204" or several of them."""
    given = expected if isinstance(expected, list) else [expected]
    texts = [part for item in given for part in str(item).replace(" ", "").split(",")]
    return [_range(text) for text in texts] or _no_status("")


def _range(text: str) -> tuple[int, int]:
    found = _RANGE.fullmatch(text) or _no_status(text)
    if found[1]:
        return int(found[1]) * 100, int(found[1]) * 100 + 99
    low, high = int(found[2]), int(found[3] or found[2])
    return (low, high) if low <= high else _no_status(text)


def _no_status(text: str) -> NoReturn:
    raise InvalidInput(f"{text[:40]!r} is no status; write 200, \"2xx\", \"200-204\" or a list of "
                       "them.", field="expected_status")  # fmt: skip


def check_headers(headers: dict[str, str]) -> dict[str, str]:
    """The headers, when each can be sent. A value may be a secret, so no message repeats one."""
    if len(headers) > 100:
        raise InvalidInput("There are more than 100 headers.", field="headers")
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise InvalidInput(f"{name[:40]!r} is no name of a header.", field="headers")
        if name.lower() in _OWN_HEADERS or name.lower().startswith("proxy-"):
            raise InvalidInput(f"The header {name} is set by the call itself.", field="headers")
        if len(value) > 8192 or not _HEADER_VALUE.fullmatch(value):
            raise InvalidInput(
                f"The value of the header {name} cannot be sent: it may have up to 8,192 "
                "characters of Latin-1, and no line breaks.",
                field="headers",
            )
    return headers


def _check_expected(expected: Any) -> Any:
    expected_ranges(expected)
    return expected


def _check_timeout(timeout: float | str) -> float | str:
    if not timedelta(0) < parse_duration(timeout, field="timeout") <= LONGEST_TIMEOUT:
        raise InvalidInput("A timeout is more than 0 and at most 1h, such as 30 or \"30s\".",
                           field="timeout")  # fmt: skip
    return timeout


Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
Url = Annotated[str, AfterValidator(check_url)]
Headers = Annotated[dict[str, str], AfterValidator(check_headers)]
Expected = Annotated[int | str | list[int | str], AfterValidator(_check_expected)]
Timeout = Annotated[float | str, AfterValidator(_check_timeout)]
Kept = Annotated[int, Field(ge=0, le=MOST_KEPT)]


# -- the task ------------------------------------------------------------------------------------


def definition(settings: Settings, resolver: Resolver | None = None) -> TaskDefinition:
    """The task, under these settings."""
    policy = Policy.of(settings.allow_private_addresses, settings.allowed_networks)
    variables = frozenset(settings.http_header_variables)

    async def http(
        url: Url,
        *,
        method: Method = "GET",
        headers: Headers = {},  # noqa: B006 - never changed, and a default that can be shown
        body: JsonValue = None,
        expected_status: Expected = "2xx",
        timeout: Timeout = 30.0,
        max_response_bytes: Kept = 16384,
        follow_redirects: bool = True,
    ) -> dict[str, Any]:
        """Call a URL. The run succeeds when the status is an expected one; 5xx, 429 and network
        trouble are tried again, and any other status fails for good."""
        filled, secrets = fill_in(headers, variables, os.environ)
        content, kind = _content(body)
        fetching = await asyncio.to_thread(importlib.import_module, "evenbeat.external.fetching")
        call: Call = fetching.Call(
            url=url,
            method=method,
            headers=_default_headers(kind) | {k.lower(): v for k, v in filled.items()},
            own_origin_only=frozenset(name.lower() for name in headers) - _PUBLIC_HEADERS,
            content=content,
            seconds=parse_duration(timeout).total_seconds(),
            keep=max_response_bytes,
            redirects=MOST_REDIRECTS if follow_redirects else 0,
        )
        try:
            answer: Answer = await fetching.fetch(call, policy, resolver)
        except AddressRefused as error:
            raise Fail(str(error), code="address_refused") from None
        except fetching.TooManyRedirects as error:
            raise Fail(str(error), code="too_many_redirects") from None
        except fetching.FetchTrouble as error:
            raise Retry(str(error), code=error.code) from None
        return judge(answer, expected_ranges(expected_status), secrets, datetime.now(UTC))

    return define(http, JobSpec(task=NAME))


def fill_in(
    headers: Mapping[str, str], allowed: frozenset[str], environment: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """The headers with the variables that they name, and the values that came in that way."""
    secrets: list[str] = []

    def value_of(reference: re.Match[str]) -> str:
        name = reference[1]
        if name not in allowed:
            raise Fail(f"Headers may not use the variable {name[:80]!r}. An operator can allow it: "
                       "EVENBEAT_HTTP_HEADER_VARIABLES in the settings of the workers.",
                       code="variable_refused")  # fmt: skip
        if name not in environment:
            raise Fail(f"The variable {name} is not set for this worker.", code="variable_missing")
        secrets.append(environment[name])
        return environment[name]

    filled = {name: _REFERENCE.sub(value_of, value) for name, value in headers.items()}
    try:
        return check_headers(filled), secrets
    except InvalidInput as error:
        raise Fail(str(error), code="header_refused") from None


def judge(
    answer: "Answer", expected: list[tuple[int, int]], secrets: list[str], now: datetime
) -> dict[str, Any]:
    """The run's result, or the error that it ends with; the answer is kept either way."""
    result = _described(answer, secrets)
    if any(low <= answer.status <= high for low, high in expected):
        return result
    code, told = f"http_{answer.status}", f"The answer was {answer.status} {answer.reason}".strip()
    if answer.status == 429 or answer.status >= 500:
        wait = retry_after(answer.headers, now)
        raise Retry(f"{told}.", after=wait, code=code, result=result)
    raise Fail(f"{told}, which is not an expected status.", code=code, result=result)


def retry_after(headers: Mapping[str, str], now: datetime) -> timedelta | None:
    """How long the server asks to wait: seconds, or a date by its own clock; at most an hour."""
    asked = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]+", asked):
        return timedelta(seconds=min(int(asked[:9]), LONGEST_RETRY_AFTER.total_seconds()))
    until = _http_date(asked)
    if until is None:
        return None
    wait = until - (_http_date(headers.get("date", "")) or now)
    return min(max(wait, timedelta(0)), LONGEST_RETRY_AFTER)


def _http_date(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


# -- bodies --------------------------------------------------------------------------------------


def _content(body: JsonValue) -> tuple[bytes | None, str | None]:
    """What to send, and its media type: a text as it is, anything else as JSON."""
    if body is None:
        return None, None
    if isinstance(body, str):
        return body.encode("utf-8", "replace"), "text/plain; charset=utf-8"
    return json.dumps(body, separators=(",", ":")).encode(), "application/json"


def _default_headers(kind: str | None) -> dict[str, str]:
    headers = {"user-agent": "Evenbeat", "accept-encoding": "identity"}
    return headers if kind is None else headers | {"content-type": kind}


def _described(answer: "Answer", secrets: list[str]) -> dict[str, Any]:
    headers = {n: answer.headers[n][:500] for n in _KEPT_HEADERS if n in answer.headers}
    body, note = _text(answer)
    kept = None if body is None else fitting(_without(body, secrets), _ROOM - 8192)
    shortened = kept is not None and (kept != body or answer.body_bytes > len(answer.body))
    described = {
        "status": answer.status,
        "url": _without(answer.url, secrets),
        "redirects": answer.redirects,
        "headers": {name: _without(value, secrets) for name, value in headers.items()},
        "body": kept,
        "body_bytes": answer.body_bytes,
        "duration_ms": round(answer.seconds * 1000, 1),
    }
    if shortened:
        note = f"the first {len(answer.body):,} bytes"
    return described if note is None else described | {"note": note}


def _text(answer: "Answer") -> tuple[str | None, str | None]:
    """The body as text; None with the reason when it is not one."""
    encoding = answer.headers.get("content-encoding", "identity")
    kind = answer.headers.get("content-type", "text/plain")
    if encoding.lower() != "identity":
        return None, f"the body is not kept: its encoding is {encoding[:40]}"
    if not _TEXT.match(kind):
        return None, f"the body is not kept: {kind[:80]} is not text"
    charset = re.search(r"charset=\"?([\w.:-]+)", kind)
    try:
        return answer.body.decode(charset[1] if charset else "utf-8", "replace"), None
    except LookupError:
        return answer.body.decode("utf-8", "replace"), None


def _without(text: str, secrets: list[str]) -> str:
    """A text in which what servers repeat of our secrets is blotted out."""
    for secret in secrets:
        if len(secret) >= 4:
            text = text.replace(secret, "…")
    return text
