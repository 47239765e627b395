"""Plugins: everything that they declare is there, and nothing of them is loaded before its time."""

import subprocess
import sys
from typing import get_args

import pytest

from evenbeat.plugins import PLUGINS, Hook, folders, provided


@pytest.mark.parametrize("hook", get_args(Hook))
def test_what_a_plugin_declares_is_there(hook: Hook) -> None:
    assert len(provided(hook)) == sum(getattr(plugin, hook) is not None for plugin in PLUGINS)


def test_statements_and_templates_of_plugins_are_found() -> None:
    for name, pattern in (("sql", "*.sql"), ("templates", "*.html")):
        assert [file for folder in folders(name) for file in folder.glob(pattern)]


_LOADED = """
import sys
from evenbeat import Evenbeat
from evenbeat.store.statements import load_statements

app = Evenbeat()
assert "save_documents" in load_statements("evenbeat")
print(*sys.modules)
"""


def test_an_application_loads_no_plugin_and_nothing_heavy() -> None:
    command = [sys.executable, "-c", _LOADED]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    heavy = {"fastapi", "httpx", "numpy", "scrapy", *(plugin.package for plugin in PLUGINS)}
    assert not heavy & set(done.stdout.split())
