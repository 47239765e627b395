"""Packages beside the core, which never imports them: what each adds is declared here by name and
loaded when it is first needed. SQL statements in a package's `sql/` and page templates in its
`templates/` are found by themselves."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Literal, NamedTuple, Protocol

Hook = Literal["task", "chore", "router", "screen", "server"]


class Plugin(NamedTuple):
    """A package and what it adds, each as `.module:attribute` inside of it."""

    package: str
    task: str | None = None
    """A function from the application to a `TaskDefinition`, for `include_builtins`."""
    chore: str | None = None
    """A function from the application to a `Chore` of its workers, or to None."""
    router: str | None = None
    """A FastAPI router of the API."""
    screen: str | None = None
    """A FastAPI router of the dashboard."""
    server: str | None = None
    """A function from a directory to a running `DatabaseServer`, if no database URL is set."""


PLUGINS = (
    Plugin(
        "evenbeat.crawl",
        task=".task:definition",
        chore=".task:chore",
        router=".routes:router",
        screen=".routes:screen",
    ),
    Plugin("evenbeat.embedded", server=":start"),
)


class DatabaseServer(Protocol):
    """A database server that runs until it is stopped."""

    @property
    def url(self) -> str: ...
    def stop(self) -> None: ...


def provided(hook: Hook) -> list[Any]:
    """What the plugins add there, in their order."""
    places = ((plugin.package, getattr(plugin, hook)) for plugin in PLUGINS)
    return [resolve_name(package + place) for package, place in places if place]


def folders(name: str) -> Iterator[Path]:
    """The folders of this name in the packages that have one. No package is imported for it."""
    for plugin in PLUGINS:
        spec = find_spec(plugin.package)
        for place in (spec and spec.submodule_search_locations) or ():
            if (folder := Path(place, name)).is_dir():
                yield folder
