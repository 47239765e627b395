-- What operators do to jobs, by ids. The states a job may come from are passed in, because the
-- table of transitions lives in one place, in Python.

-- name: pause
-- Waiting jobs stop waiting; a running one finishes its run first.
UPDATE evenbeat.jobs j
SET is_paused = true,
    paused_at = {now},
    status = CASE WHEN status = 'running' THEN status ELSE 'paused' END,
    updated_at = {now}
WHERE id = ANY (%(ids)s::uuid[]) AND status = ANY (%(sources)s::text[]) AND NOT is_paused
RETURNING {job};

-- name: paused_for_update
-- The paused ones among these jobs, locked until the transaction ends.
SELECT {job} FROM evenbeat.jobs j
WHERE j.id = ANY (%(ids)s::uuid[]) AND j.is_paused
ORDER BY j.id
FOR UPDATE;

-- name: resume
-- Puts paused jobs back to their plans; one that still runs only loses the mark. A new plan starts
-- with no retries behind it.
UPDATE evenbeat.jobs j
SET is_paused = false,
    paused_at = NULL,
    status = CASE WHEN j.status = 'running' THEN j.status ELSE r.status END,
    plan_time = CASE WHEN j.status = 'running' THEN j.plan_time ELSE r.plan_time END,
    next_run_at = CASE WHEN j.status = 'running' THEN j.next_run_at ELSE r.next_run_at END,
    anchor_at = CASE WHEN j.status = 'running' THEN j.anchor_at ELSE r.anchor_at END,
    placed_at = CASE WHEN j.status = 'running' THEN j.placed_at ELSE r.placed_at END,
    current_retry_count = CASE WHEN j.status = 'running' OR j.plan_time = r.plan_time
                               THEN j.current_retry_count ELSE 0 END,
    release_count = CASE WHEN j.status = 'running' OR j.plan_time = r.plan_time
                    THEN j.release_count ELSE 0 END,
    updated_at = {now}
FROM unnest(%(ids)s::uuid[], %(statuses)s::text[], %(plan_times)s::timestamptz[],
            %(next_runs)s::timestamptz[], %(anchors)s::timestamptz[], %(placed)s::timestamptz[])
     AS r (id, status, plan_time, next_run_at, anchor_at, placed_at)
WHERE j.id = r.id AND j.is_paused
RETURNING {job};

-- name: cancel
-- Ends jobs at once. A running one loses its lease, by which its worker learns to stop.
WITH target AS (
    SELECT id, lock_token FROM evenbeat.jobs
    WHERE id = ANY (%(ids)s::uuid[]) AND status = ANY (%(sources)s::text[])
    ORDER BY id
    FOR UPDATE
),
closed AS (
    UPDATE evenbeat.executions e
    SET status = 'cancelled',
        completed_at = {now},
        duration_ms = extract(epoch FROM {now} - e.started_at) * 1000,
        error_code = 'cancelled', error_message = 'Cancelled by an operator.'
    FROM target t
    WHERE e.id = ANY (ARRAY[t.lock_token])
),
told AS (
    SELECT pg_notify(%(channel)s, 'cancel:' || id) FROM target WHERE lock_token IS NOT NULL
),
-- Webhooks hear of it as they do of an end in `finish`.
heard AS (
    SELECT evenbeat.tell_webhooks('job.cancelled', {now}, id,
                                  lock_token, NULL, 'cancelled', 'Cancelled by an operator.', NULL)
    FROM target
    WHERE (SELECT true FROM evenbeat.webhooks WHERE enabled LIMIT 1)
),
-- Jobs that run after these: being cancelled is an end, though neither success nor failure.
awaited AS (
    UPDATE evenbeat.dependencies d
    SET last_end = 'cancelled', last_end_at = {now},
        satisfied_at = CASE WHEN d.wanted = 'any' THEN {now}
                            ELSE d.satisfied_at END,
        plan_time = CASE WHEN d.wanted = 'any'
                         THEN (SELECT p.plan_time FROM evenbeat.jobs p WHERE p.id = t.id)
                         ELSE d.plan_time END,
        fresh = d.fresh OR d.wanted = 'any'
    FROM target t
    WHERE (SELECT true FROM evenbeat.dependencies LIMIT 1) AND d.predecessor_id = t.id
)
UPDATE evenbeat.jobs j
SET status = 'cancelled',
    cancelled_at = {now},
    completed_at = {now},
    plan_time = CASE WHEN j.parent_id IS NOT NULL THEN j.plan_time END,
    release_count = CASE WHEN j.parent_id IS NOT NULL THEN j.release_count ELSE 0 END,
    next_run_at = NULL, is_paused = false, paused_at = NULL, burst_count = 0,
    lock_token = NULL, locked_by = NULL, lock_acquired_at = NULL, lock_expires_at = NULL,
    updated_at = {now}
FROM target t
WHERE j.id = ANY (ARRAY[t.id])
  AND (SELECT count(*) FROM told) >= 0 AND (SELECT count(*) FROM heard) >= 0
RETURNING {job};

-- name: run_again
-- Makes jobs due now, as a new occurrence planned for this moment, less their schedule_delay: a plan
-- of this very moment would not be due yet, and could pass over one that is. Retries are back at 0.
-- A job that waits for a retry, or was handed back, goes on with that, and one that still has to
-- catch up on every plan goes on with the oldest of them. The rhythm of a recurring job is untouched,
-- and a child keeps the plan it was made for. A job stays as it is when a live one has taken over its
-- dedup key.
WITH chosen AS (
    SELECT DISTINCT ON (j.dedup_key, CASE WHEN j.dedup_key IS NULL THEN j.id END)
           j.id, j.status AS was,
           j.status IN ('pending', 'scheduled') AND (j.current_retry_count > 0 OR j.release_count > 0)
               AS has_begun,
           j.status IN ('pending', 'scheduled') AND j.catch_up = 'every_plan' AND j.plan_time <= {now}
               AS is_behind
    FROM evenbeat.jobs j
    WHERE j.id = ANY (%(ids)s::uuid[]) AND j.status = ANY (%(sources)s::text[])
      AND (j.status IN ('pending', 'scheduled') OR NOT EXISTS (
              SELECT FROM evenbeat.jobs o
              WHERE o.dedup_key = ANY (ARRAY[j.dedup_key])
                AND o.status IN ('pending', 'scheduled', 'running', 'paused')))
    ORDER BY j.dedup_key, CASE WHEN j.dedup_key IS NULL THEN j.id END, j.id DESC
),
target AS (
    UPDATE evenbeat.jobs j
    SET status = 'pending',
        plan_time = CASE WHEN has_begun OR is_behind OR parent_id IS NOT NULL THEN plan_time
                         ELSE {now} - j.schedule_delay_seconds * interval '1s' END,
        current_retry_count = CASE WHEN has_begun THEN current_retry_count ELSE 0 END,
        release_count = CASE WHEN has_begun THEN release_count
                        WHEN parent_id IS NOT NULL THEN release_count + 1 ELSE 0 END,
        next_run_at = {now},
        burst_count = 0, cancelled_at = NULL, error_message = NULL,
        updated_at = {now}
    FROM chosen c
    WHERE j.id = ANY (ARRAY[c.id]) AND j.status = ANY (%(sources)s::text[])
    RETURNING j.*, c.was
),
-- A sleep ends. What a job that failed or was cancelled had done goes with it to its new plan, and a
-- wait whose time had run out, if that was what ended it, begins anew.
woken AS (
    UPDATE evenbeat.steps s SET until = {now}
    FROM target t
    WHERE t.release_count > 0 AND s.job_id = t.id AND s.plan_time = t.plan_time
      AND s.kind = 'sleep' AND s.completed_at IS NULL
),
last AS (
    SELECT t.id, t.plan_time, e.plan_time AS old_plan,
           CASE WHEN e.error_code = 'event_timeout' THEN (
               SELECT max(s.until) FROM evenbeat.steps s
               WHERE s.job_id = t.id AND s.plan_time = e.plan_time AND s.timed_out) END AS in_vain_until
    FROM target t CROSS JOIN LATERAL (
        SELECT * FROM evenbeat.executions x WHERE x.job_id = t.id
        ORDER BY x.plan_time DESC, x.retry_attempt DESC, x.release_count DESC LIMIT 1) e
    WHERE t.was IN ('failed', 'cancelled') AND (SELECT true FROM evenbeat.steps LIMIT 1)
),
forgotten AS (
    DELETE FROM evenbeat.steps s USING last l
    WHERE s.job_id = l.id AND s.plan_time = l.old_plan
      AND s.timed_out AND s.until = l.in_vain_until
),
carried AS (
    UPDATE evenbeat.steps s SET plan_time = l.plan_time
    FROM last l
    WHERE s.job_id = l.id AND s.plan_time = l.old_plan
      AND NOT (s.timed_out AND s.until IS NOT DISTINCT FROM l.in_vain_until)
),
-- Where all is marked that a job waits for, this run is the one that the marks ask for.
taken AS (
    UPDATE evenbeat.dependencies d
    SET fresh = false,
        satisfied_at = CASE WHEN EXISTS (
            SELECT FROM evenbeat.jobs p
            WHERE p.id = ANY (ARRAY[d.predecessor_id])
              AND p.status IN ('pending', 'scheduled', 'running', 'paused'))
            THEN NULL ELSE d.satisfied_at END
    FROM target t
    WHERE t.schedule_kind = 'after' AND d.job_id = t.id
      AND NOT EXISTS (SELECT FROM evenbeat.dependencies a
                      WHERE a.job_id = t.id AND a.satisfied_at IS NULL)
),
-- A batch that was over goes on, and so does one that it is a part of.
reopened AS (
    UPDATE evenbeat.batches b
    SET status = 'running', ended_at = NULL, counted_at = NULL
    WHERE b.ended_at IS NOT NULL AND b.id IN (
        WITH RECURSIVE up (id) AS (
            SELECT t.batch_id FROM target t WHERE t.batch_id IS NOT NULL
            UNION
            SELECT o.parent_id FROM up JOIN evenbeat.batches o ON o.id = up.id
            WHERE o.parent_id IS NOT NULL)
        SELECT id FROM up)
),
told AS (
    SELECT pg_notify(%(channel)s, 'due:' || queue) FROM (SELECT DISTINCT queue FROM target) q
)
SELECT {job} FROM target j WHERE (SELECT count(*) FROM told) >= 0;

-- name: set_priority
-- Sets the priority; what aging had added is forgotten.
UPDATE evenbeat.jobs j
SET priority = %(priority)s, aging_bonus = 0, updated_at = {now}
WHERE id = ANY (%(ids)s::uuid[])
RETURNING {job};

-- name: boost
-- Raises the priority, at most to 100; what aging had added makes room for it.
UPDATE evenbeat.jobs j
SET priority = least(100, priority + %(by)s),
    aging_bonus = greatest(0, least(aging_bonus, 100 - (priority - aging_bonus + %(by)s))),
    updated_at = {now}
WHERE id = ANY (%(ids)s::uuid[])
RETURNING {job};

-- name: job_for_update
-- One job, locked until the transaction ends.
SELECT {job} FROM evenbeat.jobs j WHERE j.id = %(id)s FOR UPDATE;

-- name: update_job
-- Writes an edited definition. The version tells a run in flight whether to plan by its own copy.
-- What aging had added stays on top, and another plan starts with no retries behind it. One that is no
-- longer debounced, or is from now on, does not stand for calls by the key that it had.
UPDATE evenbeat.jobs j
SET {spec_changes}, priority = least(100, %(priority)s + aging_bonus),
    aging_bonus = least(aging_bonus, 100 - %(priority)s),
    payload = coalesce(%(payload)s::jsonb, payload),
    metadata = coalesce(%(metadata)s::jsonb, metadata),
    name = %(name)s,
    unique_key = CASE WHEN (%(debounce_seconds)s::float8 IS NULL) = (debounce_seconds IS NULL)
                      THEN unique_key END,
    current_retry_count = CASE WHEN status IN ('running', 'failed') OR plan_time = %(plan_time)s
                               THEN current_retry_count ELSE 0 END,
    release_count = CASE WHEN status = 'running' OR plan_time = %(plan_time)s THEN release_count ELSE 0 END,
    anchor_at = %(anchor_at)s, placed_at = %(placed_at)s,
    status = %(status)s, plan_time = %(plan_time)s, next_run_at = %(next_run_at)s,
    schedule_version = %(schedule_version)s,
    updated_at = {now}
WHERE j.id = %(id)s
RETURNING {job};

-- name: set_owner
-- Notes who declares a job; nothing else of it changes.
UPDATE evenbeat.jobs SET created_by = %(owner)s WHERE id = %(id)s RETURNING id;

-- name: delete
-- Removes jobs with their history. A worker that runs one finds its claim lost.
WITH history AS (
    DELETE FROM evenbeat.executions WHERE job_id = ANY (%(ids)s::uuid[])
    RETURNING id
),
logs_gone AS (
    DELETE FROM evenbeat.run_logs l USING history h
    WHERE (SELECT true FROM evenbeat.run_logs LIMIT 1) AND l.execution_id = ANY (ARRAY[h.id])
),
untied AS (
    DELETE FROM evenbeat.dependencies WHERE job_id = ANY (%(ids)s::uuid[])
),
steps_gone AS (
    DELETE FROM evenbeat.steps WHERE job_id = ANY (%(ids)s::uuid[])
)
DELETE FROM evenbeat.jobs j WHERE j.id = ANY (%(ids)s::uuid[])
RETURNING {job};

-- name: states_of
-- The states of these jobs, and the live job that has taken over the dedup key of an ended one.
-- A job that does not come back does not exist.
SELECT j.id, j.status, j.is_paused, o.id
FROM evenbeat.jobs j
LEFT JOIN evenbeat.jobs o
       ON o.dedup_key = j.dedup_key AND j.status IN ('completed', 'failed', 'cancelled')
      AND o.status IN ('pending', 'scheduled', 'running', 'paused')
WHERE j.id = ANY (%(ids)s::uuid[]);

-- name: set_queue_paused
-- Pauses or resumes a queue: its jobs wait, running ones finish.
INSERT INTO evenbeat.queues (name, paused_at)
VALUES (%(name)s, CASE WHEN %(paused)s THEN {now} END)
ON CONFLICT (name) DO UPDATE SET paused_at = excluded.paused_at
RETURNING name, pg_notify(%(channel)s, 'due:' || name);

-- name: keep_undo
-- Keeps jobs as they were before a verb. What is older than a day goes.
WITH gone AS (
    DELETE FROM evenbeat.undos WHERE created_at < {now} - interval '1 day'
)
INSERT INTO evenbeat.undos (id, created_at, jobs) VALUES (%(id)s, {now}, %(jobs)s::jsonb)
RETURNING id;

-- name: take_back
-- Makes jobs what they were, where they are still as the verb left them; returns how many there were,
-- with each that is put back. It can be done once.
WITH used AS (
    DELETE FROM evenbeat.undos WHERE id = %(id)s RETURNING jobs
),
back AS (
    UPDATE evenbeat.jobs j
    SET {restored}, updated_at = {now}
    FROM used CROSS JOIN LATERAL jsonb_populate_recordset(NULL::evenbeat.jobs, used.jobs) r
    WHERE j.id = r.id AND j.updated_at = r.updated_at AND j.status <> 'running'
    RETURNING j.*
)
SELECT jsonb_array_length(used.jobs), {job} FROM used LEFT JOIN back j ON true;

-- name: pause_everything
-- Lets nothing more start on any worker. A pause that is on already gets another reason and end.
INSERT INTO evenbeat.fleet_pause AS f (reason, paused_by, since, ends_at)
VALUES (%(reason)s, %(paused_by)s, {now}, %(ends_at)s)
ON CONFLICT (is_only) DO UPDATE
SET reason = excluded.reason, paused_by = excluded.paused_by, ends_at = excluded.ends_at,
    since = CASE WHEN f.ends_at <= {now} THEN excluded.since ELSE f.since END
RETURNING reason, paused_by, since, ends_at;

-- name: resume_everything
-- Ends the pause, and wakes the workers.
DELETE FROM evenbeat.fleet_pause
RETURNING reason, paused_by, since, ends_at, ends_at <= {now},
          pg_notify(%(channel)s, 'due:');
