-- The doctor's queries. The first ones work on any server, whatever is in the schema.

-- name: health_server
-- The server itself: its version, its time, how many of its connections are taken, the session that
-- answers, how many standbys it has, and whether a commit waits for them.
SELECT current_setting('server_version_num')::int, current_setting('server_version'),
       clock_timestamp(),
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
       current_setting('max_connections')::int
           - current_setting('superuser_reserved_connections')::int,
       pg_is_in_recovery(), pg_backend_pid(),
       (SELECT count(*) FROM pg_stat_replication),
       current_setting('synchronous_standby_names') <> ''
           AND current_setting('synchronous_commit') NOT IN ('off', 'local');

-- name: health_transactions
-- Transactions of this database that have been open for long, and whether they hold back vacuum.
SELECT pid, coalesce(nullif(application_name, ''), 'unnamed'), coalesce(usename, '?'), state,
       extract(epoch FROM clock_timestamp() - xact_start)::float8,
       backend_xid IS NOT NULL OR backend_xmin IS NOT NULL
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
  AND backend_type = 'client backend'
  AND xact_start < clock_timestamp() - make_interval(secs => %(longer_than_seconds)s)
ORDER BY xact_start;

-- name: health_prepared
-- Two-phase transactions of this database that nobody has ended.
SELECT gid, extract(epoch FROM clock_timestamp() - prepared)::float8
FROM pg_prepared_xacts
WHERE database = current_database()
  AND prepared < clock_timestamp() - make_interval(secs => %(longer_than_seconds)s)
ORDER BY prepared;

-- name: health_slots
-- Replication slots that keep old row versions alive, and by how many transactions.
SELECT slot_name::text, active, greatest(age(xmin), age(catalog_xmin))
FROM pg_replication_slots
WHERE xmin IS NOT NULL OR catalog_xmin IS NOT NULL;

-- name: health_tables
-- The tables of the schema: live and dead rows, the last vacuum, and the size with indexes.
SELECT relname::text, n_live_tup, n_dead_tup, greatest(last_autovacuum, last_vacuum),
       pg_total_relation_size(relid)
FROM pg_stat_user_tables
WHERE schemaname = %(schema)s
ORDER BY pg_total_relation_size(relid) DESC;

-- name: health_workers
-- Known workers, each with the age of its last heartbeat.
SELECT host, pid, status,
       extract(epoch FROM {now} - heartbeat_at)::float8
FROM evenbeat.workers ORDER BY heartbeat_at;

-- name: health_chores
-- When each chore was last done.
SELECT name, extract(epoch FROM {now} - last_run_at)::float8
FROM evenbeat.chores;

-- name: health_leases
-- Leases that ran out a while ago and that nobody has reaped.
SELECT count(*), extract(epoch FROM {now} - min(lock_expires_at))::float8
FROM evenbeat.jobs
WHERE status = 'running'
  AND lock_expires_at < {now}
                        - make_interval(secs => %(longer_than_seconds)s);

-- name: oldest_transaction
-- Seconds since the oldest transaction of another session in this database began; 0 without one.
SELECT coalesce(extract(epoch FROM max(clock_timestamp() - a.xact_start)), 0)::float8
FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
  AND a.backend_type = 'client backend';

-- name: schema_version
-- The newest migration that was applied, whether code that knows those up to `known` can use the
-- schema, and whether the server refuses writes. A schema that was made earlier does not have the
-- column, so it is read as JSON.
SELECT coalesce(max(version), 0),
       coalesce(max(coalesce((to_jsonb(m) ->> 'oldest_code')::int, version))
                    FILTER (WHERE version > %(known)s), 0) <= %(known)s,
       current_setting('transaction_read_only')::bool
FROM evenbeat.migrations m;
