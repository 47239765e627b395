"""The client of the HTTP API that every command uses, for a service or for the database itself.

With a URL, requests go to a service over the network. Without one, the same application handles
them inside this process, straight from the database (`local_access`). Either way, the API alone
decides what a request means.
"""

import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from evenbeat import __version__
from evenbeat.errors import EvenbeatError, InvalidInput
from evenbeat.external.addresses import http_url

URL_VARIABLE = "EVENBEAT_URL"
TOKEN_VARIABLE = "EVENBEAT_TOKEN"  # noqa: S105 - the name of the variable

Document = dict[str, Any]

_TIMEOUT = 30.0
_LONGEST_TOKEN = 8000  # many proxies read no longer headers
_CLOCK_TOLERANCE = timedelta(seconds=2)
_EXIT_CODES = {400: 2, 413: 2, 422: 2, 404: 4, 401: 5, 403: 5, 502: 3, 503: 3, 504: 3}


class ApiError(EvenbeatError):
    """The API said no. `exit_code` is what that means to a script."""

    def __init__(self, message: str, exit_code: int = 1, status: int | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.status = status


class Client:
    """Sends requests. A refusal is raised as `ApiError`, with the API's own words."""

    def __init__(
        self, base: str, token: str | None = None, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._base = base
        headers = {"User-Agent": f"evenbeat/{__version__}", "Accept": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        # A proxy is for other machines.
        is_local = (urlsplit(base).hostname or "") in {"localhost", "127.0.0.1", "::1"}
        self._http = httpx.Client(
            headers=headers, timeout=_TIMEOUT, trust_env=not is_local, transport=transport
        )
        self.close = self._http.close
        self._clock_offset = timedelta(0)

    def get(self, path: str, **query: Any) -> Document:
        """A document; query values that are None or empty are left out."""
        return self._request("GET", path, params=stated(query) or None)

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Document:
        return self._request("POST", path, json=body)

    def patch(self, path: str, body: Mapping[str, Any]) -> Document:
        return self._request("PATCH", path, json=body)

    def put(self, path: str, body: Mapping[str, Any]) -> Document:
        return self._request("PUT", path, json=body)

    def delete(self, path: str) -> Document:
        return self._request("DELETE", path)

    def now(self) -> datetime:
        """The present as the service sees it, should its clock and this machine's disagree."""
        return datetime.now(UTC) + self._clock_offset

    def _request(self, method: str, path: str, **content: Any) -> Document:
        try:
            response = self._http.request(method, self._base + path, **content)
        except httpx.TimeoutException:
            raise ApiError(f"{self._base} did not answer within {_TIMEOUT:g} s.", 3) from None
        except (httpx.HTTPError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise ApiError(
                f"{self._base} cannot be reached: {reason}. Is it running? "
                "`evenbeat serve` starts it. Without --url, the database is used directly.",
                3,
            ) from None
        self._clock_offset = timedelta(0)
        with suppress(ValueError, TypeError):
            offset = parsedate_to_datetime(response.headers.get("date", "")) - datetime.now(UTC)
            # The header has whole seconds, so a small difference is none.
            self._clock_offset = offset if abs(offset) > _CLOCK_TOLERANCE else timedelta(0)
        return read_response(response)


def stated(fields: Mapping[str, Any]) -> Document:
    """The fields that have a value, such as the options that were given."""
    return {name: value for name, value in fields.items() if value not in (None, [])}


def path_segment(text: str) -> str:
    """A name as one part of a path."""
    return quote(text, safe="")


def read_response(response: httpx.Response) -> Document:
    """The document of a response; raises ApiError for a problem."""
    status = response.status_code
    stranger = ApiError(
        f"What answered (with {status}) is not an Evenbeat service. Check --url: it is the address "
        "up to where /api/v1 begins, such as http://127.0.0.1:8060.",
        3,
        status,
    )
    content: Any = {}
    if response.content:
        try:
            content = response.json()
        except ValueError:
            raise stranger from None
    if not isinstance(content, dict):
        raise stranger
    if status < 300:
        return content
    detail = content.get("detail")
    if not isinstance(detail, str) or (status == 404 and detail == "Not Found"):
        raise stranger
    if status == 401 and "authorization" not in response.request.headers:
        detail = f"This service needs a token: set {TOKEN_VARIABLE}, or give --token."
    raise ApiError(detail, _EXIT_CODES.get(status, 1), status)


def checked_url(url: str) -> str:
    """The address of a service without a slash at its end; raises InvalidInput for others."""
    parts = http_url(url)
    if parts is None or parts.query or parts.fragment:
        raise InvalidInput(
            "--url must be the address of the service, such as http://127.0.0.1:8060.", field="url"
        )
    return url.rstrip("/")


def checked_token(token: str) -> str | None:
    """The token without spaces around it, None for none; InvalidInput for what no header holds."""
    token = token.strip()
    if len(token) > _LONGEST_TOKEN or not re.fullmatch("[!-~]*", token):
        raise InvalidInput(
            f"The token cannot be one: it must be at most {_LONGEST_TOKEN:,} letters, digits and "
            "signs of ASCII, on one line. Give it as `evenbeat token create` printed it.",
            field="token",
        )
    return token or None


def service_url(url: str | None, database: str | None) -> str | None:
    """The service to ask; None for the database itself."""
    if url is not None and database is not None:
        raise InvalidInput("--url asks a service, --database a database. Give one.", field="url")
    if url is None and database is None:
        return os.environ.get(URL_VARIABLE) or None
    return url


@contextmanager
def connected(url: str | None, token: str | None, database: str | None) -> Iterator[Client]:
    """A client for what the options, the environment and the settings say, in this order."""
    url = service_url(url, database)
    logger = logging.getLogger("evenbeat")
    level = logger.level
    if url is not None:
        base = checked_url(url)
        client = Client(base, checked_token(token or os.environ.get(TOKEN_VARIABLE) or ""))
    else:
        from evenbeat.cli.local_access import LocalTransport  # noqa: PLC0415 - it loads the API

        client = Client("http://127.0.0.1", "not needed", LocalTransport(database))
        logger.setLevel(logging.ERROR)  # what a service would log, the command says itself
    try:
        yield client
    finally:
        logger.setLevel(level)
        client.close()
