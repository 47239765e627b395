"""Reading crontabs, of users and of the system (with a user in the sixth field).

`lines` is the one reader of the format; `read_crontab` makes job documents of what it finds.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from evenbeat.domain.duration import parse_duration
from evenbeat.domain.moments import zone_named
from evenbeat.domain.schedule import Cron
from evenbeat.errors import InvalidInput
from evenbeat.importers.source import (
    Document,
    Found,
    Look,
    Remark,
    Source,
    checked_cron,
    cron_timing,
    digest,
    tag_of,
)

TASK = "shell"

_SETTING = re.compile(r"""\s*(?:([A-Za-z_]\w*)|"([^"=]+)"|'([^'=]+)')\s*=\s*(.*)$""")
_LASTING = re.compile(r"#+\s*duration\s*[:=]\s*(\S+)", re.IGNORECASE)
_ZONES = ("CRON_TZ", "TZ")
_NOT_FOR_COMMANDS = {"CRON_TZ", "MAILTO", "MAILFROM"}
_PLAIN_SHELLS = {"", "sh", "/bin/sh", "/usr/bin/sh"}
_SYSTEM = ("/etc/crontab", "/etc/cron.d/")
_LONGEST_SLUG = 48
_NO_ENTRY = (
    "{text!r} is no crontab entry: five time fields and a command, such as "
    "0 * * * * /usr/local/bin/sync, or a name, such as @daily, and a command."
)


# -- the format ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """A line that runs something. `command` and `standard_input` are what `%` makes of `raw`."""

    number: int
    text: str
    cron: Cron
    user: str | None
    raw: str
    environment: dict[str, str]
    lasting: timedelta | None

    @property
    def command(self) -> str:
        """What the shell is given."""
        return _split_at_percent(self.raw)[0]

    @property
    def standard_input(self) -> str | None:
        """What the command may read."""
        return _split_at_percent(self.raw)[1]


@dataclass(frozen=True, slots=True)
class Setting:
    """A line `NAME=value`, which holds for the lines below it."""

    number: int
    text: str
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Odd:
    """A line that cannot be scheduled; `at_start` for one that asks to run when cron starts."""

    number: int
    text: str
    why: str
    at_start: bool = False


@dataclass(slots=True)
class _Reader:
    timezone: str
    system: bool
    environment: dict[str, str] = field(default_factory=dict)
    lasting: timedelta | None = None

    def line(self, number: int, text: str) -> Entry | Setting | Odd | None:
        try:
            return self._line(number, text)
        except InvalidInput as error:
            return Odd(number, text, str(error))

    def _line(self, number: int, text: str) -> Entry | Setting | Odd | None:
        if not text or text.startswith("#"):
            if told := _LASTING.match(text):
                self.lasting = parse_duration(told[1], field="duration")
            return None
        if "\x00" in text:
            raise InvalidInput("It contains the character U+0000, which no command can be given.")
        if setting := _SETTING.match(text):
            name = next(filter(None, setting.groups()[:3]))
            if not name.isidentifier() or not name.isascii():
                raise InvalidInput(f"{name!r} is no variable that a command can be given.")
            self.environment[name] = _unquoted(setting[4].strip())
            return Setting(number, text, name, self.environment[name])
        if text.split(maxsplit=1)[0].lower() == "@reboot":
            return Odd(number, text, _REBOOT, at_start=True)
        return self._entry(number, text)

    def _entry(self, number: int, text: str) -> Entry:
        fields = 1 if text.startswith("@") else 5
        words = text.split(None, fields)
        if len(words) <= fields:
            raise InvalidInput(_NO_ENTRY.format(text=text))
        # A dash before the minute keeps some crons from logging; it says nothing about when.
        expression = " ".join(words[:fields]).removeprefix("-")
        cron = checked_cron(expression, self._zone())
        user, raw = self._user_and_command(text, words[fields])
        lasting, self.lasting = self.lasting, None
        return Entry(number, text, cron, user, raw, self._given_to_commands(), lasting)

    def _user_and_command(self, text: str, rest: str) -> tuple[str | None, str]:
        if not self.system:
            return None, rest
        user, *command = rest.split(None, 1)
        if not command:
            raise InvalidInput(
                f"{text!r} has a user or a command, but not both, as each line of a system crontab "
                "has. A user's own crontab is read without --system."
            )
        return user, command[0]

    def _zone(self) -> str:
        given = (self.environment.get(name) for name in _ZONES)
        return next(filter(None, given), self.timezone).removeprefix(":")

    def _given_to_commands(self) -> dict[str, str]:
        return {k: v for k, v in self.environment.items() if k not in _NOT_FOR_COMMANDS}


_REBOOT = (
    "@reboot asks for a run when the machine starts, which is no schedule. Start it with the "
    "service manager of the machine, or from the worker's own start."
)


def lines(text: str, timezone: str, *, system: bool = False) -> Iterator[Entry | Setting | Odd]:
    """What a crontab says, line by line. `CRON_TZ=`, or else `TZ=`, sets the time zone from its
    line on, and a comment `# duration: 5m` tells how long the next entry takes."""
    reader = _Reader(timezone, system)
    for number, line in enumerate(text.split("\n"), start=1):
        if (found := reader.line(number, line.strip())) is not None:
            yield found


def _unquoted(value: str) -> str:
    quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "'\""
    return value[1:-1] if quoted else value


def _split_at_percent(raw: str) -> tuple[str, str | None]:
    """As cron does: the first bare `%` ends the command, later ones are ends of lines of what it
    may read, and `\\%` is a percent sign."""
    command, *given = re.split(r"(?<!\\)%", raw)
    plain = [part.replace(r"\%", "%") for part in (command, *given)]
    return plain[0].strip(), "".join(f"{line}\n" for line in plain[1:]) if given else None


# -- jobs ----------------------------------------------------------------------------------------


def read_crontab(
    text: str,
    *,
    origin: str,
    timezone: str,
    user: str,
    system: bool = False,
    balance: bool = False,
) -> Source:
    """The jobs of a crontab. `user` is whom the workers run as: lines of others are set aside."""
    zone_named(timezone, error=InvalidInput)
    source = Source(tag=tag_of("crontab", origin))
    names: Counter[str] = Counter()
    for line in lines(text, timezone, system=system):
        where = f"line {line.number}"
        match line:
            case Setting():
                source.remarks.append(Remark(where, line.text, _setting(line)))
                if line.name == "MAILTO" and line.value:
                    source.looks.append(Look(where, line.text, _NO_MAIL))
            case Odd():
                source.looks.append(Look(where, line.text, line.why))
            case Entry():
                if why := _not_ours(line, user):
                    source.looks.append(Look(where, line.text, why))
                else:
                    source.found.append(_job(line, source.tag or "", names, balance))
    return source


_NO_MAIL = (
    "Evenbeat sends no mail. What a command prints is kept with its run; a webhook tells about "
    "failures."
)


def _setting(line: Setting) -> str:
    if line.name in _NOT_FOR_COMMANDS:
        return "the time zone of the lines below" if line.name in _ZONES else "not carried over"
    if line.name in _ZONES:
        return "the time zone of the lines below, and given to their commands"
    return "given to the commands of the lines below"


def _not_ours(entry: Entry, user: str) -> str | None:
    if entry.user is not None and entry.user != user:
        return (
            f"It runs as {entry.user}, but workers run their jobs as themselves ({user}, unless "
            f"--user says otherwise). Import it with --user {entry.user} where workers are that "
            "user, or let the command change the user."
        )
    if entry.user is None and entry.raw.split()[0] == "root":
        return "Its command begins with a user, root. Is this a system crontab? Give --system."
    if not entry.command:
        return "It has no command before its first %."
    return None


def _job(entry: Entry, tag: str, names: Counter[str], balance: bool) -> Found:
    timing = cron_timing(entry.cron, balance=balance)
    document: Document = {
        "name": _name(entry, names),
        "description": entry.text[:2000],
        "tags": [tag],
        "task": TASK,
        "payload": _payload(entry),
        **timing.fields,
        "max_retries": 0,  # cron tries once, and a command may rely on that
    }
    if entry.lasting:
        document["cost"] = entry.lasting.total_seconds()
    return Found(f"line {entry.number}", entry.text, document, timing.remark)


def _payload(entry: Entry) -> Document:
    payload: Document = {"command": _command(entry)}
    if entry.environment:
        payload["env"] = entry.environment
    if entry.standard_input is not None:
        payload["stdin"] = entry.standard_input
    return payload


def _command(entry: Entry) -> str | list[str]:
    """A line for sh, unless SHELL names another one, which then is called as cron calls it."""
    shell = entry.environment.get("SHELL", "")
    return entry.command if shell in _PLAIN_SHELLS else [shell, "-c", entry.command]


# -- names ---------------------------------------------------------------------------------------

_REDIRECTION = re.compile(r"(?:\d|&)?>{1,2}\s*(?:&\d|&-|\S+)|<\s*\S+")
_BEFOREHAND = re.compile(
    r"^\s*(?:(?:cd|test)\s[^|&;]*(?:&&|\|\||;)|\[+\s[^|&;]*\](?:\s*(?:&&|\|\||;))|[{(])\s*"
)
"""Going somewhere or testing something first says nothing about what is done."""
_WORD = re.compile(r"[\w.][\w.+-]*")


def _name(entry: Entry, names: Counter[str]) -> str:
    """Readable, and the same at every import: made of the command alone, so that a line keeps its
    job when its times change. The same command once more is numbered."""
    name = f"{slug(entry.command)}-{digest(entry.raw)}"
    names[name] += 1
    return name if names[name] == 1 else f"{name}-{names[name]}"


def slug(command: str) -> str:
    """The words of a command that say most, fit for a name."""
    while (shorter := _BEFOREHAND.sub("", command)) not in ("", command):
        command = shorter
    told = _REDIRECTION.sub(" ", command)
    words = [found[0] for part in told.split() if (found := _WORD.search(part.rpartition("/")[2]))]
    text = ""
    for word in words:
        longer = f"{text}-{word}".lstrip("-")
        if len(longer) > _LONGEST_SLUG:
            break
        text = longer
    return text or "".join(words)[:_LONGEST_SLUG] or "command"


# -- this machine --------------------------------------------------------------------------------


def is_system(path: Path) -> bool:
    """Whether the place alone tells that lines name a user."""
    return str(path).startswith(_SYSTEM)


def local_timezone() -> str:
    """The time zone of this machine, in which its cron reads times; UTC where it is not told."""
    for name in (os.environ.get("TZ", "").removeprefix(":"), *_told_by_files()):
        with suppress(InvalidInput):
            zone_named(name)
            return "UTC" if name in _UTC else name
    return "UTC"


_UTC = {"Etc/UTC", "Etc/UCT", "Etc/Universal", "Etc/Zulu", "UCT", "Universal", "Zulu"}


def _told_by_files() -> Iterator[str]:
    link = os.path.realpath("/etc/localtime")
    yield link.rpartition("/zoneinfo/")[2] if "/zoneinfo/" in link else ""
    try:
        yield Path("/etc/timezone").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return
