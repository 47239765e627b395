"""Reading crontabs, of users and of the system (with a user in the sixth field)."""

import os
import re
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from evenbeat.domain.duration import parse_duration
from evenbeat.domain.moments import zone_named
from evenbeat.domain.schedule import Cron
from evenbeat.errors import InvalidInput
from evenbeat.importers.source import (
    AS_IT_STANDS,
    Balance,
    Document,
    ImportSource,
    Remark,
    cron_timing,
    digest,
    tag_of,
)

_ASSIGNMENT = re.compile(r"""\s*(?:([A-Za-z_]\w*)|"([^"=]+)"|'([^'=]+)')\s*=\s*(.*)$""")
_DURATION = re.compile(r"#+\s*duration\s*[:=]\s*(\S+)", re.IGNORECASE)
_ZONES = {
    "CRON_TZ": "the time zone of the lines below",
    "TZ": "the time zone of the lines below, and given to their commands",
}
_GIVEN = "given to the commands of the lines below"
_NO_MAIL = (
    "Evenbeat sends no mail. What a command prints is kept with its run; a webhook tells about "
    "failures."
)
_NOT_FOR_COMMANDS = {"CRON_TZ", "MAILTO", "MAILFROM"}
_PLAIN_SHELLS = {"", "sh", "/bin/sh", "/usr/bin/sh"}
_SYSTEM = ("/etc/crontab", "/etc/cron.d/")
_LONGEST_SLUG = 48
_UTC = {"Etc/UTC", "Etc/UCT", "Etc/Universal", "Etc/Zulu", "UCT", "Universal", "Zulu"}


def read_crontab(
    text: str,
    *,
    origin: str,
    timezone: str,
    user: str | None,
    system: bool = False,
    balance: Balance = AS_IT_STANDS,
) -> ImportSource:
    """The jobs of a crontab. `user` is whom workers run as: lines of others need review, unless it
    is None. `CRON_TZ=`, or otherwise `TZ=`, sets the time zone from its line on, and a comment
    `# duration: 5m` tells how long the next entry takes."""
    zone_named(timezone, error=InvalidInput)
    source = ImportSource(tag=tag_of("crontab", origin))
    environment: dict[str, str] = {}
    names: Counter[str] = Counter()
    duration: timedelta | None = None
    for number, line in enumerate(map(str.strip, text.split("\n")), start=1):
        where = f"line {number}"
        try:
            if not line or line.startswith("#"):
                if comment := _DURATION.match(line):
                    duration = parse_duration(comment[1], field="duration")
            elif "\x00" in line:
                source.review(where, line, "It contains U+0000, which no command can be given.")
            elif assignment := _ASSIGNMENT.match(line):
                name, value = next(filter(None, assignment.groups()[:3])), assignment[4].strip()
                if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
                    value = value[1:-1]
                if name.isidentifier() and name.isascii():
                    environment[name] = value
                    use = "not carried over" if name in _NOT_FOR_COMMANDS else _GIVEN
                    source.remarks.append(Remark(where, line, _ZONES.get(name, use)))
                else:
                    why = f"{name!r} is no variable that a command can be given."
                    source.review(where, line, why)
                if name == "MAILTO" and value:
                    source.review(where, line, _NO_MAIL)
            else:
                zone = next(filter(None, map(environment.get, _ZONES)), timezone).removeprefix(":")
                cron, command = _entry(line, zone, user, system)
                timing, remark = cron_timing(cron, balance)
                document = {"description": line[:2000], **timing}
                document |= _shell_job(command, environment, names)
                if duration is not None:
                    document["cost"] = duration.total_seconds()
                duration = None
                source.add(where, line, document, remark)
        except InvalidInput as error:
            source.review(where, line, str(error))
    return source


def _entry(line: str, zone: str, user: str | None, system: bool) -> tuple[Cron, str]:
    """When and what; raises InvalidInput for what is not for the user to run."""
    fields = 1 if line.startswith("@") else 5
    words = line.split(None, fields)
    # A dash before the minute keeps some crons from logging; it says nothing about when.
    expression = " ".join(words[:fields]).removeprefix("-")
    if expression.lower() == "@reboot":
        raise InvalidInput(
            "@reboot asks for a run when the machine starts, which is no schedule. Start it with "
            "the service manager of the machine, or from the worker's own start."
        )
    if len(words) <= fields:
        raise InvalidInput(
            f"{line!r} is no crontab entry: five time fields and a command, such as "
            "0 * * * * /usr/local/bin/sync, or a name, such as @daily, and a command."
        )
    if "~" in expression:
        raise InvalidInput(
            f"{expression!r} asks for a random minute, which Evenbeat does by balancing: choose an "
            "interval, such as --every 1d, or a fixed minute."
        )
    cron, command = Cron(expression, zone), words[fields]
    if system:
        owner, *rest = command.split(None, 1)
        if not rest:
            raise InvalidInput(
                f"{line!r} has a user or a command, but not both, as each line of a system crontab "
                "has. A user's own crontab is read without --system."
            )
        command = rest[0]
        if user not in (None, owner):
            raise InvalidInput(
                f"It runs as {owner}, but workers run their jobs as themselves ({user}, unless "
                f"--user says otherwise). Import it with --user {owner} where workers are that "
                "user, or let the command change the user."
            )
    elif user is not None and command.split()[0] == "root":
        raise InvalidInput(
            "Its command begins with a user, root. Is this a system crontab? Give --system."
        )
    return cron, command


def _shell_job(text: str, environment: dict[str, str], names: Counter[str]) -> Document:
    """What to run, and a name for it that is readable and the same at every import: made of the
    command alone, so that a line keeps its job when its times change. The same command once more is
    numbered."""
    # As cron does: the first bare % ends the command, later ones end lines of its input.
    command, *lines = (part.replace(r"\%", "%") for part in re.split(r"(?<!\\)%", text))
    if not (command := command.strip()):
        raise InvalidInput("It has no command before its first %.")
    # A line for sh, unless SHELL names another one, which is then called as cron calls it.
    shell = environment.get("SHELL", "")
    payload: Document = {"command": command if shell in _PLAIN_SHELLS else [shell, "-c", command]}
    if exported := {k: v for k, v in environment.items() if k not in _NOT_FOR_COMMANDS}:
        payload["env"] = exported
    if lines:
        payload["stdin"] = "".join(f"{line}\n" for line in lines)
    name = f"{slug(command)}-{digest(text)}"
    names[name] += 1
    return {
        "name": name if names[name] == 1 else f"{name}-{names[name]}",
        "task": "shell",
        "payload": payload,
        "max_retries": 0,  # cron tries once, and a command may rely on that
    }


_REDIRECTION = re.compile(r"(?:\d|&)?>{1,2}\s*(?:&\d|&-|\S+)|<\s*\S+")
_BEFOREHAND = re.compile(
    r"^\s*(?:(?:cd|test)\s[^|&;]*(?:&&|\|\||;)|\[+\s[^|&;]*\](?:\s*(?:&&|\|\||;))|[{(])\s*"
)
"""Going somewhere or testing something first says nothing about what is done."""
_WORD = re.compile(r"[\w.][\w.+-]*")


def slug(command: str) -> str:
    """The words of a command that say most, fit for a name."""
    while (shorter := _BEFOREHAND.sub("", command)) not in ("", command):
        command = shorter
    parts = _REDIRECTION.sub(" ", command).split()
    matches = (_WORD.search(part.rpartition("/")[2]) for part in parts)
    words = [match[0] for match in matches if match]
    text = ""
    for word in words:
        longer = f"{text}-{word}".lstrip("-")
        if len(longer) > _LONGEST_SLUG:
            break
        text = longer
    return text or "".join(words)[:_LONGEST_SLUG] or "command"


def is_system(path: Path) -> bool:
    """Whether the path alone tells that lines name a user."""
    return str(path).startswith(_SYSTEM)


def local_timezone() -> str:
    """The time zone of this machine, in which its cron reads times; UTC where none is set."""
    names = [os.environ.get("TZ", "").removeprefix(":")]
    link = os.path.realpath("/etc/localtime")
    if "/zoneinfo/" in link:
        names.append(link.rpartition("/zoneinfo/")[2])
    with suppress(OSError, UnicodeDecodeError):
        names.append(Path("/etc/timezone").read_text(encoding="utf-8").strip())
    for name in names:
        with suppress(InvalidInput):
            zone_named(name)
            return "UTC" if name in _UTC else name
    return "UTC"
