"""The named SQL statements, read from `sql/*.sql` and bound to a schema."""

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from evenbeat.domain.execution import Execution
from evenbeat.domain.job import Job, JobSpec, spec_columns
from evenbeat.domain.webhooks import Webhook
from evenbeat.plugins import folders

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n?", re.MULTILINE)
_WRITES = re.compile(r"\b(INSERT|UPDATE|DELETE|TRUNCATE|pg_notify)\b")
_PARAMETER = re.compile(r"%\((\w+)\)s")
_SCHEMA = re.compile(r"\bevenbeat\.")
_HOT_FILES = frozenset({"journey.sql", "keyed_claims.sql", "limits.sql"})

_SPEC_COLUMNS = tuple(spec_columns(JobSpec(task="any")))

COLUMN_LISTS = {
    "job": ", ".join(f"j.{name}" for name in Job._fields),
    "job_but_plan": ", ".join(f"j.{name}" for name in Job._fields if name != "plan_time"),
    "spec_columns": ", ".join(_SPEC_COLUMNS),
    "spec_values": ", ".join(f"%({name})s" for name in _SPEC_COLUMNS),
    "spec_changes": ", ".join(f"{c} = %({c})s" for c in _SPEC_COLUMNS if c != "priority"),
    "execution": ", ".join(f"e.{name}" for name in Execution._fields),
    "webhook": ", ".join(f"w.{name}" for name in Webhook._fields),
}

# One row for each (queue, task, priority) that has waiting jobs, with its oldest due time: the
# inside of a recursive query, which is told its own name. It hops from lane to lane through the
# index instead of reading the jobs between. Jobs with a concurrency key have lanes of their own.
_LANES = """
    (SELECT queue, task, priority, next_run_at
     FROM evenbeat.jobs
     WHERE concurrency_key IS {null}
       AND status IN ('pending', 'scheduled') AND next_run_at IS NOT NULL
     ORDER BY queue, task, priority, next_run_at
     LIMIT 1)
    UNION ALL
    SELECT hop.*
    FROM {name} CROSS JOIN LATERAL (
        SELECT j.queue, j.task, j.priority, j.next_run_at
        FROM evenbeat.jobs j
        WHERE j.concurrency_key IS {null}
          AND j.status IN ('pending', 'scheduled') AND j.next_run_at IS NOT NULL
          AND (j.queue, j.task, j.priority) > ({name}.queue, {name}.task, {name}.priority)
        ORDER BY j.queue, j.task, j.priority, j.next_run_at
        LIMIT 1) hop
"""
_LANES_BY = re.compile(r"\{(free|limited)_lanes_by (\w+)\}")


class Statement(NamedTuple):
    """One statement: `hot` ones are a job's journey and want the plan that the index dictates."""

    name: str
    text: str
    hot: bool
    writes: bool
    numbered: bytes
    """The text with `$1`, `$2` … in place of the parameters' names."""
    names: tuple[str, ...]
    """The parameters, in the order of their numbers."""


@cache
def load_statements(schema: str) -> dict[str, Statement]:
    """Every statement by name, with `evenbeat.` replaced by the schema's name."""
    statements: dict[str, Statement] = {}
    sql_folders = (Path(__file__).parent / "sql", *folders("sql"))
    for file in (file for folder in sql_folders for file in sorted(folder.glob("*.sql"))):
        hot = file.name in _HOT_FILES
        for name, text in _split(file.read_text(encoding="utf-8")):
            if name in statements:
                raise ValueError(f"two statements are named {name!r}")
            statements[name] = bind(name, text, schema, hot=hot)
    return statements


def in_schema(text: str, schema: str) -> str:
    """The same SQL in another schema."""
    return _SCHEMA.sub(lambda _: f'"{schema}".', text)


def _split(text: str) -> list[tuple[str, str]]:
    parts = _NAME.split(text)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


def bind(name: str, text: str, schema: str, *, hot: bool) -> Statement:
    """Make a statement of SQL text: comments go; lanes, column lists and the schema's name come
    in."""
    body = _COMMENT.sub("", text).strip().rstrip(";")
    body = _LANES_BY.sub(_lanes, body)
    for placeholder, columns in COLUMN_LISTS.items():
        body = body.replace("{" + placeholder + "}", columns)
    # The tag makes a statement recognisable in the server's log and in pg_stat_statements.
    tagged = f"/* evenbeat:{name} */ {in_schema(body, schema)}"
    numbered, names = _numbered(tagged)
    return Statement(name, tagged, hot, bool(_WRITES.search(body)), numbered, names)


def _numbered(text: str) -> tuple[bytes, tuple[str, ...]]:
    names = tuple(dict.fromkeys(_PARAMETER.findall(text)))
    numbers = {name: f"${n}" for n, name in enumerate(names, 1)}
    numbered = _PARAMETER.sub(lambda found: numbers[found[1]], text).replace("%%", "%")
    return numbered.encode(), names


def _lanes(asked: re.Match[str]) -> str:
    kind, name = asked.groups()
    return _LANES.format(name=name, null="NULL" if kind == "free" else "NOT NULL")
