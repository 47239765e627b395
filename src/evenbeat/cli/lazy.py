"""Commands that are loaded when they are run, so that `--help` and completion stay quick."""

from collections.abc import Iterable
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

CONTEXT = {"help_option_names": ["-h", "--help"]}


class Command(NamedTuple):
    """Where a command is, and what the list of commands says of it."""

    name: str
    place: str  # module:attribute, a function or a Typer
    help: str
    panel: str


class _Unloaded(TyperCommand):
    """Stands in the list of commands for one that nobody has asked for yet."""

    def __init__(self, command: Command, commands: "LazyGroup") -> None:
        super().__init__(
            command.name,
            help=command.help,
            rich_help_panel=command.panel,
            rich_markup_mode=commands.rich_markup_mode,
        )
        self._place = command.place

    def load(self) -> Any:
        module, _, attribute = self._place.partition(":")
        found = getattr(import_module(module), attribute)
        loaded = get_group(found) if isinstance(found, typer.Typer) else get_command(_alone(found))
        loaded.name = self.name
        loaded.context_settings = {**CONTEXT, **loaded.context_settings}
        return loaded


def _alone(function: Any) -> typer.Typer:
    app = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    app.command()(function)
    return app


class LazyGroup(TyperGroup):
    """A group of commands that are named in `table`."""

    table: Iterable[Command] = ()

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for command in self.table:
            self.add_command(_Unloaded(command, self))

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the order of the table
        return list(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Only here is a command really needed."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, _Unloaded) else command, rest
