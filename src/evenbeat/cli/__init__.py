"""The command line. Each command is a file of its own; this one puts them together.

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
from typing import Annotated, NoReturn

import typer

from evenbeat import __version__
from evenbeat.cli.lazy import CONTEXT, Command, LazyGroup
from evenbeat.errors import AccessDenied, EvenbeatError, InvalidInput, NotFound, StoreError

FAILED = 1
WRONG_INPUT = 2
NO_DATABASE = 3
NOT_FOUND = 4
NOT_ALLOWED = 5
INTERRUPTED = 130

EPILOG = (
    "**Exit codes:** 0 done, 1 refused or failed, 2 wrong input, 3 no usable database or service, "
    "4 not found, 5 not allowed, 130 Ctrl-C."
)

_HERE = "evenbeat.cli"
_RUN, _JOBS, _FLEET = "Run", "Jobs", "Look after it"

COMMANDS = (
    Command("serve", f"{_HERE}.serve:serve", "Serve API and dashboard, and run jobs.", _RUN),
    Command(
        "worker",
        f"{_HERE}.queues:worker_cli",
        "Run jobs; list and drain workers.",
        _RUN,
    ),
    Command("job", f"{_HERE}.job:job_cli", "Add, list, show, control and watch jobs.", _JOBS),
    Command("execution", f"{_HERE}.execution:execution_cli", "The history of jobs.", _JOBS),
    Command("template", f"{_HERE}.template:template_cli", "Definitions with parameters.", _JOBS),
    Command("schedule", f"{_HERE}.schedule:schedule_cli", "Try a schedule out.", _JOBS),
    Command("task", f"{_HERE}.queues:task_cli", "The tasks that workers have.", _JOBS),
    Command("queue", f"{_HERE}.queues:queue_cli", "List, pause and resume queues.", _JOBS),
    Command("limit", f"{_HERE}.limit:limit_cli", "Limits that jobs with one key share.", _JOBS),
    Command("documents", "evenbeat.crawl.commands:documents_cli", "Search crawled pages.", _JOBS),
    Command("import", f"{_HERE}.import_export:import_cli", "Move in from cron and others.", _JOBS),
    Command("export", f"{_HERE}.import_export:export", "Write definitions of jobs out.", _JOBS),
    Command("stats", f"{_HERE}.stats:stats", "The scheduler in figures.", _FLEET),
    Command("top", f"{_HERE}.top:top", "A live view of what runs.", _FLEET),
    Command("distribution", f"{_HERE}.balance:distribution", "How even the load is.", _FLEET),
    Command("rebalance", f"{_HERE}.balance:rebalance", "Move jobs off the peak, or back.", _FLEET),
    Command("simulate", f"{_HERE}.simulate:simulate", "What balancing would gain.", _FLEET),
    Command("webhook", f"{_HERE}.webhook:webhook_cli", "Tell others when jobs end.", _FLEET),
    Command("token", f"{_HERE}.token:token_cli", "Tokens and login links.", _FLEET),
    Command("migrate", f"{_HERE}.migrate:migrate", "Bring the database up to date.", _FLEET),
    Command("doctor", f"{_HERE}.doctor:doctor", "Check the database and the workers.", _FLEET),
)


class Commands(LazyGroup):
    """All of Evenbeat's commands."""

    table = COMMANDS


cli = typer.Typer(
    cls=Commands,
    help="Evenbeat: a durable, self-balancing job scheduler on PostgreSQL.",
    epilog=EPILOG,
    context_settings=CONTEXT,
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
        if not (message := error.format_message()):
            sys.exit(0)  # a group without a command has shown its help, as `evenbeat` alone does
        _fail(f"{_sentence(message)} See evenbeat --help.", WRONG_INPUT)
    except EvenbeatError as error:
        if trace := getattr(error, "trace", None):
            _say(trace)
        _fail(str(error), exit_code(error))
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        _leave_quietly()
    except Exception as error:
        if _is_from_database(error):
            _fail(f"The database refused: {error}", NO_DATABASE)
        _say(traceback.format_exc())
        _fail("This is a bug in Evenbeat; please report it with the lines above.", FAILED)


def exit_code(error: EvenbeatError) -> int:
    """What a refusal means to a script."""
    own = getattr(error, "exit_code", None)
    if isinstance(own, int):
        return own
    match error:
        case InvalidInput():
            return WRONG_INPUT
        case StoreError():
            return NO_DATABASE
        case NotFound():
            return NOT_FOUND
        case AccessDenied():
            return NOT_ALLOWED
        case _:
            return FAILED


def _is_from_database(error: Exception) -> bool:
    import psycopg  # noqa: PLC0415 - whoever got here has loaded it, or is about to fail

    return isinstance(error, psycopg.Error)


def _leave_quietly() -> NoReturn:
    """The reader of our output is gone (`evenbeat job list | head`): there is nobody to tell."""
    sys.stdout = None
    sys.exit(0)


def _sentence(text: str) -> str:
    text = text.replace(": Value error, ", ": ")
    return text if text.endswith((".", "?")) else f"{text}."


def _fail(message: str, code: int) -> NoReturn:
    _say(f"evenbeat: {' '.join(message.split())}")
    sys.exit(code)


def _say(text: str) -> None:
    from evenbeat.cli.output import safe  # noqa: PLC0415 - both take longer than a usual command
    from evenbeat.observe.logs import redact  # noqa: PLC0415

    typer.echo(safe(redact(text)), err=True)
