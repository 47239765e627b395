"""An application behind a real server, for tests of the API and of the dashboard."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

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
