"""The named SQL statements, read from `sql/*.sql` and bound to a schema."""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from evenbeat.domain.batch import BatchRecord
from evenbeat.domain.execution import Execution
from evenbeat.domain.job import JobRecord, JobSpec, spec_columns
from evenbeat.domain.step import Step
from evenbeat.domain.webhooks import Webhook
from evenbeat.plugins import folders

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n?", re.MULTILINE)
_WRITES = re.compile(r"\b(INSERT|UPDATE|DELETE|TRUNCATE|pg_notify)\b")
_PARAMETER = re.compile(r"%\((\w+)\)s")
_SCHEMA = re.compile(r"\bevenbeat\.")
_HOT_FILES = frozenset(
    {
        "journey.sql",
        "keyed_claims.sql",
        "fair_claims.sql",
        "limits.sql",
        "steps.sql",
        "run_logs.sql",
    }
)
_REPORTS = "reads.sql"

_PLANS = frozenset({"plan_time", "next_run_at"})
_UNIQUE = frozenset({"name", "dedup_key", "unique_key"})
_UNTOUCHED = frozenset({"id", "created_at", "updated_at"})
_SPEC_COLUMNS = tuple(spec_columns(JobSpec(task="any")))

SNIPPETS = {
    "now": "coalesce(%(now)s::timestamptz, now())",
    "job": ", ".join(f"j.{name}" for name in JobRecord._fields),
    "job_but_plan": ", ".join(f"j.{name}" for name in JobRecord._fields if name != "plan_time"),
    "spec_changes": ", ".join(f"{c} = %({c})s" for c in _SPEC_COLUMNS if c != "priority"),
    "spec_of_call": ", ".join(f"{c} = excluded.{c}" for c in _SPEC_COLUMNS),
    "restored": ", ".join(f"{c} = r.{c}" for c in JobRecord._fields if c not in _UNTOUCHED),
    "execution": ", ".join(f"e.{name}" for name in Execution._fields),
    "batch": ", ".join(f"b.{name}" for name in BatchRecord._fields),
    "step": ", ".join(f"s.{name}" for name in Step._fields),
    "webhook": ", ".join(f"w.{name}" for name in Webhook._fields),
    # What a run of the job `j` is expected to take; before its first run, what its task takes.
    "cost": "coalesce(j.cost_ms, j.average_duration_ms, d.ms)",
    "task_durations": "(SELECT task, sum(duration_ms) / sum(completed) AS ms FROM evenbeat.outcomes"
    " GROUP BY task HAVING sum(completed) > 0) d",
}

# Whether the batch `b` has nothing left that will or may still run. Each state is looked into from
# its newest job, which leaves it last where jobs run in their order: then the first entry of the
# index is the answer. (A range of one state, unlike an equality, lets no other index have that
# order.) Where nothing is left but jobs that wait for others, those count that can still start: all
# that they wait for has ended, or goes on outside of the batch.
SNIPPETS["is_over"] = """CASE
    WHEN EXISTS (SELECT FROM evenbeat.batches n WHERE n.parent_id = b.id AND n.ended_at IS NULL)
    THEN false
    WHEN EXISTS (
        SELECT FROM unnest(ARRAY['running', 'scheduled', 'paused', 'pending']) AS live (status)
        CROSS JOIN LATERAL (
            SELECT FROM evenbeat.jobs j
            WHERE j.batch_id = b.id AND j.status BETWEEN live.status AND live.status
              AND (j.status <> 'pending' OR j.next_run_at IS NOT NULL OR j.schedule_kind <> 'after')
            ORDER BY j.status DESC, j.id DESC
            LIMIT 1) newest)
    THEN false
    ELSE NOT EXISTS (
        SELECT FROM evenbeat.jobs w
        WHERE w.batch_id = b.id AND w.status = 'pending'
          AND (NOT EXISTS (SELECT FROM evenbeat.dependencies d
                           WHERE d.job_id = w.id AND d.satisfied_at IS NULL)
               OR EXISTS (SELECT FROM evenbeat.dependencies d
                          LEFT JOIN evenbeat.jobs p ON p.id = d.predecessor_id
                          LEFT JOIN evenbeat.batches o ON o.id = d.predecessor_id
                          WHERE d.job_id = w.id AND d.satisfied_at IS NULL
                            AND (p.status IN ('pending', 'scheduled', 'running', 'paused')
                                 AND p.batch_id IS DISTINCT FROM b.id
                                 OR o.status IN ('open', 'running')))))
    END"""

# Whether the job `j`, which has a key that is unique for a period, keeps others from having it.
SNIPPETS["holds_key"] = f"""CASE WHEN j.debounce_seconds IS NOT NULL
    THEN j.status IN ('pending', 'scheduled', 'paused')
    ELSE coalesce(j.created_at + coalesce(j.throttle_seconds, j.unique_for_seconds)
                                 * interval '1s' > {SNIPPETS["now"]}, false)
         AND (j.throttle_seconds IS NOT NULL OR j.status NOT IN ('failed', 'cancelled')) END"""
# In the words of the index `jobs_unique`: of debounced jobs, those that have never started.
SNIPPETS["in_jobs_unique"] = (
    "unique_key IS NOT NULL AND (debounce_seconds IS NULL OR run_count = 0)"
)

# One row for each (queue, task, priority) that has waiting jobs, with its oldest due time: the
# inside of a recursive query, which is told its own name. It hops from lane to lane through the
# index instead of reading the jobs between. Each kind of job has lanes of its own (`_KINDS`).
# With `from_frontier`, what was due before `since` is passed over without a look at its rows.
_LANES = """
    (SELECT queue, task, priority, next_run_at
     FROM evenbeat.jobs
     WHERE {{{kind}}}
       AND {{waiting}}{since}
     ORDER BY queue, task, priority, next_run_at
     LIMIT 1)
    UNION ALL
    SELECT hop.*
    FROM {name} CROSS JOIN LATERAL (
        SELECT j.queue, j.task, j.priority, j.next_run_at
        FROM evenbeat.jobs j
        WHERE {{{kind} j}}
          AND {{waiting j}}{since}
          AND (j.queue, j.task, j.priority) > ({name}.queue, {name}.task, {name}.priority)
        ORDER BY j.queue, j.task, j.priority, j.next_run_at
        LIMIT 1) hop
"""
# The end of each claim: what was picked becomes running, with an execution that is open.
_CLAIMED = re.compile(r"\{claimed at (now|present)\}")
_TAKE_PICKED = """claimed AS (
    UPDATE evenbeat.jobs j
    SET status = 'running',
        lock_token = evenbeat.uuid7({moment}),
        locked_by = %(worker_id)s,
        lock_acquired_at = {moment},
        lock_expires_at = {moment}
                          + make_interval(secs => coalesce(j.lease_seconds, %(lease_seconds)s)),
        started_at = {moment},
        updated_at = {moment},
        run_count = run_count + 1,
        priority = priority - aging_bonus,
        aging_bonus = 0
    WHERE j.id = ANY (ARRAY(SELECT id FROM picked))
    RETURNING j.*
),
opened AS (
    INSERT INTO evenbeat.executions (id, job_id, plan_time, started_at, worker_id, wait_ms,
                                     execution_number, retry_attempt, release_count, status)
    SELECT lock_token, id, plan_time, started_at, locked_by,
           extract(epoch FROM started_at - next_run_at) * 1000,
           run_count, current_retry_count, release_count, 'running'
    FROM claimed
)"""
# Whether jobs of a queue may be claimed: neither it is paused nor everything.
_OPEN = re.compile(r"\{open (\w+)\}")
_IS_OPEN = r"""NOT EXISTS (SELECT FROM evenbeat.queues q
    WHERE q.name = \1.queue AND q.paused_at IS NOT NULL)
    AND NOT EXISTS (SELECT FROM evenbeat.fleet_pause f
                    WHERE f.ends_at IS NULL OR f.ends_at > {now})"""
# Which jobs are of which kind, in the words of the partial indexes: those without a key, those
# with a concurrency key, and those with a fair key. No job is of two kinds.
_KINDS = {
    "free": "{of}concurrency_key IS NULL AND {of}fair_key IS NULL",
    "limited": "{of}concurrency_key IS NOT NULL",
    "fair": "{of}fair_key IS NOT NULL",
}
# Jobs that can be claimed once they are due; and of those with a fair key, the ones that are due
# and the ones that are for later. (These words rule out the index on both, which a planner that
# takes the table for empty might prefer.)
_CONDITIONS = _KINDS | {
    "waiting": "{of}status IN ('pending', 'scheduled') AND {of}next_run_at IS NOT NULL",
    "pending": "starts_with({of}status, 'pending') AND {of}next_run_at IS NOT NULL",
    "scheduled": "starts_with({of}status, 'scheduled')",
}
_CONDITION = re.compile(rf"\{{({'|'.join(_CONDITIONS)})(?: (\w+))?\}}")
_LANES_BY = re.compile(r"\{(free|limited|fair)_lanes_by (\w+)( from_frontier)?\}")
_SINCE = " AND next_run_at >= coalesce(%(since)s::timestamptz, '-infinity')"
# The lanes of all kinds, for the beginning of a recursive query.
_ALL_LANES = """
free_lanes AS ({free_lanes_by free_lanes}),
limited_lanes AS ({limited_lanes_by limited_lanes}),
fair_lanes AS ({fair_lanes_by fair_lanes}),
lanes AS (
    SELECT *, 'free' AS kind FROM free_lanes
    UNION ALL SELECT *, 'limited' FROM limited_lanes
    UNION ALL SELECT *, 'fair' FROM fair_lanes
)"""
# A part of a query that each kind of job needs of its own, as the planner finds a partial index
# only by its very words. With a table of lanes, each of these is asked for its own kind only.
_EACH_KIND = re.compile(r"\{each kind(?: of (\w+))?\}(.*?)\{end\}", re.DOTALL)


class Statement(NamedTuple):
    """One statement: `hot` ones are a job's journey and want the plan that the index dictates, a
    `report` may come from a replica where the caller says so."""

    name: str
    text: str
    hot: bool
    report: bool
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
        parts = _NAME.split(file.read_text(encoding="utf-8"))[1:]
        for name, text in zip(parts[::2], parts[1::2], strict=True):
            if name in statements:
                raise ValueError(f"two statements are named {name!r}")
            statements[name] = bind(
                name, text, schema, hot=file.name in _HOT_FILES, report=file.name == _REPORTS
            )
    return statements


def in_schema(text: str, schema: str) -> str:
    """The same SQL in another schema."""
    return _SCHEMA.sub(lambda _: f'"{schema}".', text)


def bind(name: str, text: str, schema: str, *, hot: bool, report: bool = False) -> Statement:
    """Make a statement of SQL text: comments go; lanes, kinds, column lists and the schema's name
    come in."""
    body = _COMMENT.sub("", text).strip().rstrip(";")
    body = body.replace("{all_lanes}", _ALL_LANES)
    body = _LANES_BY.sub(
        lambda lanes: _LANES.format(name=lanes[2], kind=lanes[1], since=_SINCE if lanes[3] else ""),
        body,
    )
    body = _EACH_KIND.sub(_for_each_kind, body)
    body = _CONDITION.sub(
        lambda one: _CONDITIONS[one[1]].format(of=f"{one[2]}." if one[2] else ""), body
    )
    body = _CLAIMED.sub(
        lambda at: _TAKE_PICKED.replace(
            "{moment}", "{now}" if at[1] == "now" else "(SELECT moment FROM present)"
        ),
        body,
    )
    body = _OPEN.sub(_IS_OPEN, body)
    for placeholder, snippet in SNIPPETS.items():
        body = body.replace("{" + placeholder + "}", snippet)
    # The tag makes a statement recognisable in the server's log and in pg_stat_statements.
    tagged = f"/* evenbeat:{name} */ {in_schema(body, schema)}"
    return _with_numbers(Statement(name, tagged, hot, report, bool(_WRITES.search(body)), b"", ()))


def with_columns(insert: Statement, name: str, columns: Iterable[str]) -> Statement:
    """An INSERT of these columns, under a name of its own. A plan of None means now."""
    values = {column: f"%({column})s" for column in columns}
    for plan in _PLANS & values.keys():
        values[plan] = f"coalesce({values[plan]}::timestamptz, {SNIPPETS['now']})"
    text = insert.text.replace("{columns}", ", ".join(values))
    text = text.replace("{values}", ", ".join(values.values()))
    on_conflict = "ON CONFLICT DO NOTHING" if _UNIQUE & values.keys() else ""
    text = text.replace("{on_conflict}", on_conflict)
    return _with_numbers(insert._replace(name=name, text=text))


def _with_numbers(statement: Statement) -> Statement:
    names = tuple(dict.fromkeys(_PARAMETER.findall(statement.text)))
    numbers = {name: f"${n}" for n, name in enumerate(names, 1)}
    text = _PARAMETER.sub(lambda parameter: numbers[parameter[1]], statement.text)
    return statement._replace(numbered=text.replace("%%", "%").encode(), names=names)


def _for_each_kind(block: re.Match[str]) -> str:
    parts = []
    for kind in _KINDS:
        guard = f"{block[1]}.kind = '{kind}' AND " if block[1] else ""
        parts.append(f"({block[2].strip().replace('{kind j}', guard + f'{{{kind} j}}')})")
    return " UNION ALL ".join(parts)
