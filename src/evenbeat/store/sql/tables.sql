-- How the tables themselves do, as the server's statistics have it.

-- name: table_figures
-- For each table of the schema: dead and live row versions, and bytes with its indexes.
SELECT s.relname::text, s.n_dead_tup, s.n_live_tup, pg_total_relation_size(s.relid)
FROM pg_stat_user_tables s
WHERE s.schemaname = %(schema)s::text
ORDER BY s.relname;

-- name: oldest_transaction
-- Seconds since the oldest transaction of another session in this database began; 0 without one.
SELECT coalesce(extract(epoch FROM max(clock_timestamp() - a.xact_start)), 0)::float8
FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
  AND a.backend_type = 'client backend';

-- name: schema_version
-- The newest migration that was applied.
SELECT coalesce(max(version), 0) FROM evenbeat.migrations;
