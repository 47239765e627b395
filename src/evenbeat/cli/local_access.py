"""The API inside this process, straight on the database, for commands without a service.

Anyone who can open the database could change anything in it, so no token is needed and the user of
this machine is admin. No port is opened and no worker started.
"""

import asyncio
import getpass

import httpx

from evenbeat.api.app import create
from evenbeat.api.auth.tokens import Access, Principal, Role
from evenbeat.cli.app_loader import database_app


class LocalAccess(Access):
    """Lets the user in. Responses never leave this process, so there is nothing to check; but
    changes are recorded under the user's name."""

    can_issue = False

    def __init__(self) -> None:
        """Needs neither tables nor keys."""

    def authenticate(self, token: str) -> Principal:  # noqa: ARG002 - none is needed
        return Principal(user_name(), Role.ADMIN)


class LocalTransport(httpx.BaseTransport):
    """The API's application, driven by an event loop of our own."""

    def __init__(self, database: str | None) -> None:
        self._app = database_app(database)
        try:
            _ = self._app.store  # migrates, and may fail
        except BaseException:
            self._app.close()
            raise
        api = create(self._app, access=LocalAccess())
        self._transport = httpx.ASGITransport(api, raise_app_exceptions=False)
        self._runner = asyncio.Runner()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        async def respond() -> httpx.Response:
            response = await self._transport.handle_async_request(request)
            content = await response.aread()
            return httpx.Response(response.status_code, headers=response.headers, content=content)

        return self._runner.run(respond())

    def close(self) -> None:
        self._runner.close()
        self._app.close()


def user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "command line"  # a user without a name, as in some containers
