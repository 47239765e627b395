"""Reading crontabs, of users and of the system (with a user in the sixth field).

`lines` is the one reader of the format; `read_crontab` makes job documents of what it reads.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from evenbeat.domain.duration import parse_duration
from evenbeat.domain.moments import zone_named
from evenbeat.domain.schedule import Cron
from evenbeat.errors import InvalidInput
from evenbeat.importers.source import (
    Document,
    ImportSource,
    Remark,
    checked_cron,
    cron_timing,
    digest,
    tag_of,
)

TASK = "shell"

_ASSIGNMENT = re.compile(r"""\s*(?:([A-Za-z_]\w*)|"([^"=]+)"|'([^'=]+)')\s*=\s*(.*)$""")
_DURATION = re.compile(r"#+\s*duration\s*[:=]\s*(\S+)", re.IGNORECASE)
_ZONES = ("CRON_TZ", "TZ")
_NOT_FOR_COMMANDS = {"CRON_TZ", "MAILTO", "MAILFROM"}
_PLAIN_SHELLS = {"", "sh", "/bin/sh", "/usr/bin/sh"}
_SYSTEM = ("/etc/crontab", "/etc/cron.d/")
_LONGEST_SLUG = 48
_UTC = {"Etc/UTC", "Etc/UCT", "Etc/Universal", "Etc/Zulu", "UCT", "Universal", "Zulu"}


class CrontabEntry(NamedTuple):
    """A line that runs something."""

    number: int
    text: str
    cron: Cron
    user: str | None
    raw: str
    environment: dict[str, str]
    duration: timedelta | None

    def split(self) -> tuple[str, str | None]:
        """The command, and what it may read. As cron does: the first bare `%` ends the command,
        later ones end lines of its input, and `\\%` is a percent sign."""
        command, *lines = (part.replace(r"\%", "%") for part in re.split(r"(?<!\\)%", self.raw))
        return command.strip(), "".join(f"{line}\n" for line in lines) if lines else None


class CrontabVariable(NamedTuple):
    """A line `NAME=value`, which holds for the lines below it."""

    number: int
    text: str
    name: str
    value: str


class UnusableLine(NamedTuple):
    """A line that cannot be scheduled; `at_start` for one that asks to run when cron starts."""

    number: int
    text: str
    why: str
    at_start: bool = False


def lines(
    text: str, timezone: str, *, system: bool = False
) -> Iterator[CrontabEntry | CrontabVariable | UnusableLine]:
    """What a crontab says, line by line. `CRON_TZ=`, or otherwise `TZ=`, sets the time zone from
    its line on, and a comment `# duration: 5m` tells how long the next entry takes."""
    environment: dict[str, str] = {}
    duration: timedelta | None = None
    for number, line in enumerate(map(str.strip, text.split("\n")), start=1):
        try:
            if not line or line.startswith("#"):
                if comment := _DURATION.match(line):
                    duration = parse_duration(comment[1], field="duration")
            elif "\x00" in line:
                yield UnusableLine(
                    number, line, "It contains the character U+0000, which no command can be given."
                )
            elif assignment := _ASSIGNMENT.match(line):
                name, value = next(filter(None, assignment.groups()[:3])), assignment[4].strip()
                if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
                    value = value[1:-1]
                if name.isidentifier() and name.isascii():
                    environment[name] = value
                    yield CrontabVariable(number, line, name, value)
                else:
                    why = f"{name!r} is no variable that a command can be given."
                    yield UnusableLine(number, line, why)
            elif line.split(maxsplit=1)[0].lower() == "@reboot":
                why = (
                    "@reboot asks for a run when the machine starts, which is no schedule. Start "
                    "it with the service manager of the machine, or from the worker's own start."
                )
                yield UnusableLine(number, line, why, at_start=True)
            else:
                zones = (environment.get(name) for name in _ZONES)
                zone = next(filter(None, zones), timezone).removeprefix(":")
                cron, user, raw = _entry(line, zone, system)
                exported = {k: v for k, v in environment.items() if k not in _NOT_FOR_COMMANDS}
                yield CrontabEntry(number, line, cron, user, raw, exported, duration)
                duration = None
        except InvalidInput as error:
            yield UnusableLine(number, line, str(error))


def _entry(text: str, zone: str, system: bool) -> tuple[Cron, str | None, str]:
    """When, as whom and what."""
    fields = 1 if text.startswith("@") else 5
    words = text.split(None, fields)
    if len(words) <= fields:
        raise InvalidInput(
            f"{text!r} is no crontab entry: five time fields and a command, such as "
            "0 * * * * /usr/local/bin/sync, or a name, such as @daily, and a command."
        )
    # A dash before the minute keeps some crons from logging; it says nothing about when.
    cron = checked_cron(" ".join(words[:fields]).removeprefix("-"), zone)
    if not system:
        return cron, None, words[fields]
    user, *command = words[fields].split(None, 1)
    if not command:
        raise InvalidInput(
            f"{text!r} has a user or a command, but not both, as each line of a system crontab "
            "has. A user's own crontab is read without --system."
        )
    return cron, user, command[0]


def read_crontab(
    text: str,
    *,
    origin: str,
    timezone: str,
    user: str,
    system: bool = False,
    balance: bool = False,
) -> ImportSource:
    """The jobs of a crontab. `user` is whom the workers run as: lines of others need review."""
    zone_named(timezone, error=InvalidInput)
    source = ImportSource(tag=tag_of("crontab", origin))
    names: Counter[str] = Counter()
    for line in lines(text, timezone, system=system):
        where, why = f"line {line.number}", None
        match line:
            case CrontabVariable():
                exported = line.name not in _NOT_FOR_COMMANDS
                use = "given to the commands of the lines below" if exported else "not carried over"
                if line.name in _ZONES:
                    commands = ", and given to their commands" if exported else ""
                    use = f"the time zone of the lines below{commands}"
                source.remarks.append(Remark(where, line.text, use))
                if line.name == "MAILTO" and line.value:
                    why = (
                        "Evenbeat sends no mail. What a command prints is kept with its run; a "
                        "webhook tells about failures."
                    )
            case UnusableLine():
                why = line.why
            case CrontabEntry():
                why = _not_ours(line, user)
                if why is None:
                    source.add(where, line.text, *_job(line, names, balance))
        if why is not None:
            source.review(where, line.text, why)
    return source


def _not_ours(entry: CrontabEntry, user: str) -> str | None:
    if entry.user is not None and entry.user != user:
        return (
            f"It runs as {entry.user}, but workers run their jobs as themselves ({user}, unless "
            f"--user says otherwise). Import it with --user {entry.user} where workers are that "
            "user, or let the command change the user."
        )
    if entry.user is None and entry.raw.split()[0] == "root":
        return "Its command begins with a user, root. Is this a system crontab? Give --system."
    if not entry.split()[0]:
        return "It has no command before its first %."
    return None


def _job(entry: CrontabEntry, names: Counter[str], balance: bool) -> tuple[Document, str | None]:
    """The document, and a remark on it. The name is readable and the same at every import: made of
    the command alone, so that a line keeps its job when its times change. The same command once
    more is numbered."""
    line, standard_input = entry.split()
    name = f"{slug(line)}-{digest(entry.raw)}"
    names[name] += 1
    # A line for sh, unless SHELL names another one, which is then called as cron calls it.
    shell = entry.environment.get("SHELL", "")
    payload: Document = {"command": line if shell in _PLAIN_SHELLS else [shell, "-c", line]}
    if entry.environment:
        payload["env"] = entry.environment
    if standard_input is not None:
        payload["stdin"] = standard_input
    timing = cron_timing(entry.cron, balance=balance)
    document: Document = {
        "name": name if names[name] == 1 else f"{name}-{names[name]}",
        "description": entry.text[:2000],
        "task": TASK,
        "payload": payload,
        **timing.fields,
        "max_retries": 0,  # cron tries once, and a command may rely on that
    }
    if entry.duration:
        document["cost"] = entry.duration.total_seconds()
    return document, timing.remark


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
