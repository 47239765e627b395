"""The command line. A command is loaded when it is run, so that `--help` and completion are quick.

Exit codes:

    0    done
    1    refused, or failed: the job's state forbids it, the watched job failed, doctor found errors
    2    wrong input: an option, a field, a file
    3    no usable database or service
    4    no such job, execution, worker
    5    not allowed: no token, or one with too little role
    130  Ctrl-C; 128 + n when a second signal n ended a command that was already stopping
"""

import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any, NamedTuple, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from evenbeat import __version__
from evenbeat.errors import AccessDenied, EvenbeatError, InvalidInput, NotFound, StoreError

_EXIT_CODES = {InvalidInput: 2, StoreError: 3, NotFound: 4, AccessDenied: 5}

EPILOG = (
    "**Exit codes:** 0 done, 1 refused or failed, 2 wrong input, 3 no usable database or service, "
    "4 not found, 5 not allowed, 130 Ctrl-C."
)

_CONTEXT = {"help_option_names": ["-h", "--help"]}


class Command(NamedTuple):
    """Where a command is, and what the list of commands says about it."""

    name: str
    module: str
    attribute: str  # a function or a Typer
    help: str
    panel: str


_RUN, _JOBS, _OPERATE = "Run", "Jobs", "Operate"
COMMANDS = tuple(
    Command(name, module if "." in module else f"evenbeat.cli.{module}", attribute, help_, panel)
    for name, module, attribute, help_, panel in (
        ("serve", "serve", "serve", "Serve API and dashboard, and run jobs.", _RUN),
        ("worker", "worker", "worker_cli", "Run jobs; list and drain workers.", _RUN),
        ("job", "job", "job_cli", "Add, list, show, control and watch jobs.", _JOBS),
        ("execution", "job", "execution_cli", "The history of jobs.", _JOBS),
        ("batch", "batch", "batch_cli", "Jobs that were added as one.", _JOBS),
        ("template", "template", "template_cli", "Job definitions with parameters.", _JOBS),
        ("schedule", "queues", "schedule_cli", "Preview a schedule.", _JOBS),
        ("task", "queues", "task_cli", "The tasks that workers have.", _JOBS),
        ("queue", "queues", "queue_cli", "List, pause and resume queues.", _JOBS),
        ("limit", "queues", "limit_cli", "Limits shared by jobs with the same key.", _JOBS),
        ("documents", "evenbeat.crawl.commands", "documents_cli", "Search crawled pages.", _JOBS),
        ("import", "import_export", "import_cli", "Import jobs from cron and others.", _JOBS),
        ("export", "import_export", "export", "Export job definitions.", _JOBS),
        ("pause", "queues", "pause_command", "Start nothing more, on any worker.", _OPERATE),
        ("resume", "queues", "resume_command", "Start jobs again after a pause.", _OPERATE),
        ("stats", "stats", "stats", "The scheduler in figures.", _OPERATE),
        ("top", "stats", "top", "A live view of what is running.", _OPERATE),
        ("distribution", "stats", "distribution", "How even the load is.", _OPERATE),
        ("rebalance", "stats", "rebalance", "Move jobs off the peak, or back.", _OPERATE),
        ("simulate", "simulate", "simulate", "What balancing would gain.", _OPERATE),
        ("webhook", "webhook", "webhook_cli", "Notify other systems when jobs end.", _OPERATE),
        ("token", "token", "token_cli", "Tokens and login links.", _OPERATE),
        ("audit", "audit", "audit_command", "Who changed what.", _OPERATE),
        ("migrate", "database", "migrate", "Bring the database up to date.", _OPERATE),
        ("doctor", "database", "doctor", "Check the database and the workers.", _OPERATE),
    )
)


class _LazyCommand(TyperCommand):
    """Stands in for a command in the list, until it is run."""

    def __init__(self, command: Command, group: "LazyGroup") -> None:
        super().__init__(
            command.name,
            help=command.help,
            rich_help_panel=command.panel,
            rich_markup_mode=group.rich_markup_mode,
        )
        self._command = command

    def load(self) -> Any:
        target = getattr(import_module(self._command.module), self._command.attribute)
        if isinstance(target, typer.Typer):
            loaded: Any = get_group(target)
            loaded.help = loaded.help or self.help
        else:
            app = typer.Typer(add_completion=False, rich_markup_mode="markdown")
            app.command()(target)
            loaded = get_command(app)
        loaded.name = self.name
        loaded.context_settings = {**_CONTEXT, **loaded.context_settings}
        return loaded


class LazyGroup(TyperGroup):
    """All of Evenbeat's commands, in the order of the table."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for command in COMMANDS:
            self.add_command(_LazyCommand(command, self))

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the base class sorts
        return list(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The first moment that the command itself is needed."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, _LazyCommand) else command, rest


cli = typer.Typer(
    cls=LazyGroup,
    help="Evenbeat: a durable, self-balancing job scheduler on PostgreSQL.",
    epilog=EPILOG,
    context_settings=_CONTEXT,
    rich_markup_mode="markdown",
)


@cli.callback(invoke_without_command=True)
def _evenbeat(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        typer.echo(f"evenbeat {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit. Mistakes get one line each, never a bare traceback."""
    try:
        sys.exit(cli(arguments, prog_name="evenbeat", standalone_mode=False))
    except typer.TyperException as error:
        message = error.format_message().replace(": Value error, ", ": ")
        if not message:
            sys.exit(0)  # a group without a command has shown its help, as `evenbeat` alone does
        end = "" if message.endswith((".", "?")) else "."
        _fail(f"{message}{end} See evenbeat --help.", 2)
    except EvenbeatError as error:
        if trace := getattr(error, "trace", None):
            _say(trace)
        _fail(str(error), exit_code(error))
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except BrokenPipeError:
        sys.stdout = None  # its reader is gone (`evenbeat job list | head`), so nobody is to know
        sys.exit(0)
    except Exception as error:
        import psycopg  # noqa: PLC0415 - loaded already if the error is one of its

        if isinstance(error, psycopg.Error):
            _fail(f"The database refused: {error}", 3)
        _say(traceback.format_exc())
        _fail("This is a bug in Evenbeat; please report it with the lines above.", 1)


def exit_code(error: EvenbeatError) -> int:
    """What an error means to a script."""
    by_kind = (code for kind, code in _EXIT_CODES.items() if isinstance(error, kind))
    return getattr(error, "exit_code", None) or next(by_kind, 1)


def _fail(message: str, code: int) -> NoReturn:
    _say(f"evenbeat: {' '.join(message.split())}")
    sys.exit(code)


def _say(text: str) -> None:
    from evenbeat.cli.output import safe  # noqa: PLC0415 - both take longer than a usual command
    from evenbeat.observe.logs import redact  # noqa: PLC0415

    typer.echo(safe(redact(text)), err=True)
