"""The application that a command works with: found by `--app`, configured, its database checked."""

import importlib
import logging
import re
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from evenbeat.app import Evenbeat
from evenbeat.errors import DatabaseUnavailable, InvalidInput
from evenbeat.settings import Settings
from evenbeat.store.database import Database
from evenbeat.store.explained import place_of

logger = logging.getLogger("evenbeat.worker")
T = TypeVar("T")

_WRONG_URL = re.compile(r"authentication failed|does not exist|pg_hba")
EXAMPLE = "shop.tasks:app, or path/to/tasks.py:app"


class BrokenApp(InvalidInput):
    """The user's module was found but raised; `trace` shows where, from its first line on."""

    def __init__(self, module: str, error: BaseException) -> None:
        super().__init__(f"{module} cannot be imported, see above.", field="app")
        trace = error.__traceback__
        while trace is not None and (
            (file := trace.tb_frame.f_code.co_filename) in {__file__, importlib.__file__}
            or file.startswith("<frozen importlib")
        ):
            trace = trace.tb_next  # between this file and the user's module
        self.trace = "".join(traceback.format_exception(type(error), error, trace)).rstrip()


def load_app(target: str) -> Evenbeat:
    """The application named as `module:attribute` or `path/to/file.py:attribute`."""
    where, colon, attribute = target.rpartition(":")
    if not colon or not where or not attribute:
        raise _wrong(
            f"--app {target}: name the module and, after a colon, the application in it, "
            f"such as {EXAMPLE}."
        )
    module = load_module(where)
    names = [name for name, value in vars(module).items() if isinstance(value, Evenbeat)]
    hint = f"Did you mean {' or '.join(names)}?" if names else "Make one there: app = Evenbeat()."
    app: Any = module
    for part in attribute.split("."):
        if not hasattr(app, part):
            raise _wrong(f"There is no {attribute!r} in {module.__name__}. {hint}")
        app = getattr(app, part)
    if not isinstance(app, Evenbeat):
        raise _wrong(f"{target} is not an Evenbeat but a {type(app).__name__}. {hint}")
    if not app.registry.named():
        raise _wrong(
            f"{target} has no tasks, so there is nothing to run. Declare one with @{attribute}"
            ".task, or import the modules that do."
        )
    return app


def load_module(where: str) -> ModuleType:
    """The user's module, named with dots or as a file, looked for in this directory first.

    A file is imported under its dotted name, so that processes for isolated tasks find it.
    """
    make_importable(Path.cwd())
    if not where.endswith(".py") and "/" not in where:
        return _import_module(where)
    path = Path(where).expanduser().absolute()
    if not path.is_file():
        raise _wrong(f"There is no file {path}. --app takes {EXAMPLE}.")
    name, root = path.stem, path.parent
    while (root / "__init__.py").is_file():
        name, root = f"{root.name}.{name}", root.parent
    make_importable(root)
    module = _import_module(name)
    if Path(module.__file__ or "").resolve() != path.resolve():
        raise _wrong(
            f"{path} cannot be imported: another module is named {name!r} ({module.__file__}). "
            "Rename the file."
        )
    return module


def make_importable(directory: Path) -> None:
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))


def _import_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{name}.".startswith(f"{missing}."):
            # The module itself or a package around it, not one that it imports.
            raise _wrong(
                f"There is no module {missing!r}, looked for in {Path.cwd()} and in the "
                f"installed packages. Is this the right directory? --app takes {EXAMPLE}."
            ) from None
        raise BrokenApp(name, error) from error


def _wrong(message: str) -> InvalidInput:
    return InvalidInput(message, field="app")


def configured(app: Evenbeat, *, database: str | None, concurrency: int | None = None) -> Evenbeat:
    """The application with what options say before all other settings."""
    if database is not None and not database.strip():
        raise InvalidInput("--database is empty. Leave it out, or give a URL.", field="database")
    options = {"concurrency": concurrency, "database_url": database}
    if changes := {name: value for name, value in options.items() if value is not None}:
        app.configure(**changes)
    return app


def served_app(
    target: str | None, *, database: str | None, concurrency: int | None = None
) -> Evenbeat:
    """The application that `--app` names, or an empty one, configured; with the built-in tasks
    beside its own, unless the settings say no."""
    app = Evenbeat() if target is None else load_app(target)
    configured(app, database=database, concurrency=concurrency)
    if app.settings.builtin_tasks:
        app.include_builtins()
    return app


def database_app(database: str | None) -> Evenbeat:
    """An application without tasks, for commands that work on the database themselves."""
    app = configured(Evenbeat(), database=database)
    check_database(app.settings)
    return app


def check_database(settings: Settings) -> None:
    """Fail now, with the reason; the pools would try for half a minute first."""
    if settings.database_url is not None:
        database = Database(settings.database_url.get_secret_value(), schema=settings.db_schema)
        database.connect().close()


def patiently(settings: Settings, step: Callable[[], T]) -> T:
    """Do a step of starting up, again while the database is away for a moment, as in a restart. A
    wrong password or name does not mend itself."""
    deadline, level = time.monotonic() + settings.database_timeout_seconds, logging.WARNING
    while True:
        try:
            return step()
        except DatabaseUnavailable as error:
            if time.monotonic() > deadline or _WRONG_URL.search(str(error)):
                raise
            logger.log(level, "%s Waiting for it.", error)
            level = logging.DEBUG  # once is enough
            time.sleep(0.5)


def database_place(settings: Settings) -> str:
    """Where the database is, without credentials."""
    if settings.database_url is not None:
        return place_of(settings.database_url.get_secret_value())
    path, home = settings.server_dir, Path.home()
    shown = f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
    return f"embedded:{shown}"
