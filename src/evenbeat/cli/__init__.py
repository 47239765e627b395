"""The command line. Each command is a file of its own; this one puts them together.

Exit codes: 0 done, 1 refused or failed, 2 wrong input, 3 no usable database, and 128 + n when a
second signal n (130: Ctrl-C, 143: SIGTERM) ended a command that was already stopping.
"""

import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, NoReturn

import psycopg
import typer

from evenbeat import __version__
from evenbeat.cli.loading import BrokenApp
from evenbeat.cli.worker import worker as worker_command
from evenbeat.errors import EvenbeatError, InvalidInput, StoreError
from evenbeat.observe.logs import redact

WRONG_INPUT = 2
NO_DATABASE = 3
INTERRUPTED = 130

cli = typer.Typer(
    help="Evenbeat: a durable, self-balancing job scheduler on PostgreSQL.",
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="markdown",
    add_completion=False,
)
cli.command("worker")(worker_command)


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
        _fail(f"{error.format_message().rstrip('.')}. See evenbeat --help.", WRONG_INPUT)
    except BrokenApp as error:
        _say(error.trace)
        _fail(str(error), WRONG_INPUT)
    except InvalidInput as error:
        _fail(str(error), WRONG_INPUT)
    except StoreError as error:
        _fail(str(error), NO_DATABASE)
    except psycopg.Error as error:
        _fail(f"The database refused: {error}", NO_DATABASE)
    except EvenbeatError as error:
        _fail(str(error), 1)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(INTERRUPTED)
    except Exception:
        _say(traceback.format_exc())
        _fail("This is a bug in Evenbeat; please report it with the lines above.", 1)


def _fail(message: str, code: int) -> NoReturn:
    _say(f"evenbeat: {' '.join(message.split())}")
    sys.exit(code)


def _say(text: str) -> None:
    typer.echo(redact(text), err=True)
