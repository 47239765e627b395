"""The HTTP documents that every command speaks, from a service or from the database itself.

With a URL, a service is asked over the network. Without one, the same application answers inside
this process, straight from the database: whoever can open that is admin, so no token is needed. No
port is opened and no worker started. There is one truth about what a request means: the API.
"""

import asyncio
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote, urlsplit

import httpx

from evenbeat import __version__
from evenbeat.errors import EvenbeatError, InvalidInput

if TYPE_CHECKING:
    from evenbeat.app import Evenbeat

URL_VARIABLE = "EVENBEAT_URL"
TOKEN_VARIABLE = "EVENBEAT_TOKEN"  # noqa: S105 - the name of the variable

Document = dict[str, Any]

_SECONDS = 30.0
_SAME_TIME = timedelta(seconds=2)
_INSIDE = "http://127.0.0.1"
_EXIT_CODES = {400: 2, 413: 2, 422: 2, 404: 4, 401: 5, 403: 5, 502: 3, 503: 3, 504: 3}


class ApiError(EvenbeatError):
    """The API said no. `exit_code` is what that means to a script."""

    def __init__(self, message: str, exit_code: int = 1, status: int | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.status = status


class _Transport(Protocol):
    def send(self, request: httpx.Request) -> httpx.Response: ...
    def close(self) -> None: ...


class Client:
    """Asks the API. A refusal is raised as `ApiError`, with the API's own words."""

    def __init__(self, base: str, transport: _Transport, token: str | None = None) -> None:
        self._base = base
        self._transport = transport
        self._headers = {"User-Agent": f"evenbeat/{__version__}", "Accept": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._ahead = timedelta(0)

    def get(self, path: str, **query: Any) -> Document:
        """A document; query values that are None or empty are left out."""
        return self._ask("GET", path, query=query)

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Document:
        """Ask for something to be done."""
        return self._ask("POST", path, body=body)

    def patch(self, path: str, body: Mapping[str, Any]) -> Document:
        """Change something."""
        return self._ask("PATCH", path, body=body)

    def put(self, path: str, body: Mapping[str, Any]) -> Document:
        """Set something."""
        return self._ask("PUT", path, body=body)

    def delete(self, path: str) -> Document:
        """Remove something."""
        return self._ask("DELETE", path)

    def now(self) -> datetime:
        """The present as the service sees it, should its clock and this machine's disagree."""
        return datetime.now(UTC) + self._ahead

    def close(self) -> None:
        """Give connections back."""
        self._transport.close()

    def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Document:
        given = {name: value for name, value in (query or {}).items() if value not in (None, [])}
        request = httpx.Request(
            method,
            self._base + path,
            params=given or None,
            json=body,
            headers=self._headers,
        )
        answer = self._transport.send(request)
        self._ahead = _ahead(answer.headers.get("date"))
        return read_response(answer)


def _ahead(date: str | None) -> timedelta:
    """How far the service's clock is ahead; a difference within the header's second is none."""
    with suppress(ValueError, TypeError):
        ahead = parsedate_to_datetime(date or "") - datetime.now(UTC)
        return ahead if abs(ahead) > _SAME_TIME else timedelta(0)
    return timedelta(0)


def path_segment(text: str) -> str:
    """A name as one part of a path."""
    return quote(text, safe="")


# -- answers -------------------------------------------------------------------------------------


def read_response(answer: httpx.Response) -> Document:
    """The document of an answer; raises ApiError for a problem."""
    content: Any = {}
    if answer.content:
        try:
            content = answer.json()
        except ValueError:
            content = None
    if not isinstance(content, dict):
        raise ApiError(_STRANGER.format(answer=answer.status_code), 3, answer.status_code)
    if answer.status_code >= 300:
        raise _refusal(answer, content)
    return content


_STRANGER = (
    "What answered (with {answer}) is not an Evenbeat service. Check --url: it is the address up "
    "to where /api/v1 begins, such as http://127.0.0.1:8060."
)


def _refusal(answer: httpx.Response, content: Document) -> ApiError:
    status, detail = answer.status_code, content.get("detail")
    if not isinstance(detail, str):
        return ApiError(_STRANGER.format(answer=status), 3, status)
    if status == 401 and "authorization" not in answer.request.headers:
        detail = f"This service needs a token: set {TOKEN_VARIABLE}, or give --token."
    elif status == 404 and detail == "Not Found":
        return ApiError(_STRANGER.format(answer=status), 3, status)
    return ApiError(detail, _EXIT_CODES.get(status, 1), status)


# -- over the network ----------------------------------------------------------------------------


class _Remote:
    def __init__(self, url: str) -> None:
        self._url = url
        # A proxy is for other machines.
        local = (urlsplit(url).hostname or "") in {"localhost", "127.0.0.1", "::1"}
        self._http = httpx.Client(timeout=_SECONDS, trust_env=not local)

    def send(self, request: httpx.Request) -> httpx.Response:
        try:
            return self._http.send(request)
        except httpx.TimeoutException:
            raise ApiError(f"{self._url} did not answer within {_SECONDS:g} s.", 3) from None
        except (httpx.HTTPError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise ApiError(
                f"{self._url} cannot be reached: {reason}. Is it running? "
                "`evenbeat serve` starts it. Without --url, the database is used directly.",
                3,
            ) from None

    def close(self) -> None:
        self._http.close()


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment or not url.isprintable() or " " in url:
        raise InvalidInput(
            "--url must be the address of the service, such as http://127.0.0.1:8060.", field="url"
        )
    return url.rstrip("/")


# -- inside this process -------------------------------------------------------------------------


class _Inside:
    """The API's application, driven by an event loop of our own."""

    def __init__(self, app: "Evenbeat") -> None:
        from evenbeat.api.app import create  # noqa: PLC0415 - a remote client needs none of it
        from evenbeat.cli.local_access import LocalAccess  # noqa: PLC0415

        self._app = app
        self._runner = asyncio.Runner()
        self._transport = httpx.ASGITransport(
            create(app, access=LocalAccess()), raise_app_exceptions=False
        )

    def send(self, request: httpx.Request) -> httpx.Response:
        return self._runner.run(self._send(request))

    async def _send(self, request: httpx.Request) -> httpx.Response:
        answer = await self._transport.handle_async_request(request)
        answer.request = request
        await answer.aread()
        return answer

    def close(self) -> None:
        self._runner.close()
        self._app.close()


def _open_database(database: str | None) -> "Evenbeat":
    """The application on the database that is meant, known to be reachable and migrated."""
    from evenbeat.app import Evenbeat  # noqa: PLC0415 - a remote client needs none of it
    from evenbeat.cli.worker import check_database, configured  # noqa: PLC0415

    app = configured(Evenbeat(), None, database)
    check_database(app.settings)
    try:
        _ = app.store
    except BaseException:
        app.close()
        raise
    return app


# -- choosing ------------------------------------------------------------------------------------


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
    if url is not None:
        base = _checked_url(url)
        client = Client(base, _Remote(base), token or os.environ.get(TOKEN_VARIABLE) or None)
        quiet = logging.NOTSET
    else:
        client = Client(_INSIDE, _Inside(_open_database(database)), "of whoever is here")
        quiet = logging.ERROR
    logger = logging.getLogger("evenbeat")
    level = logger.level
    logger.setLevel(quiet or level)  # what the service would log, the command says
    try:
        yield client
    finally:
        logger.setLevel(level)
        client.close()
