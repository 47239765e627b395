"""`evenbeat template`, `job add --after`, and both of them exported and imported again."""

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from said import Command
from test_import_command import done, jobs_of

MAIL = """\
name: mail
description: A mail to somebody.
parameters:
  to: {pattern: ".+@.+", description: Whom.}
  times: {type: integer, default: 3, min: 1}
  loud: {type: boolean, required: false}
body:
  task: send_email
  name: mail-{{to}}
  payload: {to: "{{to}}", loud: "{{loud}}", text: "{{times}} times"}
  max_retries: "{{times}}"
  delay: 1h
"""


@pytest.fixture
def mail(tmp_path: Path) -> str:
    (tmp_path / "mail.yaml").write_text(MAIL)
    return "mail.yaml"


def test_a_template_from_a_file_to_a_job(evenbeat: Command, mail: str) -> None:
    assert "no templates" in done(evenbeat("template", "list")).err
    assert "version 1" in done(evenbeat("template", "save", mail)).out
    assert "version 1" in done(evenbeat("template", "save", mail)).out
    assert "mail" in done(evenbeat("template", "list")).out
    shown = done(evenbeat("template", "show", "mail")).out
    for words in ("Whom.", "required", "integer", "min 1", "send_email"):
        assert words in shown

    preview = done(evenbeat("template", "use", "mail", "--set", "to=a@b", "--preview", "--json"))
    assert preview.json["job"]["payload"] == {"to": "a@b", "loud": None, "text": "3 times"}
    assert jobs_of(evenbeat) == []

    use = ("template", "use", "mail", "--set", "to=7@b", "--set", "times=5", "--set", "loud=true")
    assert "mail-7@b" in done(evenbeat(*use)).out
    (job,) = jobs_of(evenbeat)
    assert job["payload"] == {"to": "7@b", "loud": True, "text": "5 times"}
    assert (job["max_retries"], job["metadata"]["template"]) == (5, "mail")

    assert done(evenbeat("template", "delete", "mail", "--yes")).out.strip() == "mail is deleted."
    assert evenbeat("template", "show", "mail").code == 4
    assert len(jobs_of(evenbeat)) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "1 parameter must be given: to"),
        (("--set", "to"), "is not of the form KEY=VALUE"),
        (("--set", "to=nobody"), "must match"),
        (("--set", "to=a@b", "--set", "times=many"), "it must be a whole number"),
        (("--set", "to=a@b", "--set", "cc=x"), "There is no parameter 'cc'; there are: to"),
    ],
)
def test_what_is_wrong_is_said(
    evenbeat: Command,
    mail: str,
    options: tuple[str, ...],
    words: str,
) -> None:
    done(evenbeat("template", "save", mail))
    said = evenbeat("template", "use", "mail", *options)
    assert (said.code, words in said.err) == (2, True), said.err


def test_files_that_are_no_templates(evenbeat: Command, tmp_path: Path) -> None:
    for text, words in (
        ("[1]", "is not a template"),
        ("{}", "has no name"),
        ('{"name": "x"}', "body"),
        ('{"name": "x", "body": {"task": "{{a}}"}}', "no parameter 'a'"),
    ):
        (tmp_path / "file.json").write_text(text)
        said = evenbeat("template", "save", "file.json")
        assert (said.code, words in said.err) == (2, True), said.err


def test_jobs_after_jobs_on_the_command_line(evenbeat: Command) -> None:
    for name in ("a", "b"):
        done(evenbeat("job", "add", "noop", "--name", name, "--delay", "1h"))
    said = done(evenbeat("job", "add", "noop", "--name", "c", "--after", "a", "--after", "b",
                         "--after-on", "any"))  # fmt: skip
    assert "after a and b have ended." in said.out
    assert "waiting for a" in done(evenbeat("job", "show", "c")).out
    assert "forever: a → c → a" in evenbeat("job", "edit", "a", "--after", "c").err
    kept = evenbeat("job", "delete", "a", "--yes")
    assert (kept.code, "waited for by c" in kept.err) == (1, True)
    assert "c" in done(evenbeat("job", "list", "--kind", "after")).out
    done(evenbeat("job", "edit", "c", "--after", "b"))
    done(evenbeat("job", "delete", "b", "--yes", "--force"))
    assert "was deleted" in done(evenbeat("job", "show", "c")).out
    assert evenbeat("job", "pause", "c", "--force").code == 2


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_what_is_exported_comes_back_in_an_order_that_works(
    evenbeat: Command,
    database_url: str,
    tmp_path: Path,
    mail: str,
    form: str,
) -> None:
    done(evenbeat("template", "save", mail))
    for name in ("z", "y", "x"):
        done(evenbeat("job", "add", "noop", "--name", name, "--delay", "1h"))
    done(evenbeat("job", "edit", "z", "--after", "y"))
    done(evenbeat("job", "edit", "y", "--after", "x", "--after-on", "failure"))
    done(evenbeat("export", "--format", form, "--out", f"out.{form}"))
    text = (tmp_path / f"out.{form}").read_text()
    same = done(evenbeat("import", form, f"out.{form}", "--json")).json
    assert {step["action"] for step in same["plan"]} == {"unchanged"}
    assert same["remarks"] == []

    with psycopg.connect(database_url) as connection:
        connection.execute("TRUNCATE evenbeat.jobs, evenbeat.dependencies, evenbeat.templates")
    planned = done(evenbeat("import", form, f"out.{form}"))
    assert "mail" in planned.out
    assert jobs_of(evenbeat) == []
    done(evenbeat("import", form, f"out.{form}", "--apply"))
    found = {job["name"]: _awaited(job) for job in jobs_of(evenbeat)}
    assert found == {"x": [], "y": [("x", "failure")], "z": [("y", "success")]}
    assert done(evenbeat("export", "--format", form)).out.count("mail") == text.count("mail")
    again = done(evenbeat("import", form, f"out.{form}", "--apply", "--json")).json
    assert (again["added"], again["changed"]) == (0, 0)


def _awaited(job: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["name"], one["on"]) for one in job.get("after") or ()]


def test_a_file_of_templates_alone(evenbeat: Command, tmp_path: Path) -> None:
    template = {"name": "x", "parameters": {}, "body": {"task": "noop"}}
    (tmp_path / "t.json").write_text(json.dumps({"templates": [template]}))
    done(evenbeat("import", "json", "t.json", "--apply"))
    assert done(evenbeat("template", "show", "x", "--json")).json["version"] == 1
    (tmp_path / "t.json").write_text(json.dumps({"templates": [{"body": {}}]}))
    assert "each template needs a name" in evenbeat("import", "json", "t.json").err
