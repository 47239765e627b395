"""An application behind a real server, or inside of another, for tests of the API and of the
dashboard."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from evenbeat import Caller

SECRET = "a secret of the tests that is long enough"  # noqa: S105


@contextmanager
def served(api: ASGIApp, port: int = 0) -> Iterator[str]:
    """The URL at which the application is served, on loopback, until the block ends."""
    listening = socket.create_server(("127.0.0.1", port))
    config = uvicorn.Config(api, log_config=None, lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        listening.close()


# -- a host with a sign-in of its own --------------------------------------------------------------


def hosting(service: ASGIApp) -> Starlette:
    """An application that keeps who is signed in in a signed cookie, with the service at /ops."""

    async def sign_in(request: Request) -> Response:
        request.session["user"] = await request.json()
        return Response(status_code=204)

    async def ask(_request: Request) -> Response:
        return HTMLResponse(
            "<!doctype html><html lang=en><title>Shop</title><p>Sign in to the shop"
        )

    return Starlette(
        routes=[
            Route("/sign-in", sign_in, methods=["POST"]),
            Route("/sign-in", ask),
            Mount("/ops", service),
        ],
        middleware=[Middleware(SessionMiddleware, secret_key=SECRET)],
    )


def signed_in(request: Request) -> Caller | None:
    """Who is signed in there."""
    user = request.session.get("user")
    return None if user is None else Caller(user["name"], user["role"])


def lead_to_sign_in(request: Request) -> Caller | None:
    """The same, and whoever is not and asks for a page is led to the sign-in."""
    if (caller := signed_in(request)) is None and "text/html" in request.headers["accept"]:
        raise HTTPException(303, headers={"Location": f"/sign-in?next={request.url.path}"})
    return caller
