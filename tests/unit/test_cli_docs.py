"""Every command and every option is in docs/cli.md, and every help text says something."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from evenbeat import cli

DOCUMENT = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")


def commands() -> Iterator[tuple[str, Any]]:
    """Every command by its words, those of groups included."""
    waiting = [("", get_command(cli.cli))]
    while waiting:
        words, command = waiting.pop()
        load = getattr(command, "load", None)
        loaded = load() if load else command
        yield words, loaded
        for name, inner in getattr(loaded, "commands", {}).items():
            waiting.append((f"{words} {name}".strip(), inner))


ALL = dict(commands())
GROUPS = {"", "job", "execution", "schedule", "queue", "task", "token"}


def options(command: Any) -> list[str]:
    visible = [one for one in command.params if not getattr(one, "hidden", False)]
    return [name for one in visible for name in one.opts if name.startswith("--")]


@pytest.mark.parametrize("words", sorted(ALL.keys() - GROUPS))
def test_every_command_is_documented_with_its_options(words: str):
    assert f"`{words}" in DOCUMENT
    for option in options(ALL[words]):
        assert option in DOCUMENT, option


@pytest.mark.parametrize("words", sorted(ALL.keys()))
def test_every_command_and_option_explains_itself(words: str):
    command = ALL[words]
    assert command.help
    for one in command.params:
        if one.name not in ("help", "limit") and not getattr(one, "hidden", False):
            assert one.help, f"{words} {one.name}"


def test_commands_that_ask_the_api_share_their_options():
    shared = ["--url", "--token", "--database", "--json"]
    for words in sorted(ALL):
        if words.startswith(("job ", "execution ", "queue ", "task ", "worker ", "schedule ")):
            assert options(ALL[words])[-4:] == shared, words


def test_the_exit_codes_are_documented_where_people_look():
    for code, meaning in (("0", "done"), ("4", "no such job"), ("5", "not allowed")):
        assert f"| {code} | {meaning}" in DOCUMENT
        assert f"    {code}    {meaning}" in (cli.__doc__ or "")
    assert cli.EPILOG.count(",") >= 6


def test_the_list_of_commands_agrees_with_what_they_are():
    names = [command.name for command in cli.COMMANDS]
    assert len(set(names)) == len(names)
    assert set(names) == {words for words in ALL if words and " " not in words}
