-- Maintenance: aging, retention, the registry of workers, and the leases of chores.

-- name: age
-- Raises jobs that have been due for too long; the claim takes the raise away again.
UPDATE evenbeat.jobs
SET aging_bonus = aging_bonus + least(%(by)s, 100 - priority),
    priority = priority + least(%(by)s, 100 - priority)
WHERE id = ANY (ARRAY(
    SELECT id FROM evenbeat.jobs
    WHERE {free} AND status IN ('pending', 'scheduled') AND priority < 100
      AND next_run_at <= {now} - make_interval(secs => %(waited_seconds)s)
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED))
   OR id = ANY (ARRAY(
    SELECT id FROM evenbeat.jobs
    WHERE {limited} AND status IN ('pending', 'scheduled') AND priority < 100
      AND next_run_at <= {now} - make_interval(secs => %(waited_seconds)s)
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED))
   OR id = ANY (ARRAY(
    SELECT id FROM evenbeat.jobs
    WHERE {fair} AND status IN ('pending', 'scheduled') AND priority < 100
      AND next_run_at <= {now} - make_interval(secs => %(waited_seconds)s)
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED))
RETURNING id;

-- name: prune_executions
-- Removes history that is neither young nor among its job's newest, walking on from `after`, and what
-- these runs had done as steps, unless their occurrence is not over. Returns how many rows it looked
-- at, how many it removed, and where to go on.
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
    USING old LEFT JOIN evenbeat.jobs j ON j.id = ANY (ARRAY[old.job_id])
    WHERE e.id = ANY (ARRAY[old.id]) AND old.status <> 'running'
      AND (j.id IS NULL OR old.execution_number <= j.run_count - %(keep)s)
      AND (j.retention_seconds IS NULL OR old.id < evenbeat.uuid7_floor(
           {now} - make_interval(secs => j.retention_seconds)))
    RETURNING e.id, e.job_id, e.plan_time, j.plan_time AS next_plan
),
steps_gone AS (
    DELETE FROM evenbeat.steps s USING gone g
    WHERE (SELECT true FROM evenbeat.steps LIMIT 1)
      AND s.job_id = g.job_id AND s.plan_time = g.plan_time
      AND g.plan_time IS DISTINCT FROM g.next_plan
)
SELECT (SELECT count(*) FROM old), (SELECT count(*) FROM gone),
       (SELECT id FROM old ORDER BY id DESC LIMIT 1);

-- name: prune_own_history
-- The same for jobs that say for how long their history is kept, walking on from job to job.
WITH ruled AS (
    SELECT id, run_count, retention_seconds, plan_time FROM evenbeat.jobs
    WHERE retention_seconds IS NOT NULL AND (%(after)s::uuid IS NULL OR id > %(after)s::uuid)
    ORDER BY id
    LIMIT %(limit)s
),
gone AS (
    DELETE FROM evenbeat.executions e USING ruled
    WHERE e.job_id = ANY (ARRAY[ruled.id]) AND e.status <> 'running'
      AND e.execution_number <= ruled.run_count - %(keep)s
      AND e.id < evenbeat.uuid7_floor({now} - make_interval(secs => ruled.retention_seconds))
    RETURNING e.id, e.job_id, e.plan_time, ruled.plan_time AS next_plan
),
steps_gone AS (
    DELETE FROM evenbeat.steps s USING gone g
    WHERE (SELECT true FROM evenbeat.steps LIMIT 1)
      AND s.job_id = g.job_id AND s.plan_time = g.plan_time
      AND g.plan_time IS DISTINCT FROM g.next_plan
),
logs_gone AS (
    DELETE FROM evenbeat.run_logs l USING gone g
    WHERE (SELECT true FROM evenbeat.run_logs LIMIT 1) AND l.execution_id = ANY (ARRAY[g.id])
)
SELECT (SELECT count(*) FROM ruled), (SELECT count(*) FROM gone),
       (SELECT id FROM ruled ORDER BY id DESC LIMIT 1);

-- name: prune_run_logs
-- Forgets what runs logged that began long ago and are over.
DELETE FROM evenbeat.run_logs
WHERE (execution_id, number) IN (
    SELECT l.execution_id, l.number FROM evenbeat.run_logs l
    WHERE l.execution_id < evenbeat.uuid7_floor(%(older_than)s::timestamptz)
      AND NOT EXISTS (SELECT FROM evenbeat.executions e
                      WHERE e.id = ANY (ARRAY[l.execution_id]) AND e.status = 'running')
    ORDER BY l.execution_id, l.number
    LIMIT %(limit)s)
RETURNING execution_id;

-- name: old_jobs
-- One-off jobs that ended long ago, in the order in which they were made: a batch of them then touches
-- few pages, and each only once. Finding them may mean reading all that have ended, so an answer is
-- for many batches, each as an array that nobody but PostgreSQL reads, and its last id. Those that
-- say for how long they are kept are asked for apart (`own_rule`).
SELECT array_agg(id ORDER BY id)::text, (array_agg(id ORDER BY id DESC))[1]
FROM (
    SELECT id, (row_number() OVER (ORDER BY id) - 1) / %(batch)s::int AS batch
    FROM evenbeat.jobs
    WHERE status IN ('completed', 'failed', 'cancelled') AND completed_at < %(older_than)s
      AND schedule_kind IN ('once', 'after')
      AND CASE WHEN %(own_rule)s
               THEN retention_seconds IS NOT NULL
                    AND completed_at < %(older_than)s - make_interval(secs => retention_seconds)
               ELSE retention_seconds IS NULL END
      AND (%(after)s::uuid IS NULL OR id > %(after)s::uuid)
    ORDER BY id
    LIMIT %(batches)s::int * %(batch)s::int) old
GROUP BY batch
ORDER BY batch;

-- name: lock_old_jobs
-- Those of these jobs that are still over, locked, as an array again.
SELECT array_agg(id)::text FROM (
    SELECT j.id
    FROM unnest(%(ids)s::uuid[]) AS o (id) JOIN evenbeat.jobs j ON j.id = ANY (ARRAY[o.id])
    WHERE j.status IN ('completed', 'failed', 'cancelled') AND j.completed_at < %(older_than)s
    FOR UPDATE OF j SKIP LOCKED) locked;

-- name: prune_jobs
-- Removes these jobs, but for those that somebody waits for. Whoever waited for one may be old as
-- well; then both go. `OFFSET 0` has each looked up by itself, instead of all dependencies at once.
-- The walk over the history would come to the runs of those with their own rule only later.
WITH old AS (
    SELECT o.id FROM unnest(%(ids)s::uuid[]) AS o (id)
    WHERE NOT EXISTS (
        SELECT FROM evenbeat.dependencies d JOIN evenbeat.jobs n ON n.id = ANY (ARRAY[d.job_id])
        WHERE d.predecessor_id = o.id
          AND NOT (n.status IN ('completed', 'failed', 'cancelled')
                   AND n.completed_at < %(older_than)s)
        OFFSET 0)
      -- Jobs of a batch stay until that is over, and for as long as what runs after it may read them.
      AND NOT EXISTS (
        SELECT FROM evenbeat.jobs j JOIN evenbeat.batches b ON b.id = ANY (ARRAY[j.batch_id])
        LEFT JOIN evenbeat.jobs c ON c.id = ANY (ARRAY[b.callback_id])
        WHERE j.id = ANY (ARRAY[o.id])
          AND (b.ended_at IS NULL OR b.ended_at >= %(older_than)s
               OR c.status IN ('scheduled', 'running', 'paused') OR c.next_run_at IS NOT NULL)
        OFFSET 0)
      -- One that is unique for a period is what other calls are answered with.
      AND NOT EXISTS (
        SELECT FROM evenbeat.jobs j
        WHERE j.id = ANY (ARRAY[o.id]) AND j.unique_key IS NOT NULL AND {holds_key}
        OFFSET 0)
),
untied AS (
    DELETE FROM evenbeat.dependencies d USING old WHERE d.job_id = ANY (ARRAY[old.id])
),
steps_gone AS (
    DELETE FROM evenbeat.steps s USING old
    WHERE (SELECT true FROM evenbeat.steps LIMIT 1) AND s.job_id = ANY (ARRAY[old.id])
),
history AS (
    DELETE FROM evenbeat.executions e USING old WHERE %(own_rule)s AND e.job_id = ANY (ARRAY[old.id])
    RETURNING e.id
),
logs_gone AS (
    DELETE FROM evenbeat.run_logs l USING history h
    WHERE (SELECT true FROM evenbeat.run_logs LIMIT 1) AND l.execution_id = ANY (ARRAY[h.id])
),
gone AS (
    DELETE FROM evenbeat.jobs j USING old WHERE j.id = ANY (ARRAY[old.id]) RETURNING j.id
)
SELECT count(*) FROM gone;

-- name: register_worker
-- Makes a worker known, or refreshes what is known of it.
INSERT INTO evenbeat.workers (id, host, pid, process_started_at, version, queues, tasks,
                              concurrency, application, runners, started_at, heartbeat_at,
                              checked_at)
VALUES (%(id)s, %(host)s, %(pid)s, %(process_started_at)s, %(version)s, %(queues)s, %(tasks)s,
        %(concurrency)s, %(application)s, %(runners)s, {now}, {now}, {now})
ON CONFLICT (id) DO UPDATE SET heartbeat_at = excluded.heartbeat_at, queues = excluded.queues,
                               tasks = excluded.tasks, concurrency = excluded.concurrency
RETURNING id;

-- name: beat
-- A worker's sign of life, and when it last looked for work. Returns nothing when the worker was
-- forgotten meanwhile.
UPDATE evenbeat.workers
SET heartbeat_at = {now}, checked_at = {now} - make_interval(secs => %(claim_age)s),
    running = %(running)s, runners = %(runners)s,
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
-- Every known worker, oldest first; with `silent_seconds`, those with a more recent sign of life.
SELECT id, host, pid, process_started_at, version, queues, tasks, concurrency, running, status,
       started_at, heartbeat_at, coalesce(checked_at, heartbeat_at), runners
FROM evenbeat.workers
WHERE %(silent_seconds)s::float8 IS NULL
   OR heartbeat_at > {now} - make_interval(secs => %(silent_seconds)s::float8)
ORDER BY id;

-- name: code_at_work
-- The code of an application's workers that are alive and stay.
SELECT id, application ->> 'version', application ->> 'schedules', started_at, tasks
FROM evenbeat.workers
WHERE application ->> 'name' = %(application)s AND status <> 'draining'
  AND heartbeat_at > {now} - make_interval(secs => %(silent_seconds)s);

-- name: silent_workers
-- Workers without a sign of life for this long.
SELECT id FROM evenbeat.workers
WHERE heartbeat_at < {now} - make_interval(secs => %(silent_seconds)s);

-- name: begin_chore
-- Takes a chore that is due and that nobody holds. Returns nothing otherwise. One that was done in
-- the future is due as well: the clock was wrong then, and nobody should wait until it is right.
INSERT INTO evenbeat.chores AS c (name, holder, expires_at)
VALUES (%(name)s, %(holder)s,
        {now} + make_interval(secs => %(lease_seconds)s))
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at
WHERE (c.holder IS NULL OR c.expires_at <= {now})
  AND (c.last_run_at IS NULL
       OR c.last_run_at + make_interval(secs => %(every_seconds)s)
          <= {now}
       OR c.last_run_at - make_interval(secs => %(every_seconds)s)
          > {now})
RETURNING name;

-- name: renew_chore
-- Keeps a chore for longer, unless it was given to another holder meanwhile.
UPDATE evenbeat.chores
SET expires_at = {now} + make_interval(secs => %(lease_seconds)s)
WHERE name = %(name)s AND holder = %(holder)s
RETURNING name;

-- name: forget_chores
-- Strikes chores that nobody does any more.
DELETE FROM evenbeat.chores WHERE last_run_at < %(older_than)s::timestamptz AND holder IS NULL
RETURNING name;

-- name: end_chore
-- Gives a chore back and notes that it was done, if it is still held.
UPDATE evenbeat.chores
SET holder = NULL,
    last_run_at = CASE WHEN %(done)s THEN {now} ELSE last_run_at END
WHERE name = %(name)s AND holder = %(holder)s
RETURNING name;

-- name: save_figure
-- Keeps a figure, or the newest version of it.
INSERT INTO evenbeat.figures (name, value, updated_at)
VALUES (%(name)s, %(value)s, {now})
ON CONFLICT (name) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at
RETURNING name;

-- name: add_to_counter
-- Adds to a counter that starts at 0.
INSERT INTO evenbeat.figures AS f (name, value, updated_at)
VALUES (%(name)s, to_jsonb(%(amount)s::bigint), {now})
ON CONFLICT (name) DO UPDATE
SET value = to_jsonb(f.value::bigint + %(amount)s::bigint), updated_at = excluded.updated_at
RETURNING value;

-- name: figures
-- Everything that is kept.
SELECT name, value, updated_at FROM evenbeat.figures;

-- name: lock_until_commit
-- Waits until no other transaction holds this name.
SELECT pg_advisory_xact_lock(hashtextextended(%(name)s, 1));

-- name: counting_horizon
-- The moment up to which every claim is visible by now: claims under way are waited for, though
-- not forever. An explicit moment is taken as it is.
SELECT coalesce(%(now)s::timestamptz,
                least(clock_timestamp() - interval '1 second',
                      CASE WHEN min(xact_start) IS NOT NULL
                           THEN greatest(min(xact_start), clock_timestamp() - interval '5 minutes')
                      END))
FROM pg_stat_activity
WHERE datname = current_database() AND state <> 'idle'
  AND (starts_with(query, '/* evenbeat:claim */')
       OR starts_with(query, '/* evenbeat:claim_limited */')
       OR starts_with(query, '/* evenbeat:claim_fair */'));

-- name: counted_after
-- The last execution that the count has passed, locked until the transaction ends.
INSERT INTO evenbeat.figures AS f (name, value, updated_at)
VALUES ('counting', jsonb_build_object(), {now})
ON CONFLICT (name) DO UPDATE SET value = f.value
RETURNING (value ->> 'after')::uuid;

-- name: count_outcomes
-- Adds what has ended to the hours: of the next `limit` executions, and of those that still ran
-- when the count passed them. Returns how many new ones it saw, the last of them, and the recurring
-- jobs among them that may have to be judged anew.
WITH fresh AS MATERIALIZED (
    SELECT e.id, e.job_id, e.status, e.completed_at, e.error_code, e.duration_ms, e.wait_ms
    FROM evenbeat.executions e
    WHERE e.id > coalesce(%(after)s::uuid, '00000000-0000-0000-0000-000000000000')
      AND e.id < evenbeat.uuid7_floor(%(until)s::timestamptz)
    ORDER BY e.id
    LIMIT %(limit)s
),
waited_for AS MATERIALIZED (
    SELECT u.execution_id, e.id, e.job_id, e.status, e.completed_at, e.error_code, e.duration_ms,
           e.wait_ms
    FROM evenbeat.uncounted u LEFT JOIN LATERAL (
        SELECT * FROM evenbeat.executions WHERE id = u.execution_id LIMIT 1) e ON true
),
ended AS MATERIALIZED (
    SELECT e.*, coalesce(j.task, '(deleted)') AS task, j.schedule_kind
    FROM (SELECT job_id, status, completed_at, error_code, duration_ms, wait_ms
          FROM fresh WHERE status <> 'running'
          UNION ALL
          SELECT job_id, status, completed_at, error_code, duration_ms, wait_ms
          FROM waited_for WHERE status <> 'running') e
    LEFT JOIN LATERAL (
        SELECT task, schedule_kind FROM evenbeat.jobs WHERE id = e.job_id LIMIT 1) j ON true
),
tallied AS (
    INSERT INTO evenbeat.outcomes AS o (hour, task, completed, failed, cancelled, lost, missed,
                                        duration_ms, wait_ms)
    SELECT date_trunc('hour', e.completed_at, 'UTC'), e.task,
           count(*) FILTER (WHERE e.status = 'completed'),
           count(*) FILTER (WHERE e.status = 'failed'),
           count(*) FILTER (WHERE e.status = 'cancelled'),
           count(*) FILTER (WHERE e.error_code IN ('lease_expired', 'stale_timeout')),
           -- One that a person started outside of its window waits as well, but was not late.
           count(*) FILTER (WHERE e.error_code = 'postponed' AND e.wait_ms >= 60000),
           coalesce(sum(e.duration_ms) FILTER (WHERE e.status = 'completed'), 0),
           coalesce(sum(e.wait_ms) FILTER (WHERE e.status = 'completed'), 0)
    FROM ended e
    GROUP BY 1, 2
    ORDER BY 1, 2
    ON CONFLICT (hour, task) DO UPDATE
    SET completed = o.completed + excluded.completed, failed = o.failed + excluded.failed,
        cancelled = o.cancelled + excluded.cancelled, lost = o.lost + excluded.lost,
        missed = o.missed + excluded.missed,
        duration_ms = o.duration_ms + excluded.duration_ms, wait_ms = o.wait_ms + excluded.wait_ms
),
settled AS (
    DELETE FROM evenbeat.uncounted u USING waited_for w
    WHERE u.execution_id = w.execution_id AND w.status IS DISTINCT FROM 'running'
),
remembered AS (
    INSERT INTO evenbeat.uncounted (execution_id)
    SELECT id FROM fresh WHERE status = 'running'
    ON CONFLICT DO NOTHING
)
SELECT (SELECT count(*) FROM fresh), (SELECT id FROM fresh ORDER BY id DESC LIMIT 1),
       ARRAY(SELECT DISTINCT e.job_id FROM ended e
             WHERE e.schedule_kind <> 'once' AND e.status IN ('completed', 'failed')
               AND (e.status = 'failed' OR e.duration_ms >= %(slower_by_ms)s
                    OR EXISTS (SELECT FROM evenbeat.job_alerts a WHERE a.job_id = e.job_id))
             LIMIT %(most_judged)s);

-- name: judge_jobs
-- Judges these jobs by their latest runs: which of them fail too often, and which take longer than
-- they used to. What is true of a job is kept with the moment since which it has been.
WITH runs AS (
    SELECT asked.id AS job_id, e.status, e.duration_ms, e.started_at,
           row_number() OVER (PARTITION BY asked.id ORDER BY e.n) AS n,
           row_number() OVER (PARTITION BY asked.id, e.status ORDER BY e.n) AS n_of_status
    FROM unnest(%(ids)s::uuid[]) AS asked (id)
    CROSS JOIN LATERAL (
        SELECT x.status, x.duration_ms, x.started_at, row_number() OVER () AS n
        FROM (SELECT * FROM evenbeat.executions
              WHERE job_id = asked.id AND status IN ('completed', 'failed')
              ORDER BY plan_time DESC, retry_attempt DESC, release_count DESC
              LIMIT %(runs)s::int + %(recent)s::int) x) e
),
durations AS (
    SELECT job_id, count(*) AS runs,
           percentile_cont(0.5) WITHIN GROUP (ORDER BY duration_ms)
               FILTER (WHERE n_of_status <= %(recent)s) AS recent,
           percentile_cont(0.5) WITHIN GROUP (ORDER BY duration_ms)
               FILTER (WHERE n_of_status > %(recent)s) AS earlier,
           min(started_at) FILTER (WHERE n_of_status <= %(recent)s) AS since
    FROM runs WHERE status = 'completed' GROUP BY job_id
),
judged AS (
    SELECT job_id, 'success_rate' AS rule, avg((status = 'completed')::int)::float8 AS value,
           min(started_at) FILTER (WHERE status = 'failed') AS since
    FROM runs WHERE n <= %(runs)s GROUP BY job_id
    HAVING count(*) >= %(least_runs)s AND avg((status = 'completed')::int) < %(success_rate)s
    UNION ALL
    SELECT job_id, 'slower', recent / greatest(earlier, 1), since
    FROM durations
    WHERE runs >= %(recent)s::int + %(least_earlier)s::int AND recent > %(slower)s * earlier
      AND recent - earlier >= %(slower_by_ms)s
),
noted AS (
    INSERT INTO evenbeat.job_alerts (job_id, rule, value, since)
    SELECT * FROM judged ORDER BY job_id, rule
    ON CONFLICT (job_id, rule) DO UPDATE SET value = excluded.value
)
DELETE FROM evenbeat.job_alerts a
WHERE a.job_id = ANY (%(ids)s::uuid[])
  AND NOT EXISTS (SELECT FROM judged j WHERE j.job_id = a.job_id AND j.rule = a.rule)
RETURNING a.job_id;

-- name: forget_alerts
-- Strikes what is said of jobs that are gone.
DELETE FROM evenbeat.job_alerts a
WHERE NOT EXISTS (SELECT FROM evenbeat.jobs j WHERE j.id = a.job_id OFFSET 0)
RETURNING a.job_id;

-- name: fold_outcomes
-- Adds the hours of long ago to one row for each task, at the epoch: totals stay, the table small.
WITH old AS (
    DELETE FROM evenbeat.outcomes
    WHERE hour < %(older_than)s::timestamptz AND hour > 'epoch'::timestamptz
    RETURNING *
)
INSERT INTO evenbeat.outcomes AS o (hour, task, completed, failed, cancelled, lost, missed,
                                    duration_ms, wait_ms)
SELECT 'epoch'::timestamptz, task, sum(completed), sum(failed), sum(cancelled), sum(lost),
       sum(missed), sum(duration_ms), sum(wait_ms)
FROM old GROUP BY task
ON CONFLICT (hour, task) DO UPDATE
SET completed = o.completed + excluded.completed, failed = o.failed + excluded.failed,
    cancelled = o.cancelled + excluded.cancelled, lost = o.lost + excluded.lost,
    missed = o.missed + excluded.missed,
    duration_ms = o.duration_ms + excluded.duration_ms, wait_ms = o.wait_ms + excluded.wait_ms
RETURNING o.task;

-- name: count_jobs
-- Counts all jobs by state, queue, task and kind of schedule, for those who cannot wait for it.
WITH counted AS MATERIALIZED (
    SELECT status, queue, task, schedule_kind, count(*) AS jobs
    FROM evenbeat.jobs GROUP BY status, queue, task, schedule_kind
),
gone AS (
    DELETE FROM evenbeat.job_counts k
    WHERE NOT EXISTS (SELECT FROM counted c
                      WHERE c.status = k.status AND c.queue = k.queue AND c.task = k.task
                        AND c.schedule_kind = k.schedule_kind)
),
kept AS (
    INSERT INTO evenbeat.job_counts AS k (status, queue, task, schedule_kind, jobs)
    SELECT * FROM counted
    ON CONFLICT (status, queue, task, schedule_kind) DO UPDATE SET jobs = excluded.jobs
    WHERE k.jobs <> excluded.jobs
)
SELECT status, sum(jobs)::bigint FROM counted GROUP BY status;

-- name: know_task
-- Notes what a worker can run; the newest word counts.
INSERT INTO evenbeat.tasks AS t (name, queue, runner, schema, doc, defaults, updated_at)
SELECT task.name, task.queue, task.runner, task.schema::jsonb, task.doc, task.defaults::jsonb,
       {now}
FROM unnest(%(names)s::text[], %(queues)s::text[], %(runners)s::text[], %(schemas)s::text[],
            %(docs)s::text[], %(defaults)s::text[])
     AS task (name, queue, runner, schema, doc, defaults)
ORDER BY task.name
ON CONFLICT (name) DO UPDATE
SET queue = excluded.queue, runner = excluded.runner, schema = excluded.schema, doc = excluded.doc,
    defaults = excluded.defaults, updated_at = excluded.updated_at
RETURNING t.name;

-- name: forget_tasks
-- Strikes tasks that no worker has named for long and no job is for.
DELETE FROM evenbeat.tasks t
WHERE t.updated_at < %(older_than)s::timestamptz
  AND NOT EXISTS (SELECT FROM evenbeat.workers w WHERE w.tasks IS NULL OR t.name = ANY (w.tasks))
  AND NOT EXISTS (SELECT FROM evenbeat.job_counts c WHERE c.task = t.name)
RETURNING t.name;
