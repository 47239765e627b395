-- Maintenance: aging, retention, the registry of workers, and the leases of chores.

-- name: age
-- Raises jobs that have been due for too long; the claim takes the raise away again.
UPDATE evenbeat.jobs
SET aged = aged + least(%(by)s, 100 - priority),
    priority = priority + least(%(by)s, 100 - priority)
WHERE id = ANY (ARRAY(
    SELECT id FROM evenbeat.jobs
    WHERE status IN ('pending', 'scheduled') AND priority < 100
      AND next_run_at <= coalesce(%(now)s::timestamptz, now()) - make_interval(secs => %(waited_seconds)s)
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED))
RETURNING id;

-- name: prune_executions
-- Removes history that is neither young nor among its job's newest, walking on from `after`.
-- Returns how many rows it looked at, how many it removed, and where to go on.
WITH old AS (
    SELECT e.id, e.job_id, e.execution_number, e.status
    FROM evenbeat.executions e
    WHERE e.id < evenbeat.uuid7_floor(%(older_than)s::timestamptz)
      AND (%(after)s::uuid IS NULL OR e.id > %(after)s::uuid)
    ORDER BY e.id
    LIMIT %(limit)s
),
gone AS (
    DELETE FROM evenbeat.executions e
    USING old LEFT JOIN evenbeat.jobs j ON j.id = old.job_id
    WHERE e.id = old.id AND old.status <> 'running'
      AND (j.id IS NULL OR old.execution_number <= j.run_count - %(keep)s)
    RETURNING e.id
)
SELECT (SELECT count(*) FROM old), (SELECT count(*) FROM gone),
       (SELECT id FROM old ORDER BY id DESC LIMIT 1);

-- name: prune_jobs
-- Removes one-off jobs that ended long ago, with their history.
WITH old AS (
    SELECT id FROM evenbeat.jobs
    WHERE status IN ('completed', 'failed', 'cancelled') AND completed_at < %(older_than)s
      AND schedule_kind IN ('once', 'after')
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
),
history AS (
    DELETE FROM evenbeat.executions e USING old WHERE e.job_id = old.id
)
DELETE FROM evenbeat.jobs j USING old WHERE j.id = old.id
RETURNING j.id;

-- name: register_worker
-- Makes a worker known, or refreshes what is known of it.
INSERT INTO evenbeat.workers (id, host, pid, process_started_at, version, queues, tasks,
                              concurrency, started_at, heartbeat_at)
VALUES (%(id)s, %(host)s, %(pid)s, %(process_started_at)s, %(version)s, %(queues)s, %(tasks)s,
        %(concurrency)s, coalesce(%(now)s::timestamptz, now()), coalesce(%(now)s::timestamptz, now()))
ON CONFLICT (id) DO UPDATE SET heartbeat_at = excluded.heartbeat_at, queues = excluded.queues,
                               tasks = excluded.tasks, concurrency = excluded.concurrency
RETURNING id;

-- name: beat
-- A worker's sign of life. Returns nothing when the worker was forgotten meanwhile.
UPDATE evenbeat.workers
SET heartbeat_at = coalesce(%(now)s::timestamptz, now()), running = %(running)s,
    status = CASE WHEN status = 'draining' THEN status ELSE %(status)s END
WHERE id = %(id)s
RETURNING status;

-- name: drain_worker
-- Asks a worker to take no more jobs; it learns of it with its next beat.
UPDATE evenbeat.workers SET status = 'draining' WHERE id = %(id)s RETURNING id;

-- name: forget_workers
-- Strikes workers from the registry.
DELETE FROM evenbeat.workers WHERE id = ANY (%(ids)s::uuid[]) RETURNING id;

-- name: workers
-- Every known worker, oldest first.
SELECT id, host, pid, process_started_at, version, queues, tasks, concurrency, running, status,
       started_at, heartbeat_at
FROM evenbeat.workers ORDER BY id;

-- name: silent_workers
-- Workers without a sign of life for this long.
SELECT id FROM evenbeat.workers
WHERE heartbeat_at < coalesce(%(now)s::timestamptz, now()) - make_interval(secs => %(silent_seconds)s);

-- name: begin_chore
-- Takes a chore that is due and that nobody holds. Returns nothing otherwise.
INSERT INTO evenbeat.chores AS c (name, holder, expires_at)
VALUES (%(name)s, %(holder)s,
        coalesce(%(now)s::timestamptz, now()) + make_interval(secs => %(lease_seconds)s))
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at
WHERE (c.holder IS NULL OR c.expires_at <= coalesce(%(now)s::timestamptz, now()))
  AND (c.last_run_at IS NULL
       OR c.last_run_at + make_interval(secs => %(every_seconds)s)
          <= coalesce(%(now)s::timestamptz, now()))
RETURNING name;

-- name: end_chore
-- Gives a chore back and notes that it was done, if it is still held.
UPDATE evenbeat.chores
SET holder = NULL,
    last_run_at = CASE WHEN %(done)s THEN coalesce(%(now)s::timestamptz, now()) ELSE last_run_at END
WHERE name = %(name)s AND holder = %(holder)s
RETURNING name;

-- name: save_figure
-- Keeps a figure, or the newest version of it.
INSERT INTO evenbeat.figures (name, value, updated_at)
VALUES (%(name)s, %(value)s, coalesce(%(now)s::timestamptz, now()))
ON CONFLICT (name) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at
RETURNING name;

-- name: add_to_counter
-- Adds to a counter that starts at 0.
INSERT INTO evenbeat.figures AS f (name, value, updated_at)
VALUES (%(name)s, to_jsonb(%(amount)s::bigint), coalesce(%(now)s::timestamptz, now()))
ON CONFLICT (name) DO UPDATE
SET value = to_jsonb(f.value::bigint + %(amount)s::bigint), updated_at = excluded.updated_at
RETURNING value;

-- name: figures
-- Everything that is kept.
SELECT name, value, updated_at FROM evenbeat.figures;

-- name: lock_until_commit
-- Waits until no other transaction holds this name.
SELECT pg_advisory_xact_lock(hashtextextended(%(name)s, 1));
