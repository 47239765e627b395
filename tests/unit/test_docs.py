"""What is public is documented: names, settings, events, commands, error codes."""

import re
from pathlib import Path

import pytest

import evenbeat
from evenbeat import EventKind
from evenbeat.declared import TaskOptions
from evenbeat.settings import Settings, setting_name

ROOT = Path(__file__).parents[2]
REFERENCE = (ROOT / "docs" / "reference.md").read_text()
DOCS = REFERENCE + (ROOT / "README.md").read_text()


def test_all_public_names_are_exported_sorted_and_real():
    assert evenbeat.__all__ == sorted(evenbeat.__all__, key=lambda name: (not name.isupper(), name))
    assert all(getattr(evenbeat, name) is not None for name in evenbeat.__all__)


@pytest.mark.parametrize("name", evenbeat.__all__)
def test_every_public_name_is_documented(name: str):
    assert re.search(rf"\b{name}\b", DOCS)


@pytest.mark.parametrize("field", Settings.model_fields)
def test_every_setting_is_documented_with_its_default(field: str):
    info = Settings.model_fields[field]
    row = next(
        line
        for line in REFERENCE.splitlines()
        if line.startswith(f"| `EVENBEAT_{setting_name(field).upper()}`")
    )
    assert info.description in row
    if info.default_factory is None and not isinstance(info.default, tuple | None):
        assert f"`{info.default}`" in row


@pytest.mark.parametrize("kind", EventKind)
def test_every_event_is_documented(kind: EventKind):
    assert f"| `{kind.value}` |" in REFERENCE


@pytest.mark.parametrize("option", sorted(TaskOptions.__annotations__))
def test_every_task_option_is_documented(option: str):
    assert f"| `{option}` |" in REFERENCE


def test_every_file_that_the_documents_name_exists():
    for document in ("README.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/reference.md"):
        text = (ROOT / document).read_text()
        for path in re.findall(r"`((?:src|tests|benchmarks|docs|examples)/[\w./-]+)`", text):
            assert (ROOT / path.rstrip("/")).exists(), f"{document} names {path}"
        for target in re.findall(r"`make ([\w-]+)`", text):
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), target


def test_no_document_names_a_machine_or_a_registry():
    for file in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "constraints.txt"]:
        assert not re.search(r"/work/|/root/|pypi\.org|files\.pythonhosted", file.read_text()), file
