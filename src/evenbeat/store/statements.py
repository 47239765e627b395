"""The named SQL statements, read from `sql/*.sql` and bound to a schema."""

import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from evenbeat.domain.execution import Execution
from evenbeat.domain.job import Job
from evenbeat.domain.webhooks import Webhook

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n?", re.MULTILINE)
_WRITES = re.compile(r"\b(INSERT|UPDATE|DELETE|TRUNCATE|pg_notify)\b")
_SCHEMA = re.compile(r"\bevenbeat\.")
_HOT_FILES = frozenset({"journey.sql", "limits.sql", "limit_table.sql"})

COLUMN_LISTS = {
    "job": ", ".join(f"j.{name}" for name in Job._fields),
    "job_but_plan": ", ".join(f"j.{name}" for name in Job._fields if name != "plan_time"),
    "execution": ", ".join(f"e.{name}" for name in Execution._fields),
    "webhook": ", ".join(f"w.{name}" for name in Webhook._fields),
}


class Statement(NamedTuple):
    """One statement: `hot` ones are a job's journey and want the plan that the index dictates."""

    name: str
    text: str
    hot: bool
    writes: bool


@cache
def load_statements(schema: str) -> dict[str, Statement]:
    """Every statement by name, with `evenbeat.` replaced by the schema's name."""
    statements: dict[str, Statement] = {}
    for file in sorted(files(__package__).joinpath("sql").iterdir(), key=lambda f: f.name):
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
    """Make a statement of SQL text: comments go, column lists and the schema's name come in."""
    body = _COMMENT.sub("", text).strip().rstrip(";")
    for placeholder, columns in COLUMN_LISTS.items():
        body = body.replace("{" + placeholder + "}", columns)
    # The tag makes a statement recognisable in the server's log and in pg_stat_statements.
    tagged = f"/* evenbeat:{name} */ {in_schema(body, schema)}"
    return Statement(name, tagged, hot, bool(_WRITES.search(body)))
