"""Finding the application that `--app` names."""

import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from evenbeat.app import Evenbeat
from evenbeat.errors import InvalidInput

EXAMPLE = "shop.tasks:app, or path/to/tasks.py:app"


class BrokenApp(InvalidInput):
    """The user's module was found but raised; `trace` shows where, from its first line on."""

    def __init__(self, module: str, error: BaseException) -> None:
        super().__init__(f"{module} cannot be imported, see above.", field="app")
        self.trace = _user_trace(error)


def load_app(target: str) -> Evenbeat:
    """The application named as `module:attribute` or `path/to/file.py:attribute`."""
    where, colon, attribute = target.rpartition(":")
    if not colon or not where or not attribute:
        raise _wrong(
            f"--app {target}: name the module and, after a colon, the application in it, "
            f"such as {EXAMPLE}."
        )
    module = load_module(where)
    app = _attribute(module, attribute, target)
    if not len(app.registry):
        raise _wrong(
            f"{target} has no tasks, so there is nothing to run. Declare one with @{attribute}"
            ".task, or import the modules that do."
        )
    return app


def load_module(where: str) -> ModuleType:
    """The user's module, named with dots or as a file, looked for in this directory first."""
    make_importable(Path.cwd())
    return _import_file(Path(where)) if _is_path(where) else _import_module(where)


# -- modules -------------------------------------------------------------------------------------


def _import_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if _is_or_holds(error.name, name):
            raise _wrong(
                f"There is no module {error.name!r}, looked for in {Path.cwd()} and in the "
                f"installed packages. Is this the right directory? --app takes {EXAMPLE}."
            ) from None
        raise BrokenApp(name, error) from error
    except (Exception, SystemExit) as error:
        raise BrokenApp(name, error) from error


def _is_or_holds(missing: str | None, wanted: str) -> bool:
    """Whether what is missing is the module itself or a package around it, not one it imports."""
    return missing is not None and (wanted == missing or wanted.startswith(f"{missing}."))


def _import_file(path: Path) -> ModuleType:
    """A file is imported under its dotted name, so that processes for isolated tasks find it."""
    path = path.expanduser().absolute()
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
    """Let modules of the directory be found."""
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))


def _is_path(where: str) -> bool:
    return where.endswith(".py") or "/" in where


# -- attributes ----------------------------------------------------------------------------------


def _attribute(module: ModuleType, attribute: str, target: str) -> Evenbeat:
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise _wrong(f"There is no {attribute!r} in {module.__name__}. {_suggestion(module)}")
        found = getattr(found, part)
    if not isinstance(found, Evenbeat):
        kind = type(found).__name__
        raise _wrong(f"{target} is not an Evenbeat but a {kind}. {_suggestion(module)}")
    return found


def _suggestion(module: ModuleType) -> str:
    apps = [name for name, value in vars(module).items() if isinstance(value, Evenbeat)]
    if apps:
        return f"Did you mean {' or '.join(apps)}?"
    return "Make one there: app = Evenbeat()."


# --------------------------------------------------------------------------------------------------


def _wrong(message: str) -> InvalidInput:
    return InvalidInput(message, field="app")


def _user_trace(error: BaseException) -> str:
    """The traceback without the frames between this file and the user's module."""
    trace = error.__traceback__
    while trace is not None and _is_machinery(trace):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace)).rstrip()


def _is_machinery(trace: TracebackType) -> bool:
    file = trace.tb_frame.f_code.co_filename
    return file in {__file__, importlib.__file__} or file.startswith("<frozen importlib")
