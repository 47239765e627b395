"""A large, lifelike database: recurring and one-off jobs in every state, and their history."""

import psycopg

# 30 % recurring and named, 10 % waiting one-offs, the rest finished; 1 in 10 carries tags. Each
# task has its queue; one queue and one task are rare. Ids rise as over three months.
_JOBS = """
INSERT INTO evenbeat.jobs (id, created_at, updated_at, plan_time, next_run_at, status, priority,
                           queue, task, schedule_kind, interval_seconds, anchor_at, placement,
                           name, completed_at, started_at, error_message, average_duration_ms,
                           run_count, is_paused, paused_at, metadata, lock_token, locked_by,
                           lock_acquired_at, lock_expires_at)
SELECT evenbeat.uuid7(made), made, made,
       CASE WHEN waits OR state IN ('running', 'paused') THEN due END,
       CASE WHEN waits OR state IN ('running', 'paused') THEN due END,
       state, (n / 400 %% 4) * 10,
       CASE WHEN n %% 20011 = 0 THEN 'rare' ELSE 'queue-' || n / 10 %% 10 END,
       CASE WHEN n %% 30011 = 0 THEN 'seldom' ELSE 'task_' || n / 10 %% 40 END,
       CASE WHEN recurs THEN 'interval' ELSE 'once' END,
       CASE WHEN recurs THEN 3600 END, CASE WHEN recurs THEN made END,
       CASE WHEN recurs THEN 'balanced' END,
       CASE WHEN recurs THEN 'Tenant-' || n || ' nightly sync' END,
       CASE WHEN recurs OR NOT waits THEN made + interval '5 minutes' END,
       CASE WHEN recurs OR NOT waits THEN made + interval '4 minutes' END,
       CASE WHEN state = 'failed' OR (recurs AND n %% 1000 = 7)
            THEN 'ConnectionError: upstream said no' END,
       1500, 5, state = 'paused', CASE WHEN state = 'paused' THEN now() END,
       CASE WHEN n %% 10 = 0 THEN jsonb_build_object('tags', jsonb_build_array('team-' || n %% 70))
            ELSE '{}' END,
       CASE WHEN state = 'running' THEN gen_random_uuid() END,
       CASE WHEN state = 'running' THEN gen_random_uuid() END,
       CASE WHEN state = 'running' THEN now() END,
       CASE WHEN state = 'running' THEN now() + interval '1 day' END
FROM (SELECT n, recurs, made, due, state, state IN ('pending', 'scheduled') AS waits
      FROM (SELECT n, n %% 10 < 3 AS recurs,
                   now() - interval '90 days' * (1 - n::float8 / %(jobs)s) AS made,
                   now() + interval '1 hour' * ((n::bigint * 7919) %% 100000 / 100000.0) AS due,
                   CASE WHEN n %% 10 < 3 THEN CASE WHEN n %% 300 = 1 THEN 'paused'
                                                   WHEN n %% 600 = 2 THEN 'running'
                                                   ELSE 'scheduled' END
                        WHEN n %% 10 = 3 THEN 'pending'
                        WHEN n %% 100 = 4 THEN 'failed'
                        WHEN n %% 500 = 5 THEN 'cancelled'
                        ELSE 'completed' END AS state
            FROM generate_series(1, %(jobs)s) n) base) rows
"""

_HISTORY = """
INSERT INTO evenbeat.executions (id, job_id, plan_time, started_at, completed_at, worker_id,
                                 duration_ms, wait_ms, execution_number, status, error_code,
                                 error_message)
SELECT evenbeat.uuid7(at), j.id, at, at, at + interval '2 seconds', w.id,
       1500 + k %% 1000, 20, 1 + k %% 15,
       CASE WHEN k %% 50 = 0 THEN 'failed' ELSE 'completed' END,
       CASE WHEN k %% 5000 = 0 THEN 'lease_expired' WHEN k %% 50 = 0 THEN 'ConnectionError' END,
       CASE WHEN k %% 50 = 0 THEN 'upstream said no' END
FROM (SELECT k, now() - interval '30 days' * (1 - k::float8 / %(executions)s) AS at
      FROM generate_series(1, %(executions)s) k) runs
JOIN pg_temp.numbered j ON j.n = CASE WHEN k %% 1000 = 0 THEN 1
                                      ELSE (k::bigint * 7919) %% %(jobs)s + 1 END
CROSS JOIN (SELECT gen_random_uuid() AS id) w
ORDER BY at
"""


def fill(url: str, jobs: int, executions: int) -> None:
    """Fill the empty tables of a migrated database. Every thousandth run is of the first job."""
    sizes = {"jobs": jobs, "executions": executions}
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET maintenance_work_mem = '512MB'")
        connection.execute(_JOBS, sizes)
        connection.execute(
            "CREATE TEMP TABLE numbered AS "
            "SELECT id, row_number() OVER (ORDER BY id) AS n FROM evenbeat.jobs"
        )
        connection.execute("ANALYZE numbered")
        # Loading without the unique index and making it afterwards takes a third of the time.
        connection.execute("ALTER TABLE evenbeat.executions DROP CONSTRAINT one_run_per_attempt")
        connection.execute(_HISTORY, sizes)
        connection.execute(
            "ALTER TABLE evenbeat.executions ADD CONSTRAINT one_run_per_attempt "
            "UNIQUE (job_id, plan_time, retry_attempt, release_count)"
        )
        connection.execute("VACUUM ANALYZE evenbeat.jobs")
        connection.execute("VACUUM ANALYZE evenbeat.executions")
