"""The built-in task `http`: call a URL, and judge the run by its status."""

import asyncio
import importlib
import json
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, JsonValue

from evenbeat.domain.duration import parse_duration
from evenbeat.domain.job import JobSpec
from evenbeat.errors import Fail, InvalidInput, Retry
from evenbeat.external import fitting
from evenbeat.external.addresses import AddressRefused, Policy, check_url
from evenbeat.settings import Settings
from evenbeat.tasks.registry import TaskDefinition, define

if TYPE_CHECKING:
    from evenbeat.external.fetching import Call, FetchedResponse

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


# -- the payload ---------------------------------------------------------------------------------


def expected_ranges(expected: int | str | list[int | str]) -> list[tuple[int, int]]:
    """Statuses as ranges: 200, "2xx", "200-204" or several of them."""
    items = expected if isinstance(expected, list) else [expected]
    ranges: list[tuple[int, int]] = []
    for text in ",".join(map(str, items)).replace(" ", "").split(","):
        first, last = 1, 0
        if match := _RANGE.fullmatch(text):
            first = int(match[2] or f"{match[1]}00")
            last = int(match[3] or match[2] or f"{match[1]}99")
        if first > last:
            raise InvalidInput(
                f'{text[:40]!r} is no status; write 200, "2xx", "200-204" or a list of them.',
                field="expected_status",
            )
        ranges.append((first, last))
    return ranges


def check_headers(headers: dict[str, str]) -> dict[str, str]:
    """The headers, when each can be sent. A value may be a secret, so no message repeats one."""
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
Headers = Annotated[dict[str, str], Field(max_length=100), AfterValidator(check_headers)]
Expected = Annotated[int | str | list[int | str], AfterValidator(_check_expected)]
Timeout = Annotated[float | str, AfterValidator(_check_timeout)]
KeptBytes = Annotated[int, Field(ge=0, le=MOST_KEPT)]


# -- the task ------------------------------------------------------------------------------------


def definition(settings: Settings) -> TaskDefinition:
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
        max_response_bytes: KeptBytes = 16384,
        follow_redirects: bool = True,
    ) -> dict[str, Any]:
        """Call a URL. The run succeeds when the status is an expected one; 5xx, 429 and network
        trouble are tried again, and any other status fails for good."""
        filled, secrets = fill_in(headers, variables, os.environ)
        default_headers = {"user-agent": "Evenbeat", "accept-encoding": "identity"}
        content: bytes | None = None
        if isinstance(body, str):
            content = body.encode("utf-8", "replace")
            default_headers["content-type"] = "text/plain; charset=utf-8"
        elif body is not None:
            content = json.dumps(body, separators=(",", ":")).encode()
            default_headers["content-type"] = "application/json"
        fetching = await asyncio.to_thread(importlib.import_module, "evenbeat.external.fetching")
        call: Call = fetching.Call(
            url=url,
            method=method,
            headers=default_headers | {k.lower(): v for k, v in filled.items()},
            own_origin_only=frozenset(name.lower() for name in headers) - _PUBLIC_HEADERS,
            content=content,
            seconds=parse_duration(timeout).total_seconds(),
            keep=max_response_bytes,
            redirects=MOST_REDIRECTS if follow_redirects else 0,
        )
        try:
            response: FetchedResponse = await fetching.fetch(call, policy)
        except (AddressRefused, fetching.TooManyRedirects) as error:
            raise Fail(str(error), code=error.code) from None
        except fetching.FetchTrouble as error:
            raise Retry(str(error), code=error.code) from None
        return _result(response, expected_ranges(expected_status), secrets)

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


def retry_after(headers: Mapping[str, str], now: datetime) -> timedelta | None:
    """How long the server asks to wait: seconds, or a date by its own clock; at most an hour."""
    value = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]+", value):
        return timedelta(seconds=min(int(value[:9]), LONGEST_RETRY_AFTER.total_seconds()))
    until = _http_date(value)
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


def _result(
    response: "FetchedResponse", expected: list[tuple[int, int]], secrets: list[str]
) -> dict[str, Any]:
    """The run's result, or the error that it ends with. The response is kept either way, without
    our secrets that servers repeat."""

    def without_secrets(text: str) -> str:
        for secret in secrets:
            if len(secret) >= 4:
                text = text.replace(secret, "…")
        return text

    headers = {n: response.headers[n][:500] for n in _KEPT_HEADERS if n in response.headers}
    encoding = response.headers.get("content-encoding", "identity")
    media_type = response.headers.get("content-type", "text/plain")
    body: str | None = None
    note: str | None = None
    if encoding.lower() != "identity":
        note = f"the body is not kept: its encoding is {encoding[:40]}"
    elif not _TEXT.match(media_type):
        note = f"the body is not kept: {media_type[:80]} is not text"
    else:
        charset = re.search(r"charset=\"?([\w.:-]+)", media_type)
        try:
            text = response.body.decode(charset[1] if charset else "utf-8", "replace")
        except LookupError:
            text = response.body.decode("utf-8", "replace")
        body = fitting(without_secrets(text), _ROOM - 8192)
        if body != text or response.body_bytes > len(response.body):
            note = f"the first {len(response.body):,} bytes"
    result: dict[str, Any] = {
        "status": response.status,
        "url": without_secrets(response.url),
        "redirects": response.redirects,
        "headers": {name: without_secrets(value) for name, value in headers.items()},
        "body": body,
        "body_bytes": response.body_bytes,
        "duration_ms": round(response.seconds * 1000, 1),
    }
    if note is not None:
        result["note"] = note
    if any(low <= response.status <= high for low, high in expected):
        return result
    code = f"http_{response.status}"
    message = f"The answer was {response.status} {response.reason}".strip()
    if response.status == 429 or response.status >= 500:
        wait = retry_after(response.headers, datetime.now(UTC))
        raise Retry(f"{message}.", after=wait, code=code, result=result)
    raise Fail(f"{message}, which is not an expected status.", code=code, result=result)
