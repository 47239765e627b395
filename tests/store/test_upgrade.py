"""An upgrade from the last landed schema: the same tables as in a new database, and no row lost."""

from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest

from evenbeat.domain.decision import decide
from evenbeat.domain.execution import Outcome
from evenbeat.domain.states import ExecutionStatus
from evenbeat.errors import SchemaBehind
from evenbeat.store.health import TableQueries
from evenbeat.store.migrate import migrate, migrations
from evenbeat.store.statements import in_schema
from evenbeat.store.store import Store

# The table of versions as it was, and the migrations that the last landed Evenbeat had.
LANDED = 3
VERSIONS = """
CREATE SCHEMA evenbeat;
CREATE TABLE evenbeat.migrations (
    version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now());
"""

# A row or two in every table, with a value in each column that another schema could lose.
ROWS = """
INSERT INTO evenbeat.jobs (id, created_at, updated_at, plan_time, next_run_at, status, task,
    payload, priority, aging_bonus, release_count, burst_count, schedule_kind, interval_seconds,
    anchor_at, name, metadata, concurrency_key, concurrency_limit, rate_limit,
    retention_seconds)
VALUES
    (md5('due')::uuid, now(), now(), now(), now(), 'pending', 'noop', '{"n": 1}',
     70, 20, 3, 0, 'once', NULL, NULL, 'due', '{"tags": ["a"]}', NULL, NULL, NULL, 60),
    (md5('later')::uuid, now(), now(), now() + '1h', now() + '1h', 'scheduled', 'noop', '{}',
     0, 0, 0, 7, 'interval', 3600, now(), 'later', '{}', 'key', 2, '10/m', NULL);
INSERT INTO evenbeat.executions (id, job_id, plan_time, started_at, completed_at, worker_id,
    execution_number, retry_attempt, release_count, status, error_code, result)
SELECT gen_random_uuid(), md5('due')::uuid, now(), now(), now(), gen_random_uuid(), n, 0, n,
       'cancelled', 'released', to_jsonb(n) FROM generate_series(0, 2) AS n;
INSERT INTO evenbeat.workers VALUES (gen_random_uuid(), 'host', 1, 2.5, '0.1', '{a}', NULL, 4, 1,
    'draining', now(), now(), '{"name": "shop", "version": "1"}');
INSERT INTO evenbeat.queues VALUES ('slow', now());
INSERT INTO evenbeat.chores VALUES ('figures', NULL, now(), now());
INSERT INTO evenbeat.figures VALUES ('jobs', '{"pending": 1}', now());
INSERT INTO evenbeat.rebalances (id, created_at, old_score, new_score, old_peak, new_peak)
VALUES (md5('r')::uuid, now(), 50, 90, 4, 2);
INSERT INTO evenbeat.rebalance_moves VALUES
    (md5('r')::uuid, md5('later')::uuid, 'later', now(), now(), now(), now(), NULL);
INSERT INTO evenbeat.distribution_history VALUES (now(), 1, 2, 3, 4);
INSERT INTO evenbeat.outcomes VALUES (now(), 'noop', 1, 2, 3, 4, 5, 6);
INSERT INTO evenbeat.uncounted VALUES (gen_random_uuid());
INSERT INTO evenbeat.job_counts VALUES ('pending', 'default', 'noop', 'once', 1);
INSERT INTO evenbeat.tasks VALUES ('noop', 'default', 'async', '{}', 'doc', '{}', now());
INSERT INTO evenbeat.tokens VALUES
    (gen_random_uuid(), 'token', 'ada', 'admin', now(), 'ada', now() + '1h', NULL);
INSERT INTO evenbeat.login_codes VALUES
    (sha256('x'), 'ada', 'viewer', now(), now() + '1h');
INSERT INTO evenbeat.idempotency_keys VALUES ('ada', 'k', 'f', 201, '{}', now());
INSERT INTO evenbeat.limits VALUES ('key', 2, '10/m', 10, 6000000, now(), true, now());
INSERT INTO evenbeat.dependencies (job_id, predecessor_id, wanted, position, created_at)
VALUES (md5('later')::uuid, md5('due')::uuid, 'success', 0, now());
INSERT INTO evenbeat.templates VALUES ('t', NULL, '{}', '{}', 3, now(), now(), NULL);
INSERT INTO evenbeat.webhooks (id, created_at, updated_at, url, events, secret)
VALUES (md5('w')::uuid, now(), now(), 'https://example.org', '{job.failed}', 's');
INSERT INTO evenbeat.webhook_messages (id, webhook_id, event, created_at, payload)
VALUES (gen_random_uuid(), md5('w')::uuid, 'job.failed', now(), '{}');
INSERT INTO evenbeat.webhook_deliveries VALUES
    (gen_random_uuid(), gen_random_uuid(), 1, now(), 5, 200, 'ok', NULL, NULL);
INSERT INTO evenbeat.sources VALUES ('s', 'https://example.org', 's', '{}', 'default',
    gen_random_uuid(), now(), now(), now(), NULL, 1, 1);
INSERT INTO evenbeat.documents (id, source, key, url, title, text, content_hash, depth, job_id,
    first_seen_at, seen_at, changed_at)
VALUES (gen_random_uuid(), 's', 'k', 'u', 'a title', 'a text', sha256('t'), 0, gen_random_uuid(),
    now(), now(), now());
"""

# Everything a schema consists of, in words that do not depend on the order of columns.
CATALOG = """
SELECT 'column', c.relname || '.' || a.attname,
       concat_ws(' ', format_type(a.atttypid, a.atttypmod), a.attnotnull,
                 a.attcollation::regcollation, a.attgenerated, pg_get_expr(d.adbin, d.adrelid))
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid AND c.relkind = 'r'
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = 'evenbeat'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL SELECT 'table', relname,
    (SELECT string_agg(option, ' ' ORDER BY option) FROM unnest(reloptions) option) FROM pg_class
WHERE relnamespace = 'evenbeat'::regnamespace AND relkind = 'r'
UNION ALL SELECT 'index', indexname, indexdef FROM pg_indexes WHERE schemaname = 'evenbeat'
UNION ALL SELECT 'constraint', conrelid::regclass || '.' || conname, pg_get_constraintdef(oid)
FROM pg_constraint WHERE connamespace = 'evenbeat'::regnamespace AND contype <> 'n'
UNION ALL SELECT 'function', proname, pg_get_functiondef(oid) FROM pg_proc
WHERE pronamespace = 'evenbeat'::regnamespace
UNION ALL SELECT 'trigger', tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
ORDER BY 1, 2
"""


@pytest.fixture
def before(empty_database_url: str) -> Iterator[psycopg.Connection]:
    """A database as the version before left it, with something in every table."""
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute(VERSIONS.encode())
        for step in migrations()[:LANDED]:
            connection.execute(in_schema(step.text, "evenbeat").encode())
            note = "INSERT INTO evenbeat.migrations (version, name) VALUES (%s, %s)"
            connection.execute(note, (step.version, step.name))
        connection.execute(ROWS.encode())
        yield connection


def contents(connection: psycopg.Connection) -> dict[str, list[dict[str, object]]]:
    """Every row of every table."""
    tables = connection.execute(
        "SELECT tablename FROM pg_tables WHERE schemaname = 'evenbeat'"
    ).fetchall()
    rows = {}
    for (table,) in tables:
        if table == "migrations":
            continue
        found = connection.execute(f"SELECT to_jsonb(t) FROM evenbeat.{table} t ORDER BY t::text")  # noqa: S608
        rows[table] = [row for (row,) in found]
    return rows


def test_what_has_landed_is_not_edited():
    """A database that was made with it could not be migrated any more: add a migration instead."""
    assert [step.fingerprint for step in migrations()[:LANDED]] == [
        "1ed64166cc6e8842",
        "43081e0d226e1886",
        "2fa04e66fd5e5ef4",
    ]


def test_no_row_and_no_value_is_lost(before, empty_database_url):
    rows = contents(before)
    assert min(map(len, rows.values())) > 0, "every table has something to lose"

    assert migrate(empty_database_url, "evenbeat") == [
        step.version for step in migrations()[LANDED:]
    ]

    after = contents(before)
    for table, old in rows.items():
        assert [
            {name: value for name, value in new.items() if name in row}
            for row, new in zip(old, after[table], strict=True)
        ] == old
    assert migrate(empty_database_url, "evenbeat") == []


def test_the_schema_is_that_of_a_new_database(before, empty_database_url, template, server_url):
    migrate(empty_database_url, "evenbeat")
    upgraded = before.execute(CATALOG).fetchall()
    with psycopg.connect(server_url, dbname=template) as fresh:
        assert upgraded == fresh.execute(CATALOG).fetchall()


def test_jobs_of_before_run(before, empty_database_url):
    migrate(empty_database_url, "evenbeat")
    store = Store(empty_database_url, timeout=10)
    try:
        (job,) = store.claim(uuid4(), 1, tasks=["noop"])
        assert (job.name, job.priority, job.aging_bonus, job.release_count) == ("due", 50, 0, 3)
        outcome = Outcome(ExecutionStatus.COMPLETED, 1.0)
        assert store.finish([decide(job, outcome, store.clock())]) == {job.lock_token}
    finally:
        store.close()


def test_an_upgrade_is_missing_until_it_is_done(before, empty_database_url):
    store = Store(empty_database_url, timeout=10)
    try:
        tables = TableQueries(store.database)
        assert "migrate the schema" in tables.schema_complaint()
        with pytest.raises(SchemaBehind, match=f"version {LANDED}.*evenbeat migrate"):
            store.migrate(only_check=True)
        store.migrate()
        assert tables.schema_complaint() is None
        assert store.migrate(only_check=True) == []
    finally:
        store.close()
