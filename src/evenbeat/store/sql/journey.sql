-- A job's way through the tables, in the order it happens.
-- Each statement takes an optional `now`; without it the database's clock counts: `{now}`.
-- `{waiting}` says of a row of jobs that it can be claimed once it is due, in the words of the indexes.
--
-- Where rows are looked up by the ids of a list, it says `id = ANY (ARRAY[...])` instead of `id = ...`:
-- the planner can follow that only from the list to the table. A table that was analysed while its first
-- rows were being copied in counts as empty, and for an empty one it would rather read the whole table
-- and look each row up in the list, for every batch, for minutes.

-- name: clock
-- The one clock that everything is due by.
SELECT {now};

-- name: add
-- Adds one job and hints at it if it is due soon. Only columns that differ from their defaults are
-- written, and only a job with a key or a name looks out for another that has it, as that costs a
-- second record in the log (see `with_columns`). Returns nothing when there is one.
INSERT INTO evenbeat.jobs (created_at, updated_at, {columns})
VALUES ({now}, {now}, {values})
{on_conflict}
RETURNING id,
    CASE WHEN next_run_at < {now} + interval '5 seconds'
         THEN pg_notify(%(channel)s, 'due:' || queue) END;

-- name: add_debounced
-- Adds a job that waits for other calls, as `add` does. One of the same key that waits already becomes
-- that of this call, and is put off unless that were too long; its id is returned then. Returns
-- nothing when it has ended before it started.
INSERT INTO evenbeat.jobs AS j (created_at, updated_at, {columns})
VALUES ({now}, {now}, {values})
ON CONFLICT (unique_key) WHERE {in_jobs_unique} DO UPDATE
SET (status, plan_time, next_run_at) = (
        SELECT CASE WHEN j.status = 'paused' OR too_late THEN j.status ELSE excluded.status END,
               CASE WHEN too_late THEN j.plan_time ELSE excluded.plan_time END,
               CASE WHEN too_late THEN j.next_run_at ELSE excluded.next_run_at END
        FROM (VALUES (j.created_at + excluded.debounce_max_seconds * interval '1s'
                      < excluded.plan_time)) AS asked (too_late)),
    payload = excluded.payload, metadata = excluded.metadata, {spec_of_call},
    aging_bonus = 0, updated_at = excluded.updated_at
WHERE j.status IN ('pending', 'scheduled', 'paused')
RETURNING id,
    CASE WHEN next_run_at < {now} + interval '5 seconds'
         THEN pg_notify(%(channel)s, 'due:' || queue) END;

-- name: drop_stage
-- A batch before may have left its table in the same transaction.
DROP TABLE IF EXISTS pg_temp.evenbeat_stage;

-- name: create_stage
-- The table beside `jobs` that a batch is copied into first, if keys or names of it may be taken.
CREATE TEMPORARY TABLE evenbeat_stage (LIKE evenbeat.jobs INCLUDING DEFAULTS) ON COMMIT DROP;

-- name: add_from_stage
-- Moves copied rows from the temporary table into jobs; rows whose key or name is taken stay out.
-- The order keeps two batches with the same keys from waiting for each other.
INSERT INTO evenbeat.jobs SELECT * FROM pg_temp.evenbeat_stage ORDER BY dedup_key, name, unique_key, ctid
ON CONFLICT DO NOTHING
RETURNING id;

-- name: live_by_dedup_key
-- The live job for each of these keys.
SELECT dedup_key, id FROM evenbeat.jobs
WHERE dedup_key = ANY (%(keys)s::text[])
  AND status IN ('pending', 'scheduled', 'running', 'paused');

-- name: free_unique_keys
-- Takes these keys from jobs whose period is over, or that ended before they started. Of debounced
-- jobs, those that have started are not among them: they have left the index by themselves.
UPDATE evenbeat.jobs f SET unique_key = NULL
FROM (SELECT j.id FROM evenbeat.jobs j
      WHERE j.unique_key = ANY (%(keys)s::text[]) AND {in_jobs_unique} AND NOT {holds_key}
      ORDER BY j.unique_key FOR NO KEY UPDATE) old
WHERE f.id = ANY (ARRAY[old.id]);

-- name: by_unique_key
-- The job that has each of these keys.
SELECT unique_key, id FROM evenbeat.jobs
WHERE unique_key = ANY (%(keys)s::text[]) AND {in_jobs_unique};

-- name: id_by_name
-- The job that has this name in this scope.
SELECT id FROM evenbeat.jobs
WHERE name = %(name)s AND scope_kind = %(scope_kind)s AND scope_id = %(scope_id)s;

-- name: notify
-- A hint to all listeners; losing one costs a poll, never a job.
SELECT pg_notify(%(channel)s, signal) FROM unnest(%(signals)s::text[]) AS signal;

-- name: unended
-- Those of these jobs that will or may still run.
SELECT id FROM evenbeat.jobs
WHERE id = ANY (%(ids)s::uuid[]) AND status IN ('pending', 'scheduled', 'running', 'paused');

-- name: claim
-- Takes up to `limit` due jobs, most urgent first, and opens an execution for each. No two callers
-- get the same job, and the cost depends neither on how many jobs wait nor on how many are due.
-- Jobs with a concurrency key are not among them: those are claimed key by key (`keyed_claims.sql`).
-- What was due before `since` is passed over (see `Frontier`).
WITH RECURSIVE
-- One row for each (queue, task, priority) that has waiting jobs, with its oldest due time. Hops
-- from lane to lane through the index instead of reading the jobs between.
lanes AS ({free_lanes_by lanes from_frontier}),
open_lanes AS (
    SELECT queue, task, priority, next_run_at
    FROM lanes
    WHERE next_run_at <= {now}
      AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s::text[]))
      AND (%(tasks)s::text[] IS NULL OR task = ANY (%(tasks)s::text[]))
      AND {open lanes}
    ORDER BY priority DESC, next_run_at
),
-- Pulled lane by lane until there are enough, so no row is locked that is not taken.
picked AS (
    SELECT due.id
    FROM open_lanes lane CROSS JOIN LATERAL (
        SELECT j.id
        FROM evenbeat.jobs j
        WHERE j.concurrency_key IS NULL
          AND {waiting j}
          AND j.queue = lane.queue AND j.task = lane.task AND j.priority = lane.priority
          -- There is nothing before it but rows that have gone, which may be many.
          AND j.next_run_at >= lane.next_run_at
          AND j.next_run_at <= {now}
        ORDER BY j.next_run_at
        LIMIT %(limit)s
        FOR UPDATE SKIP LOCKED) due
    LIMIT %(limit)s
),
claimed AS (
    UPDATE evenbeat.jobs j
    SET status = 'running',
        lock_token = evenbeat.uuid7({now}),
        locked_by = %(worker_id)s,
        lock_acquired_at = {now},
        lock_expires_at = {now}
                          + make_interval(secs => coalesce(j.lease_seconds, %(lease_seconds)s)),
        started_at = {now},
        updated_at = {now},
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
)
SELECT {job} FROM claimed j ORDER BY j.priority DESC, j.next_run_at;

-- name: set_aside_doubled
-- Fails due jobs whose occurrence has an execution already: running it again would double it.
UPDATE evenbeat.jobs j
SET status = 'failed', next_run_at = NULL, plan_time = NULL,
    completed_at = {now},
    updated_at = {now},
    error_message = 'This occurrence has run before; it was set aside instead of being run twice.'
WHERE j.status IN ('pending', 'scheduled')
  AND j.next_run_at <= {now}
  AND EXISTS (SELECT FROM evenbeat.executions e
              WHERE e.job_id = j.id AND e.plan_time = j.plan_time
                AND e.retry_attempt = j.current_retry_count AND e.release_count = j.release_count)
RETURNING j.id;

-- name: next_due
-- When the earliest job that these workers can run is or was due (null when none waits), the
-- database's time, and the same moment for jobs with a concurrency key, whose time it may not be.
WITH RECURSIVE
lanes AS ({free_lanes_by lanes from_frontier}),
limited AS ({limited_lanes_by limited})
SELECT (SELECT min(next_run_at) FROM lanes
        WHERE (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s::text[]))
          AND (%(tasks)s::text[] IS NULL OR task = ANY (%(tasks)s::text[]))
          AND {open lanes}),
       {now},
       (SELECT min(next_run_at) FROM limited
        WHERE (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s::text[]))
          AND (%(tasks)s::text[] IS NULL OR task = ANY (%(tasks)s::text[]))
          AND {open limited});

-- name: renew
-- Extends leases that are still held, and says of each whether it did: a row that somebody else has
-- locked must not keep the others waiting. A token that does not come back is lost.
WITH held AS (
    SELECT j.id, j.lock_token AS token
    FROM unnest(%(job_ids)s::uuid[], %(tokens)s::uuid[]) AS h (job_id, token)
    JOIN evenbeat.jobs j ON j.id = ANY (ARRAY[h.job_id]) AND j.lock_token = h.token
),
free AS (
    SELECT j.id, j.lock_token
    FROM held h JOIN evenbeat.jobs j ON j.id = ANY (ARRAY[h.id]) AND j.lock_token = h.token
    FOR NO KEY UPDATE OF j SKIP LOCKED
),
renewed AS (
    UPDATE evenbeat.jobs j
    SET lock_expires_at = {now}
                          + make_interval(secs => coalesce(j.lease_seconds, %(lease_seconds)s))
    FROM free f
    WHERE j.id = ANY (ARRAY[f.id]) AND j.lock_token = f.lock_token
    RETURNING j.lock_token
)
SELECT token, token IN (SELECT lock_token FROM renewed) FROM held;

-- name: unknown_leases
-- What a worker holds without knowing it: the answer to its claim was lost on the way.
SELECT {job}
FROM evenbeat.jobs j
WHERE j.status = 'running' AND j.locked_by = %(worker_id)s::uuid
  AND j.lock_token <> ALL (%(known)s::uuid[])
  AND j.lock_acquired_at <= {now} - make_interval(secs => %(older_than_seconds)s::float8)
LIMIT 1000;

-- name: unlocked
-- The jobs among these that no other transaction has locked right now.
SELECT id FROM evenbeat.jobs WHERE id = ANY (%(job_ids)s::uuid[]) FOR NO KEY UPDATE SKIP LOCKED;

-- name: progress
-- Writes how far runs have come, while they run; a token that does not come back is lost.
UPDATE evenbeat.executions e
SET progress = report.progress::jsonb
FROM unnest(%(tokens)s::uuid[], %(progress)s::text[]) AS report (token, progress)
WHERE e.id = ANY (ARRAY[report.token]) AND e.status = 'running'
RETURNING e.id;

-- name: revise
-- Gives claimed runs another plan time before they start (catch-up after an outage).
WITH revised AS (
    UPDATE evenbeat.jobs j
    SET plan_time = r.plan_time
    FROM unnest(%(job_ids)s::uuid[], %(tokens)s::uuid[], %(plan_times)s::timestamptz[])
         AS r (job_id, token, plan_time)
    WHERE j.id = ANY (ARRAY[r.job_id]) AND j.lock_token = r.token
    RETURNING r.token, r.plan_time
)
UPDATE evenbeat.executions e SET plan_time = r.plan_time FROM revised r WHERE e.id = ANY (ARRAY[r.token])
RETURNING e.id;

-- name: finish
-- Ends executions and moves their jobs on as decided (`domain/decision.py: decide`), each only if
-- the token still holds its lease (and, for the reaper, only if that lease has run out). Returns the
-- tokens that did, and the jobs that waited for one of these ends; the other tokens are lost.
--
-- What was decided holds, except for what may have changed during the run and only this statement
-- can see: the schedule was edited (its version is another; it has planned the next occurrence
-- already), the job was paused, or none of the jobs that it runs after may end again.
WITH outcome AS (
    SELECT * FROM unnest(
        %(job_ids)s::uuid[], %(tokens)s::uuid[], %(kinds)s::text[], %(outcomes)s::text[],
        %(statuses)s::text[], %(plan_times)s::timestamptz[], %(next_runs)s::timestamptz[],
        %(retry_counts)s::int[], %(burst_counts)s::smallint[], %(schedule_versions)s::int[],
        %(durations_ms)s::float8[],
        %(queued_ms)s::float8[], %(cpu_times_ms)s::float8[], %(memory_peaks_mb)s::float4[],
        %(items_crawled)s::int[], %(items_indexed)s::int[], %(rows_affected)s::bigint[],
        %(error_codes)s::text[], %(error_messages)s::text[], %(stack_traces)s::text[],
        %(results)s::text[], %(figures)s::text[])
    AS o (job_id, token, kind, outcome, status, plan_time, next_run_at, retry_count, burst_count,
          schedule_version, duration_ms, queued_ms, cpu_time_ms, memory_peak_mb,
          items_crawled, items_indexed, rows_affected, error_code, error_message, stack_trace,
          result, figures)
),
ended AS (
    UPDATE evenbeat.jobs j
    SET status = CASE
            WHEN j.is_paused AND (o.status = 'scheduled' OR again.waits
                                  OR o.schedule_version <> j.schedule_version) THEN 'paused'
            WHEN o.schedule_version <> j.schedule_version
                THEN CASE WHEN j.next_run_at IS NULL THEN 'pending' ELSE 'scheduled' END
            WHEN o.status = 'pending' AND again.waits IS NULL THEN o.outcome
            ELSE o.status END,
        -- A child that was made for one plan keeps it for good.
        plan_time = CASE WHEN o.schedule_version <> j.schedule_version OR j.parent_id IS NOT NULL
                         THEN j.plan_time ELSE o.plan_time END,
        next_run_at = CASE WHEN o.schedule_version <> j.schedule_version
                           THEN j.next_run_at ELSE o.next_run_at END,
        is_paused = j.is_paused
                    AND coalesce(o.status = 'scheduled' OR o.schedule_version <> j.schedule_version
                                 OR again.waits, false),
        paused_at = CASE WHEN o.status = 'scheduled' OR o.schedule_version <> j.schedule_version
                              OR again.waits
                         THEN j.paused_at END,
        -- A job that failed shows its retries; one that goes on after all begins anew.
        current_retry_count = CASE
            WHEN o.kind = 'failed' AND (again.waits OR o.schedule_version <> j.schedule_version)
                THEN 0
            ELSE o.retry_count END,
        burst_count = o.burst_count,
        release_count = CASE WHEN j.plan_time = o.plan_time OR j.parent_id IS NOT NULL
                        THEN j.release_count ELSE 0 END,
        lock_token = NULL, locked_by = NULL, lock_acquired_at = NULL, lock_expires_at = NULL,
        started_at = j.started_at + make_interval(secs => o.queued_ms / 1000),
        completed_at = {now},
        updated_at = {now},
        error_message = o.error_message,
        average_duration_ms = CASE WHEN o.outcome = 'completed'
            THEN coalesce(j.average_duration_ms + 0.2 * (o.duration_ms - j.average_duration_ms),
                          o.duration_ms)
            ELSE j.average_duration_ms END
    FROM outcome o
    -- A job that runs after others goes on waiting if one of those may end again.
    LEFT JOIN LATERAL (
        SELECT true AS waits
        FROM evenbeat.dependencies d JOIN evenbeat.jobs p ON p.id = ANY (ARRAY[d.predecessor_id])
        WHERE o.status = 'pending' AND d.job_id = o.job_id
          AND p.status IN ('pending', 'scheduled', 'running', 'paused')
        LIMIT 1) again ON true
    WHERE j.id = ANY (ARRAY[o.job_id]) AND j.lock_token = o.token
      AND (NOT %(expired_only)s OR j.lock_expires_at <= {now})
    RETURNING o.*
),
closed AS (
    UPDATE evenbeat.executions e
    SET status = d.outcome,
        completed_at = {now},
        started_at = e.started_at + make_interval(secs => d.queued_ms / 1000),
        wait_ms = e.wait_ms + d.queued_ms,
        duration_ms = d.duration_ms,
        cpu_time_ms = d.cpu_time_ms, memory_peak_mb = d.memory_peak_mb,
        items_crawled = d.items_crawled, items_indexed = d.items_indexed,
        rows_affected = d.rows_affected,
        error_code = d.error_code, error_message = d.error_message, stack_trace = d.stack_trace,
        result = d.result::jsonb, figures = d.figures::jsonb
    FROM ended d
    WHERE e.id = ANY (ARRAY[d.token])
),
-- Jobs that run after these: marks of occurrences that are over, retries included. Whether anybody
-- waits for anything is asked once, and where nobody does nothing else is done.
awaited AS (
    UPDATE evenbeat.dependencies d
    SET last_end = e.outcome,
        last_end_at = {now},
        satisfied_at = CASE WHEN d.wanted = 'any'
                                 OR d.wanted = 'success' AND e.outcome = 'completed'
                                 OR d.wanted = 'failure' AND e.outcome = 'failed'
                            THEN {now} ELSE d.satisfied_at END,
        plan_time = CASE WHEN d.wanted = 'any'
                              OR d.wanted = 'success' AND e.outcome = 'completed'
                              OR d.wanted = 'failure' AND e.outcome = 'failed'
                         THEN (SELECT x.plan_time FROM evenbeat.executions x WHERE x.id = e.token)
                         ELSE d.plan_time END,
        fresh = d.fresh OR d.wanted = 'any'
                OR d.wanted = 'success' AND e.outcome = 'completed'
                OR d.wanted = 'failure' AND e.outcome = 'failed'
    FROM ended e
    WHERE (SELECT true FROM evenbeat.dependencies LIMIT 1)
      AND d.predecessor_id = e.job_id AND e.kind <> 'retrying'
    RETURNING d.job_id, d.fresh
),
-- What the reaper clears is counted with it, or not at all.
cleared AS (
    INSERT INTO evenbeat.figures AS f (name, value, updated_at)
    SELECT 'stale_locks_cleared', to_jsonb(count(*)), {now}
    FROM ended WHERE %(expired_only)s HAVING count(*) > 0
    ON CONFLICT (name) DO UPDATE
    SET value = to_jsonb(f.value::bigint + excluded.value::bigint), updated_at = excluded.updated_at
)
-- Webhooks hear of each end. Whether there is any is asked once, and without one nothing is done.
SELECT token, (SELECT array_agg(job_id) FROM awaited WHERE fresh),
       CASE WHEN (SELECT true FROM evenbeat.webhooks WHERE enabled LIMIT 1)
            THEN evenbeat.tell_webhooks(
                'job.' || kind, {now}, job_id, token, duration_ms,
                error_code, error_message, next_run_at) END
FROM ended;

-- name: release
-- Hands runs back without costing an attempt: due again at once with the plan they had, or at
-- `next_runs` when the run is not wanted now. One that sleeps or waits for an event (`is_waiting`; its
-- row is locked before, see `lock_claims`) is due at once if that has come meanwhile. A token that
-- does not come back is lost.
WITH released AS (
    UPDATE evenbeat.jobs j
    SET status = CASE WHEN j.is_paused THEN 'paused'
                      WHEN later.next_run_at IS NULL THEN 'pending' ELSE 'scheduled' END,
        plan_time = coalesce(r.plan_time, e.plan_time),
        next_run_at = coalesce(later.next_run_at,
                               least(j.next_run_at, {now})),
        release_count = CASE WHEN coalesce(r.plan_time, e.plan_time) = e.plan_time
                        THEN j.release_count + 1 ELSE 0 END,
        lock_token = NULL, locked_by = NULL, lock_acquired_at = NULL, lock_expires_at = NULL,
        updated_at = {now}
    FROM unnest(%(job_ids)s::uuid[], %(tokens)s::uuid[], %(plan_times)s::timestamptz[],
                %(next_runs)s::timestamptz[], %(error_messages)s::text[])
         AS r (job_id, token, plan_time, next_run_at, error_message)
    JOIN evenbeat.executions e ON e.id = ANY (ARRAY[r.token])
    LEFT JOIN LATERAL (
        SELECT r.next_run_at
        WHERE NOT %(is_waiting)s
           OR EXISTS (SELECT FROM evenbeat.steps s
                      WHERE s.job_id = r.job_id AND s.plan_time = e.plan_time
                        AND s.until = r.next_run_at AND s.completed_at IS NULL)) later ON true
    WHERE j.id = ANY (ARRAY[r.job_id]) AND j.lock_token = r.token
    RETURNING r.token, r.error_message, j.queue, j.payload
),
closed AS (
    UPDATE evenbeat.executions e
    SET status = 'cancelled', completed_at = {now},
        error_code = %(error_code)s, error_message = r.error_message,
        duration_ms = CASE WHEN %(has_run)s THEN extract(epoch FROM {now} - e.started_at) * 1000 END,
        -- Which payload was refused: an edited one has not been.
        metadata = CASE WHEN %(is_refused)s THEN
            jsonb_build_object('payload_hash', hashtextextended(r.payload::text, 0)) END
    FROM released r
    WHERE e.id = ANY (ARRAY[r.token])
)
SELECT token, pg_notify(%(channel)s, 'due:' || queue) FROM released;

-- name: refusals
-- How often the payloads of these runs were refused before. A run comes back only if there is a live
-- worker that could take its job and has not refused it, apart from the one that asks.
SELECT own.id, before.times
FROM unnest(%(tokens)s::uuid[]) AS r (token)
JOIN evenbeat.executions own ON own.id = ANY (ARRAY[r.token])
JOIN evenbeat.jobs j ON j.id = ANY (ARRAY[own.job_id])
CROSS JOIN LATERAL (
    SELECT count(*) AS times, array_agg(e.worker_id) AS workers
    FROM evenbeat.executions e
    WHERE e.job_id = own.job_id AND e.plan_time = own.plan_time
      AND e.retry_attempt = own.retry_attempt AND e.error_code = %(refused)s
      AND e.metadata -> 'payload_hash' = to_jsonb(hashtextextended(j.payload::text, 0))) before
WHERE EXISTS (
    SELECT FROM evenbeat.workers w
    WHERE w.status <> 'draining'
      AND w.heartbeat_at > {now} - make_interval(secs => %(silent_seconds)s)
      AND (w.queues IS NULL OR j.queue = ANY (w.queues))
      AND (w.tasks IS NULL OR j.task = ANY (w.tasks))
      AND w.id <> own.worker_id
      AND w.id <> ALL (coalesce(before.workers, ARRAY[]::uuid[])));

-- name: expired
-- Running jobs whose lease has run out, oldest first, with the plan that was being run.
SELECT {job} FROM (
    SELECT {job_but_plan}, coalesce(e.plan_time, j.plan_time) AS plan_time
    FROM evenbeat.jobs j LEFT JOIN evenbeat.executions e ON e.id = ANY (ARRAY[j.lock_token])
    WHERE j.status = 'running' AND j.lock_expires_at <= {now}
    ORDER BY j.lock_expires_at
    LIMIT %(limit)s
    FOR NO KEY UPDATE OF j SKIP LOCKED) j;  -- one that somebody has locked must not hold up the rest

-- name: expire_leases_of
-- Ends the leases of workers that are known to be gone, so that the reaper need not wait for them.
UPDATE evenbeat.jobs
SET lock_expires_at = {now}
WHERE status = 'running' AND locked_by = ANY (%(worker_ids)s::uuid[])
  AND lock_expires_at > {now}
RETURNING id;

-- name: batches_over
-- Which of these batches have no job left that will or may still run (`{is_over}`). One that failed may
-- have completed since, when the cancellation of a job was taken back for example.
SELECT b.id FROM evenbeat.batches b
WHERE b.id = ANY (%(ids)s::uuid[]) AND b.status IN ('running', 'failed') AND {is_over};

-- name: lock_batches
-- These batches, locked. One that somebody adds to is not over.
SELECT b.id FROM evenbeat.batches b
WHERE b.id = ANY (%(ids)s::uuid[]) AND b.status IN ('running', 'failed')
ORDER BY b.id
FOR NO KEY UPDATE SKIP LOCKED;

-- name: end_batches
-- Ends those of these batches that are over, once each, and tells the jobs that run after them. Their
-- rows are locked before, so that nothing is added meanwhile that this could not see. A job that has
-- run after a batch does not run again when failed jobs of it are retried.
WITH ended AS (
    UPDATE evenbeat.batches b
    SET ended_at = {now}, counted_at = NULL,
        status = CASE
            WHEN EXISTS (SELECT FROM evenbeat.jobs j WHERE j.batch_id = b.id AND j.status = 'failed')
              OR EXISTS (SELECT FROM evenbeat.jobs j WHERE j.batch_id = b.id AND j.status = 'cancelled')
              OR EXISTS (SELECT FROM evenbeat.jobs j
                         JOIN evenbeat.dependencies d ON d.job_id = j.id AND d.satisfied_at IS NULL
                         WHERE j.batch_id = b.id AND j.status = 'pending' AND d.wanted <> 'failure')
              OR EXISTS (SELECT FROM evenbeat.batches n
                         WHERE n.parent_id = b.id AND n.status <> 'completed')
            THEN 'failed' ELSE 'completed' END
    WHERE b.id = ANY (%(ids)s::uuid[]) AND b.status IN ('running', 'failed') AND {is_over}
    RETURNING b.id, b.parent_id, b.status
),
awaited AS (
    UPDATE evenbeat.dependencies d
    SET last_end = e.status, last_end_at = {now},
        satisfied_at = CASE WHEN wanted.it THEN {now} END,
        plan_time = CASE WHEN wanted.it THEN {now} END,
        fresh = wanted.it
    FROM ended e
    CROSS JOIN LATERAL (VALUES ('success', e.status = 'completed'), ('failure', e.status = 'failed'),
                               ('any', true)) AS wanted (word, it)
    WHERE d.predecessor_id = ANY (ARRAY[e.id]) AND d.wanted = wanted.word AND d.satisfied_at IS NULL
)
SELECT id, parent_id FROM ended;
