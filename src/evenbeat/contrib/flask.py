"""Flask: an application context around each run, so that `current_app`, `g` and extensions work.

Needs the extra: `pip install 'evenbeat[flask]'`.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

from flask import Flask

from evenbeat.app import Evenbeat
from evenbeat.tasks.context import Context


def use_app_context(app: Evenbeat, flask: Flask | Callable[[], Flask]) -> None:
    """Run each handler in an application context of this Flask application, or of the one that a
    function makes when the first run needs it."""
    making = threading.Lock()
    applications = [flask] if isinstance(flask, Flask) else []
    make = cast("Callable[[], Flask]", flask)

    @app.around
    @contextmanager
    def app_context(_ctx: Context) -> Iterator[None]:
        with making:
            if not applications:
                applications.append(make())
        with applications[0].app_context():
            yield
