"""The named statements: each parses on the real schema, says what it guarantees, and is used."""

import ast
import re
from pathlib import Path

import pytest

import evenbeat
from evenbeat.domain.job import JobSpec, spec_columns
from evenbeat.store.statements import bind, in_schema, load_statements, with_columns

SOURCE = Path(evenbeat.__file__).parent
FILES = sorted(SOURCE.glob("*/sql/*.sql"))
STATEMENTS = dict(load_statements("evenbeat"))
for name in ("add", "add_debounced"):
    STATEMENTS[name] = with_columns(
        STATEMENTS[name],
        name,
        ["id", "status", "plan_time", "next_run_at", *spec_columns(JobSpec("t"))],
    )
PARAMETER = re.compile(r"%\((\w+)\)s")


def named_parts() -> list[tuple[str, str]]:
    """Every name with the text below it, straight from the files."""
    parts = []
    for file in FILES:
        pieces = re.split(r"^-- name: (.*)$", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
        parts += zip(pieces[1::2], pieces[2::2], strict=True)
    return parts


def strings_in(folder: Path) -> set[str]:
    nodes = (node for tree in trees(folder) for node in ast.walk(tree))
    return {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def trees(folder: Path) -> list[ast.Module]:
    return [ast.parse(file.read_text(encoding="utf-8")) for file in folder.rglob("*.py")]


# The calls in the store whose first argument is the name of a statement.
ASKING = {"rows", "row", "insert", "_jobs", "_step", "_tokens"}


def asked_for() -> set[str]:
    folders = (SOURCE / "store", SOURCE / "crawl")
    calls = (node for folder in folders for tree in trees(folder) for node in ast.walk(tree))
    return {
        call.args[0].value
        for call in calls
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in ASKING
        and call.args
        and isinstance(call.args[0], ast.Constant)
    }


def numbered(text: str) -> tuple[str, int]:
    """The text with $1, $2 … for its parameters, and how many there are."""
    names = list(dict.fromkeys(PARAMETER.findall(text)))
    return PARAMETER.sub(lambda match: f"${names.index(match[1]) + 1}", text), len(names)


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_parses_and_plans_on_the_real_schema_and_is_known_to_write(connect, name):
    connection = connect()
    connection.execute("CREATE TEMPORARY TABLE evenbeat_stage (LIKE evenbeat.jobs)")
    text, count = numbered(STATEMENTS[name].text)
    assert not re.search("[%{]", text)
    if re.search(r"\*/ (CREATE|DROP) ", text):  # has no plan
        connection.execute("DROP TABLE pg_temp.evenbeat_stage")
        connection.execute(text.encode())
        return
    connection.execute(f"PREPARE this AS {text}".encode())
    values = f"({', '.join(['NULL'] * count)})" if count else ""
    plan = connection.execute(f"EXPLAIN EXECUTE this{values}".encode()).fetchall()
    changes = any(re.search(r"(Insert|Update|Delete) on ", line) for (line,) in plan)
    assert STATEMENTS[name].writes or not changes


@pytest.mark.parametrize(("name", "text"), named_parts(), ids=[name for name, _ in named_parts()])
def test_a_statement_says_what_it_guarantees(name, text):
    assert re.fullmatch(r"[a-z][a-z0-9_]*", name)
    first = text.splitlines()[1]
    assert re.match(r"-- [A-Z].{6,}", first), f"{name} begins with {first!r}"


def test_names_are_unique():
    names = [name for name, _ in named_parts()]
    assert len(names) == len(set(names)) == len(STATEMENTS)


def test_two_statements_of_one_name_are_refused(monkeypatch, tmp_path):
    for file in ("a.sql", "b.sql"):
        (tmp_path / file).write_text("-- name: same\n-- Nothing.\nSELECT 1;\n")
    monkeypatch.setattr("evenbeat.store.statements.folders", lambda _: [tmp_path])
    with pytest.raises(ValueError, match="two statements are named 'same'"):
        load_statements.__wrapped__("evenbeat")


def test_every_statement_that_is_asked_for_exists():
    assert len(asked_for()) > 30
    assert asked_for() <= set(STATEMENTS)


def test_every_statement_is_used():
    assert set(STATEMENTS) <= strings_in(SOURCE)


def test_the_journey_is_hot_and_nothing_else_is():
    hot = {statement.name for statement in STATEMENTS.values() if statement.hot}
    assert {"claim", "finish", "renew", "add", "release", "expired"} <= hot
    assert not hot & {"cancel", "job", "age", "queue_depths", "prune_executions"}


def test_a_statement_carries_its_name_to_the_server():
    assert STATEMENTS["claim"].text.startswith("/* evenbeat:claim */ WITH")


def test_comments_stay_behind_and_the_schemas_name_comes_in():
    text = "-- About evenbeat.jobs.\nSELECT {execution}\n  -- more\nFROM evenbeat.executions e;\n"
    bound = bind("some", text, "my_app", hot=False)
    assert bound.text.startswith("/* evenbeat:some */ SELECT e.id, e.job_id, ")
    assert bound.text.endswith('FROM "my_app".executions e')
    assert "--" not in bound.text
    assert not bound.writes


def test_only_the_schemas_name_is_replaced():
    text = "SELECT evenbeat.uuid7(now()), myevenbeat.x, 'evenbeat:' FROM evenbeat_stage"
    expected = "SELECT \"a\\b\".uuid7(now()), myevenbeat.x, 'evenbeat:' FROM evenbeat_stage"
    assert in_schema(text, "a\\b") == expected
