"""Files of job documents: read, said in one way, and written."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from evenbeat.api.requests import JobCreate
from evenbeat.api.responses import JobDocument
from evenbeat.errors import InvalidInput
from evenbeat.importers.files import definition_of, read_job_file, written
from evenbeat.importers.plan import canonical, plan_of
from evenbeat.importers.source import ImportSource, ParsedJob

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
JOB = {"name": "a", "task": "t", "schedule": "@every 1h"}


def listed(tmp_path: Path, text: str, kind: str = "json") -> ImportSource:
    path = tmp_path / f"jobs.{kind}"
    path.write_text(text, encoding="utf-8")
    return read_job_file(path, kind)


# -- reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [[JOB], {"jobs": [JOB]}])
@pytest.mark.parametrize("kind", ["json", "yaml"])
def test_lists_and_what_export_writes(tmp_path: Path, content: Any, kind: str) -> None:
    text = json.dumps(content) if kind == "json" else yaml.safe_dump(content)
    source = listed(tmp_path, text, kind)
    assert source.tag is None
    assert [job.document for job in source.jobs] == [JOB]


def test_yaml_becomes_json_without_a_trace(tmp_path: Path) -> None:
    text = """
- task: t
  run_at: 2030-01-31T09:00:00Z
  payload: {deep: [{er: 1}], when: 2030-01-31}
"""
    (job,) = listed(tmp_path, text, "yaml").jobs
    assert job.where == "job 1 (line 2)"
    assert job.document == {
        "task": "t",
        "run_at": "2030-01-31T09:00:00+00:00",
        "payload": {"deep": [{"er": 1}], "when": "2030-01-31"},
    }


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("{", "json", "is not JSON: line 1"),
        ("a: [", "yaml", "is not YAML: line"),
        ("- !!python/object:os.system {}", "yaml", "is not YAML"),
        ('"x"', "json", "holds no list of jobs, such as"),
        ('{"job": []}', "json", "holds no list of jobs"),
        ("[]", "json", "holds no list of jobs"),
        ("[3]", "json", "job 1: it is not a set of fields, but int"),
        ("- {task: a, 3: b}", "yaml", "job 1 .line 1.: 3 cannot be a field"),
        ("- {task: a, payload: {x: !!binary aGk=}}", "yaml", "a bytes cannot be part of a job"),
        (json.dumps([JOB, {"nmae": "a"}]), "json", "job 2: there is no field 'nmae'"),
        ('{"templates": 5}', "json", "holds no list of jobs"),
        ('{"templates": [{}]}', "json", "each template needs a name"),
    ],
)
def test_a_wrong_file_is_refused_by_its_place(
    tmp_path: Path, text: str, kind: str, says: str
) -> None:
    with pytest.raises(InvalidInput, match=says):
        listed(tmp_path, text, kind)


def test_one_name_in_two_scopes_is_two_jobs(tmp_path: Path) -> None:
    other = JOB | {"scope": {"kind": "tenant", "id": "7"}}
    assert len(listed(tmp_path, json.dumps([JOB, other])).jobs) == 2


def test_aliases_of_aliases_are_refused_before_they_grow(tmp_path: Path) -> None:
    lines = ["- task: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    with pytest.raises(InvalidInput, match=r"/jobs.yaml has more than .* or several files\.$"):
        listed(tmp_path, "\n".join(lines), "yaml")


def test_merge_keys_of_merge_keys_are_refused_before_they_grow(tmp_path: Path) -> None:
    """400 bytes of this ran until they were stopped."""
    lines = ["- &a0 {task: t, name: n}"]
    lines += [f"- &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 10)]
    with pytest.raises(InvalidInput, match=r"more than 2,000,000 parts once its aliases"):
        listed(tmp_path, "\n".join(lines), "yaml")


def test_ordinary_aliases_and_merge_keys_are_used(tmp_path: Path) -> None:
    text = """
- &usual {task: t, max_retries: 5, payload: &p {to: ann}}
- {<<: *usual, name: other, max_retries: 1}
- {task: u, payload: *p}
"""
    first, second, third = (job.document for job in listed(tmp_path, text, "yaml").jobs)
    assert first == {"task": "t", "max_retries": 5, "payload": {"to": "ann"}}
    assert second == first | {"name": "other", "max_retries": 1}
    assert third == {"task": "u", "payload": {"to": "ann"}}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("- {task: t, payload: &p {again: *p}}", "yaml"),
        ("- &p {task: t, <<: [*p, *p]}", "yaml"),
        (f'[{{"task": "t", "payload": {{"x": {"[" * 600}{"]" * 600}}}}}]', "json"),
    ],
)
def test_what_has_no_end_is_refused(tmp_path: Path, text: str, kind: str) -> None:
    with pytest.raises(InvalidInput, match=r"deeper than 40 levels|more than 2,000,000"):
        listed(tmp_path, text, kind)


@pytest.mark.parametrize("kind", ["json", "yaml"])
def test_what_is_nested_too_deeply_is_refused(tmp_path: Path, kind: str) -> None:
    with pytest.raises(InvalidInput, match=rf"is not {kind.upper()}: it is nested too deeply\.$"):
        listed(tmp_path, "[" * 20_000, kind)


def test_two_of_one_name_are_left_to_a_person() -> None:
    jobs = [ParsedJob(f"line {n}", "x", {"name": "a", "task": "t"}) for n in (1, 2)]
    plan = plan_of(ImportSource("tag", jobs), [], NOW)
    assert [step.parsed.where for step in plan.steps] == ["line 1"]
    assert "gets the name 'a', too" in plan.reviews[0].why


# -- one way to say each thing -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "same"),
    [
        ({"schedule": "@every 90m"}, {"schedule": "@every 1h30m"}),
        ({"interval_minutes": 6, "interval_type": "hours"}, {"schedule": "@every 6h"}),
        ({"interval_seconds": 60}, {"schedule": "1m"}),
        ({"schedule_time": "0  9 * *  *"}, {"schedule": "0 9 * * *", "timezone": "UTC"}),
        ({"timeout": "1m30s"}, {"timeout": 90}),
        ({"retry_delays": ["1m", 5]}, {"retry_delays": [60, "5s"]}),
        ({"run_at": "2030-01-31T10:00:00+01:00"}, {"run_at": "2030-01-31T09:00:00Z"}),
        ({"url": "http://a", "source_id": "1"},
         {"task": "crawl", "payload": {"url": "http://a", "source_id": "1"}}),
        ({"tags": ["a", "b", "a"], "priority": None}, {"tags": ["a", "b"]}),
        ({"window": "mon-fri 9:00-17:00"}, {"window": "Mon-Fri 09:00-17:00 UTC"}),
    ],
)  # fmt: skip
def test_the_same_thing_said_in_two_ways(given: dict[str, Any], same: dict[str, Any]) -> None:
    assert canonical(given) == canonical(same)


@pytest.mark.parametrize(
    "wrong",
    [
        {"schedule": "often"},
        {"timeout": "soon"},
        {"run_at": "then"},
        {"run_at": "2030-01-01T00:00:00"},
        {"interval_minutes": 1.5},
        {"interval_minutes": 10**30, "interval_type": "days"},
        {"window": "never"},
    ],
)
def test_what_cannot_be_understood_is_left_to_a_person(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        canonical(wrong)
    plan = plan_of(ImportSource(jobs=[ParsedJob("job 1", "x", {"task": "x"} | wrong)]), [], NOW)
    assert len(plan.reviews) + len(plan.steps) == 1


def test_the_first_run_where_it_is_known_beforehand() -> None:
    given = [
        {"schedule": "0 9 * * *", "timezone": "Europe/Berlin"},
        {"schedule": "@every 1h", "anchor_at": "2026-05-01T00:20:00Z"},
        {"schedule": "@every 1h"},
        {"run_at": "2026-05-02T00:00:00Z"},
        {"run_at": "2020-05-02T00:00:00Z"},
        {"schedule": "0 9 * * *", "paused": True},
        {},
    ]
    source = ImportSource(jobs=[ParsedJob("", "", {"task": "t"} | one) for one in given])
    runs = [step.next_run for step in plan_of(source, [], NOW).steps]
    assert runs == [
        datetime(2026, 5, 2, 7, tzinfo=UTC),
        datetime(2026, 5, 1, 12, 20, tzinfo=UTC),
        None,
        datetime(2026, 5, 2, tzinfo=UTC),
        NOW,
        None,
        None,
    ]


# -- writing -------------------------------------------------------------------------------------

SAID_OTHERWISE = {
    "url", "source_id", "source_name",  # in the payload
    "interval_minutes", "interval_type", "interval_seconds", "schedule_time", "schedule_enabled",
    "wording",
    "delay",  # run_at
    "after_on",  # after
}  # fmt: skip


def test_every_field_of_a_job_is_written() -> None:
    """A field that jobs get must come to `importers/files.py`, or a move would lose it."""
    definition = definition_of(ANSWER | {"status": "scheduled"})
    interval = definition_of(ANSWER | {"schedule_kind": "interval"})
    cron = definition_of(ANSWER | {"schedule_kind": "cron"})
    after = definition_of(ANSWER | {"schedule_kind": "after"})
    assert set(JobCreate.model_fields) - SAID_OTHERWISE == {*definition, *interval, *cron, *after}


# A job as the API answers it, with something in every field.
ANSWER = {
    **dict.fromkeys(JobDocument.model_fields, "x"),
    "scope": {"kind": "tenant", "id": "1"},
    "metadata": {"more": 1},
    "tags": ["a"],
    "after": [{"job": "1", "name": "a", "on": "any"}],
    "schedule_kind": "once",
}


def test_yaml_is_written_for_people() -> None:
    tags = ["ä", "b"]
    text = written([{"name": "1e3", "tags": tags}, {"name": "2030-01-01", "tags": tags}], "yaml")
    assert "ä" in text
    assert "&id" not in text
    assert yaml.safe_load(text)["jobs"] == [
        {"name": "1e3", "tags": tags},
        {"name": "2030-01-01", "tags": tags},
    ]
