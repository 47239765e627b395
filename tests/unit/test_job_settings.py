"""A setting of a job is declared once, appears on every face, and survives the way through it."""

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from typer.main import get_command

import settings_docs
from evenbeat import Evenbeat, cli
from evenbeat.api.requests import JobCreate, JobEdit
from evenbeat.api.responses import JobDocument
from evenbeat.dashboard import job_form
from evenbeat.declared import ScheduleOptions, TaskOptions
from evenbeat.domain.job import (
    BY_NAME,
    SETTINGS,
    JobOptions,
    JobRecord,
    JobSpec,
    Setting,
    settings_of,
    spec_columns,
    spec_from_settings,
    with_settings,
)
from evenbeat.errors import InvalidInput
from evenbeat.importers.files import definition_of
from setting_values import settings_strategy

EVERY_SETTING = pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)


def options_of(command: str) -> set[str]:
    group: Any = get_command(cli.cli).commands["job"]
    group = group.load() if hasattr(group, "load") else group
    one: Any = group.commands[command]
    one = one.load() if hasattr(one, "load") else one
    return {name for parameter in one.params for name in parameter.opts}


# -- faces -----------------------------------------------------------------------------------------


@EVERY_SETTING
def test_the_api_takes_and_answers_it(setting: Setting):
    assert setting.name in JobCreate.model_fields
    assert setting.name in JobEdit.model_fields
    assert setting.name in JobDocument.model_fields
    assert JobEdit.model_fields[setting.name].description == setting.help


@EVERY_SETTING
@pytest.mark.parametrize("command", ["add", "edit"])
def test_the_command_line_has_an_option(setting: Setting, command: str):
    assert f"--{setting.name.replace('_', '-')}" in options_of(command)


def test_the_form_has_a_control_for_each():
    controls = {one.name for group in job_form.setting_groups().values() for one in group}
    assert controls | {"placement"} == BY_NAME.keys()


def test_python_takes_each_and_type_checkers_know_it():
    assert set(JobOptions.__annotations__) == set(BY_NAME)
    assert BY_NAME.keys() <= TaskOptions.__annotations__.keys()
    assert BY_NAME.keys() <= ScheduleOptions.__annotations__.keys()


def test_an_unknown_setting_is_refused_with_the_known_ones():
    with pytest.raises(TypeError, match=r"no option 'prioritty'.*max_retries"):
        Evenbeat().task(prioritty=5)(print)


@EVERY_SETTING
def test_it_has_a_column_in_the_row(setting: Setting):
    assert setting.column in JobRecord._fields
    assert setting.column in spec_columns(JobSpec(task="any"))


@EVERY_SETTING
def test_exported_files_contain_it(setting: Setting):
    answer = {
        **dict.fromkeys(JobDocument.model_fields, "x"),
        "scope": {"kind": "global", "id": "global"},
        "metadata": {},
        "schedule_kind": "once",
    }
    assert definition_of(answer)[setting.name] == "x"


@pytest.mark.parametrize("name", settings_docs.TABLES)
def test_the_tables_in_the_docs_are_up_to_date(name: str):
    text = (settings_docs.DOCS / name).read_text(encoding="utf-8")
    assert settings_docs.with_table(name, text) == text, "run: make docs"


# -- values ----------------------------------------------------------------------------------------


@given(settings_strategy())
def test_what_a_worker_records_is_what_jobs_start_from(settings: dict[str, Any]):
    spec = with_settings(JobSpec("report"), settings)
    recorded = json.loads(json.dumps(settings_of(spec)))
    assert spec_from_settings("report", spec.queue, recorded) == spec


@given(settings_strategy())
def test_what_a_form_shows_is_read_back_as_the_same(settings: dict[str, Any]):
    spec = with_settings(JobSpec("report"), settings)
    for setting in SETTINGS:
        value = setting.of(spec)
        if value not in (None, ()):
            text = setting.kind.to_text(value)
            again = setting.kind.parse(setting.name, setting.kind.from_text(text))
            assert again == value, setting.name


def test_a_note_of_an_older_worker_lacks_some_settings():
    assert spec_from_settings("report", "slow", {"unheard_of": 1}) == JobSpec("report", "slow")


@pytest.mark.parametrize(
    ("text", "size", "shown"),
    [
        ("512MB", 512 * 2**20, "512MB"),
        ("512 mib", 512 * 2**20, "512MB"),
        ("1.5G", 3 * 2**29, "1536MB"),
        ("2TB", 2**41, "2TB"),
        ("1048577", 2**20 + 1, "1048577B"),
        (2**20, 2**20, "1MB"),
    ],
)
def test_sizes(text: Any, size: int, shown: str):
    kind = BY_NAME["memory_limit"].kind
    assert kind.parse("memory_limit", text) == size
    assert kind.to_text(size) == shown
    assert kind.parse("memory_limit", kind.from_text(shown)) == size


@pytest.mark.parametrize(
    "value", [512, "512", "1kB", "2PB", "-1MB", "MB", "1e9", 2.0**30, True, "٣GB"]
)
def test_what_is_no_size_is_refused_with_what_is(value: Any):
    with pytest.raises(InvalidInput, match=r"from 1MB to 1PB, such as \"512MB\".*Got") as caught:
        BY_NAME["memory_limit"].kind.parse("memory_limit", value)
    assert caught.value.field == "memory_limit"


def test_a_backoff_above_the_cap_raises_the_cap():
    spec = with_settings(JobSpec("report"), {"retry_backoff": "2h"})
    assert spec.retry.cap == spec.retry.backoff == timedelta(hours=2)
