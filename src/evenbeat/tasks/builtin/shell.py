"""The built-in task `shell`: run a command that the operator allows, and keep what it prints."""

import os
import pwd
import re
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from evenbeat.domain.decision import beyond_limit
from evenbeat.domain.job import JobRecord, JobSpec
from evenbeat.errors import Fail, InvalidInput, Retry
from evenbeat.external import fitting
from evenbeat.external.processes import CommandResult, Launch, run
from evenbeat.settings import Settings
from evenbeat.tasks.context import Context
from evenbeat.tasks.registry import TaskDefinition, define

NAME = "shell"
SHELL = "/bin/sh"
MOST_KEPT = 32 * 1024
_ROOM = 28 * 1024  # for each of two texts, of a result's 64 KiB as JSON
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INHERITED = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR")
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_ANYTHING = frozenset({"*", "sh", SHELL})
"""Entries of the list with which any command can be run: a line for sh may start any other."""


# -- the payload ---------------------------------------------------------------------------------


def _check_command(command: str | list[str]) -> str | list[str]:
    words = [command] if isinstance(command, str) else command
    if not words or not words[0].strip():
        raise InvalidInput("A command is a list such as [\"rsync\", \"-a\", \"x\", \"y\"], or a "
                           "line for sh.", field="command")  # fmt: skip
    if any("\0" in word for word in words):
        raise InvalidInput("A command cannot hold a NUL character.", field="command")
    return command


def _check_env(env: dict[str, str]) -> dict[str, str]:
    for name, value in env.items():
        if not _VARIABLE.fullmatch(name) or "\0" in value:
            raise InvalidInput(f"{name[:40]!r} is no variable that can be set.", field="env")
    return env


def _check_cwd(cwd: str | None) -> str | None:
    if cwd is not None and (not cwd.startswith("/") or "\0" in cwd):
        raise InvalidInput("cwd must be an absolute path.", field="cwd")
    return cwd


Command = Annotated[str | list[str], AfterValidator(_check_command)]
Variables = Annotated[dict[str, str], AfterValidator(_check_env)]
Directory = Annotated[str | None, AfterValidator(_check_cwd)]
KeptBytes = Annotated[int, Field(ge=0, le=MOST_KEPT)]
ExitCode = Annotated[int, Field(ge=0, le=255)]


# -- what the operator allows --------------------------------------------------------------------


def allowed_argv(
    command: str | list[str], allowed: tuple[str, ...], path: str, shell: str
) -> list[str]:
    """The command as a list whose first word is the program's full path; fails if it may not run.

    Names are looked up in the worker's own PATH. A payload's PATH changes what the command itself
    finds, never which program is started.
    """
    argv = [shell, "-c", command] if isinstance(command, str) else command
    program = _full_path(argv[0], path)
    if program is None:
        raise Fail(f"There is no command {argv[0]!r} on this machine.", code="command_not_found")
    free = "*" in allowed or (isinstance(command, str) and bool(_ANYTHING & set(allowed)))
    # Links to a program are not followed: where one binary has many names, the name decides what it
    # does. Those of its directory are: /bin is /usr/bin on many machines.
    places = {
        Path(entry).parent.resolve() / Path(entry).name
        for entry in (_full_path(entry, path) for entry in allowed)
        if entry is not None
    }
    if not free and Path(program).parent.resolve() / Path(program).name not in places:
        raise Fail(
            f"The command {argv[0]!r} is not allowed on this machine. An operator can allow it: "
            f"EVENBEAT_SHELL_COMMANDS, now {', '.join(allowed) or 'empty'}.",
            code="command_refused",
        )
    return [program, *argv[1:]]


def _full_path(name: str, path: str) -> str | None:
    """The full path of a program. A relative one would depend on the directory: it is not used."""
    program = shutil.which(name, path=path)
    return program if program is not None and program.startswith("/") else None


# -- the task ------------------------------------------------------------------------------------


def definition(settings: Settings) -> TaskDefinition:
    """The task, under these settings."""
    allowed, variable_names = settings.shell_commands, settings.shell_variables

    async def shell(
        command: Command,
        *,
        env: Variables = {},  # noqa: B006 - never changed, and a default that can be shown
        cwd: Directory = None,
        stdin: str | None = None,
        expected_exit: list[ExitCode] = [0],  # noqa: B006
        max_output_bytes: KeptBytes = 16384,
        ctx: Context,
    ) -> dict[str, Any]:
        """Run a command: a list of arguments, or a line for sh. The run succeeds when the exit code
        is an expected one. Cancelling ends the command and everything that it started."""
        path = os.environ.get("PATH") or _DEFAULT_PATH
        # A variable may make a command run another one. Where any can be run, nothing is gained.
        refused = () if _ANYTHING & set(allowed) else sorted(env.keys() - set(variable_names))
        if refused:
            raise Fail(
                f"The variable {refused[0]} may not be set on this machine. An operator can allow "
                f"it: EVENBEAT_SHELL_VARIABLES, now {', '.join(variable_names) or 'empty'}.",
                code="variable_refused",
            )
        argv = allowed_argv(command, allowed, path, env.get("SHELL") or SHELL)
        variables = clean_env(os.environ, ctx) | env
        directory = cwd or (variables["HOME"] if Path(variables["HOME"]).is_dir() else "/")
        limits = ctx.job.memory_limit, ctx.job.cpu_limit_seconds
        launch = Launch(argv, variables, directory, stdin, max_output_bytes, *limits)
        on_output = lambda size: ctx.progress(size, message="bytes of output")  # noqa: E731
        try:
            result = await run(launch, on_output, ctx.measured)
        except OSError as error:
            where = f" in {directory}" if error.filename == directory else ""
            raise Fail(
                f"{argv[0]} cannot be started{where}: {error.strerror}.", code="command_failed"
            ) from None
        return _judged(ctx.job, result, expected_exit)

    return define(shell, JobSpec(task=NAME), supervised=True)


def clean_env(own: Mapping[str, str], ctx: Context) -> dict[str, str]:
    """What every command gets: nothing of the worker's own but what tells where things are."""
    try:
        user = pwd.getpwuid(os.getuid())
        name, home = user.pw_name, user.pw_dir
    except KeyError:  # a user id without a name, as in many containers
        name, home = str(os.getuid()), own.get("HOME") or "/"
    return {
        "PATH": _DEFAULT_PATH,
        "HOME": home,
        "USER": name,
        "LOGNAME": name,
        "SHELL": SHELL,
        **{key: own[key] for key in _INHERITED if own.get(key)},
        "EVENBEAT_JOB_ID": str(ctx.job.id),
        "EVENBEAT_PLAN_TIME": ctx.plan_time.isoformat(),
        "EVENBEAT_ATTEMPT": str(ctx.attempt),
    }


def _judged(job: JobRecord, command: CommandResult, expected: list[int]) -> dict[str, Any]:
    """The run's result, or the error that it ends with; the output is kept either way."""
    ending, errors = command.ending, command.stderr.text()
    exit_code = ending.exit_code
    result: dict[str, Any] = {
        "exit_code": exit_code if exit_code >= 0 else None,
        "stdout": fitting(command.stdout.text(), _ROOM),
        "stderr": fitting(errors, _ROOM),
        "stdout_bytes": command.stdout.total,
        "stderr_bytes": command.stderr.total,
    }
    if (limit := ending.exceeded) is not None:
        message = beyond_limit(job, limit, ending.cpu_seconds, ending.memory_bytes)
        raise Retry(message, code=limit, result=result)
    if exit_code in expected:
        return result
    last = errors.strip().rpartition("\n")[2][:300]
    said = f" Its last words: {last}" if last else ""
    if exit_code >= 0:
        message = f"The command ended with exit code {exit_code}.{said}"
        raise Retry(message, code=f"exit_{exit_code}", result=result)
    known = -exit_code in signal.valid_signals()
    name = signal.Signals(-exit_code).name if known else f"SIG{-exit_code}"
    message = f"The command was ended by {name}.{said}"
    raise Retry(message, code=name, result=result | {"signal": name})
