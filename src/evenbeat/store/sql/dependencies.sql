-- Jobs that run after others. The end of a job marks the rows that wait for it (`finish`, `cancel`);
-- a job whose rows are all marked is started, and its marks are taken away, in one transaction.
-- Whoever starts holds the job's row and all of its marks; nothing here ever waits for a lock that
-- `finish` holds, so ending jobs is never held up by a deadlock.

-- name: find_awaited
-- The jobs that are meant by ids and names; a name means a job of the same scope, or otherwise a global one.
-- They cannot be deleted until the transaction ends.
SELECT j.id, j.name, j.scope_kind = %(scope_kind)s AND j.scope_id = %(scope_id)s AS own_scope
FROM evenbeat.jobs j
WHERE j.id = ANY (%(ids)s::uuid[])
   OR (j.name = ANY (%(names)s::text[])
       AND ((j.scope_kind, j.scope_id) = (%(scope_kind)s, %(scope_id)s)
            OR (j.scope_kind, j.scope_id) = ('global', 'global')))
ORDER BY j.id
FOR KEY SHARE;

-- name: lock_dependencies
-- One edit at a time: two edits that together close a circle must see each other.
SELECT pg_advisory_xact_lock(hashtextextended(%(name)s, 1));

-- name: upstream_of
-- Who waits for whom, from these jobs up to where nothing is waited for; each pair once.
WITH RECURSIVE up (job_id, predecessor_id) AS (
    SELECT d.job_id, d.predecessor_id FROM evenbeat.dependencies d
    WHERE d.job_id = ANY (%(ids)s::uuid[])
    UNION
    SELECT d.job_id, d.predecessor_id
    FROM up JOIN evenbeat.dependencies d ON d.job_id = up.predecessor_id
)
SELECT job_id, predecessor_id FROM up;

-- name: labels_of
-- What people call these jobs.
SELECT j.id, coalesce(j.name, j.task || ' ' || j.id) FROM evenbeat.jobs j
WHERE j.id = ANY (%(ids)s::uuid[]);

-- name: tie
-- Makes jobs wait for others. One that has ended as wanted counts already; a row that is there keeps
-- its marks unless another end is wanted now.
INSERT INTO evenbeat.dependencies AS d (job_id, predecessor_id, wanted, position, created_at,
                                        satisfied_at, fresh, last_end, last_end_at,
                                        plan_time)
SELECT t.job_id, t.predecessor_id, t.wanted, t.position, {now},
       CASE WHEN ended THEN {now} END, ended,
       CASE WHEN ended THEN t.status END,
       CASE WHEN ended THEN coalesce(t.completed_at, %(now)s::timestamptz, now()) END,
       CASE WHEN ended THEN coalesce((SELECT x.plan_time FROM evenbeat.executions x
                                      WHERE x.job_id = t.predecessor_id
                                      ORDER BY x.plan_time DESC LIMIT 1), t.completed_at) END
FROM (
    SELECT t.*, coalesce(p.status, b.status) AS status, coalesce(p.completed_at, b.ended_at) AS completed_at,
           coalesce(CASE t.wanted WHEN 'success' THEN coalesce(p.status, b.status) = 'completed'
                                  WHEN 'failure' THEN coalesce(p.status, b.status) = 'failed'
                                  ELSE coalesce(p.status, b.status)
                                       IN ('completed', 'failed', 'cancelled') END,
                    false) AS ended
    FROM unnest(%(job_ids)s::uuid[], %(predecessor_ids)s::uuid[], %(wanted)s::text[],
                %(positions)s::int[]) AS t (job_id, predecessor_id, wanted, position)
    LEFT JOIN evenbeat.jobs p ON p.id = ANY (ARRAY[t.predecessor_id])
    LEFT JOIN evenbeat.batches b ON b.id = ANY (ARRAY[t.predecessor_id])) t
ORDER BY t.predecessor_id, t.job_id
ON CONFLICT (predecessor_id, job_id) DO UPDATE
SET position = excluded.position, wanted = excluded.wanted,
    satisfied_at = CASE WHEN d.wanted = excluded.wanted THEN d.satisfied_at
                        ELSE excluded.satisfied_at END,
    plan_time = CASE WHEN d.wanted = excluded.wanted THEN d.plan_time ELSE excluded.plan_time END,
    fresh = CASE WHEN d.wanted = excluded.wanted THEN d.fresh ELSE excluded.fresh END
RETURNING d.job_id;

-- name: untie
-- Lets a job wait no longer for any but these.
DELETE FROM evenbeat.dependencies
WHERE job_id = %(job_id)s AND NOT predecessor_id = ANY (%(kept)s::uuid[])
RETURNING predecessor_id;

-- name: startable_dependents
-- Idle jobs whose marks look complete, locked; those that another session has locked are left to it.
-- With `only`, of these jobs; with `awaiting`, of those that wait for these jobs.
SELECT {job}
FROM evenbeat.jobs j
WHERE j.schedule_kind = 'after'
  AND j.id = ANY (ARRAY(
      SELECT d.job_id FROM evenbeat.dependencies d
      WHERE d.fresh AND %(only)s::uuid[] IS NULL
        AND (%(awaiting)s::uuid[] IS NULL OR d.predecessor_id = ANY (%(awaiting)s::uuid[]))
      UNION ALL
      -- Of very many marks, one that is missing decides.
      SELECT o.id FROM unnest(%(only)s::uuid[]) AS o (id)
      WHERE NOT EXISTS (SELECT FROM evenbeat.dependencies d
                        WHERE d.job_id = o.id AND d.satisfied_at IS NULL)
        AND EXISTS (SELECT FROM evenbeat.dependencies d WHERE d.job_id = o.id AND d.fresh)))
  AND NOT EXISTS (SELECT FROM evenbeat.dependencies d
                  WHERE d.job_id = j.id AND d.satisfied_at IS NULL)
  AND (j.status = 'pending' AND j.next_run_at IS NULL
       OR j.status = 'completed' OR j.status = 'failed' AND j.on_failure = 'continue')
  AND (j.status = 'pending' OR NOT EXISTS (
          SELECT FROM evenbeat.jobs o
          WHERE o.dedup_key = ANY (ARRAY[j.dedup_key])
            AND o.status IN ('pending', 'scheduled', 'running', 'paused')))
ORDER BY j.id
LIMIT %(limit)s
FOR UPDATE OF j SKIP LOCKED;

-- name: ready_among
-- Of these jobs, those that start: all that they wait for have ended as wanted, one of them since the
-- last start. Their marks are locked; where some are locked already, an end is being written at this
-- moment, and its writer looks next.
WITH marks AS (
    SELECT d.job_id, d.satisfied_at IS NOT NULL AS satisfied, d.fresh
    FROM evenbeat.dependencies d
    WHERE d.job_id = ANY (%(ids)s::uuid[])
    FOR UPDATE OF d SKIP LOCKED
)
SELECT m.job_id
FROM marks m
GROUP BY m.job_id
HAVING bool_and(m.satisfied) AND bool_or(m.fresh)
   AND count(*) = (SELECT count(*) FROM evenbeat.dependencies a WHERE a.job_id = m.job_id);

-- name: start_dependents
-- Makes jobs due, as a new occurrence planned for this moment, and takes their marks away. Where
-- time stands still, `release_count` tells two occurrences of one moment apart.
WITH started AS (
    UPDATE evenbeat.jobs j
    SET status = s.status, plan_time = %(plan_time)s::timestamptz, next_run_at = s.next_run_at,
        predecessor_plan_time = (SELECT max(d.plan_time) FROM evenbeat.dependencies d
                                 WHERE d.job_id = j.id),
        current_retry_count = 0, burst_count = 0,
        release_count = coalesce((SELECT max(e.release_count) + 1 FROM evenbeat.executions e
                             WHERE e.job_id = j.id AND e.plan_time = %(plan_time)s::timestamptz), 0),
        updated_at = {now}
    FROM unnest(%(ids)s::uuid[], %(statuses)s::text[], %(next_runs)s::timestamptz[])
         AS s (id, status, next_run_at)
    WHERE j.id = ANY (ARRAY[s.id])
    RETURNING j.id, j.queue
),
taken AS (
    UPDATE evenbeat.dependencies d
    SET fresh = false,
        satisfied_at = CASE WHEN EXISTS (
            SELECT FROM evenbeat.jobs p
            WHERE p.id = ANY (ARRAY[d.predecessor_id])
              AND p.status IN ('pending', 'scheduled', 'running', 'paused'))
            THEN NULL ELSE d.satisfied_at END
    FROM started s
    WHERE d.job_id = s.id
),
told AS (
    SELECT pg_notify(%(channel)s, 'due:' || queue) FROM (SELECT DISTINCT queue FROM started) q
)
SELECT id FROM started WHERE (SELECT count(*) FROM told) >= 0;

-- name: notice_missed_ends
-- Marks rows whose job ended while they were being made: that end could not see them. Young rows are
-- looked at each time; `thoroughly`, also those whose transaction was open for longer.
UPDATE evenbeat.dependencies d
SET satisfied_at = {now}, fresh = true,
    plan_time = (SELECT x.plan_time FROM evenbeat.executions x
                 WHERE x.job_id = p.id ORDER BY x.plan_time DESC LIMIT 1),
    last_end = CASE WHEN p.status IN ('failed', 'cancelled') THEN p.status ELSE 'completed' END,
    last_end_at = coalesce(p.completed_at, %(now)s::timestamptz, now())
FROM evenbeat.jobs p
WHERE d.last_end_at IS NULL AND d.satisfied_at IS NULL
  AND (%(thoroughly)s::boolean
       OR d.created_at > {now} - interval '5 minutes')
  AND p.id = ANY (ARRAY[d.predecessor_id])
  AND (CASE d.wanted WHEN 'success' THEN p.status = 'completed'
                     WHEN 'failure' THEN p.status = 'failed'
                     ELSE p.status IN ('completed', 'failed', 'cancelled') END
       OR d.wanted IN ('success', 'any')
          AND d.created_at > {now} - interval '5 minutes' AND EXISTS (
              SELECT FROM evenbeat.executions e
              WHERE e.job_id = p.id AND e.status = 'completed' AND e.completed_at > d.created_at))
RETURNING d.job_id;

-- name: awaited_by
-- What these jobs wait for, in the order it was given.
SELECT d.job_id, d.predecessor_id, coalesce(p.name, b.name), p.task, d.wanted,
       d.satisfied_at IS NOT NULL, coalesce(p.status, b.status), d.last_end, d.last_end_at,
       p.scope_kind || '/' || p.scope_id, b.id IS NOT NULL
FROM evenbeat.dependencies d
LEFT JOIN evenbeat.jobs p ON p.id = ANY (ARRAY[d.predecessor_id])
LEFT JOIN evenbeat.batches b ON b.id = ANY (ARRAY[d.predecessor_id])
WHERE d.job_id = ANY (%(ids)s::uuid[])
ORDER BY d.job_id, d.position, d.predecessor_id;

-- name: dependents_of
-- Who waits for this job.
SELECT j.id, j.name, j.task, d.wanted, d.satisfied_at IS NOT NULL, j.status
FROM evenbeat.dependencies d JOIN evenbeat.jobs j ON j.id = d.job_id
WHERE d.predecessor_id = %(id)s
ORDER BY j.id
LIMIT %(limit)s;

-- name: jobs_to_delete
-- These jobs, locked: nobody begins to wait for one of them any more.
SELECT j.id FROM evenbeat.jobs j WHERE j.id = ANY (%(ids)s::uuid[]) ORDER BY j.id FOR UPDATE;

-- name: still_awaited
-- Which of these jobs others, not among them, still wait for: live ones, whose mark is missing or
-- would be wanted again.
SELECT d.predecessor_id, array_agg(coalesce(j.name, j.task || ' ' || j.id) ORDER BY j.id)
FROM evenbeat.dependencies d
JOIN evenbeat.jobs j ON j.id = d.job_id AND j.status IN ('pending', 'scheduled', 'running', 'paused')
JOIN evenbeat.jobs p ON p.id = d.predecessor_id
WHERE d.predecessor_id = ANY (%(ids)s::uuid[]) AND NOT d.job_id = ANY (%(ids)s::uuid[])
  AND (d.satisfied_at IS NULL OR p.status IN ('pending', 'scheduled', 'running', 'paused'))
GROUP BY d.predecessor_id;

-- name: inputs_of
-- What the jobs came to that a job runs after, in its order: the runs by which it was last started.
SELECT d.position, p.id, p.task, e.status, e.result, e.error_code, e.error_message
FROM evenbeat.dependencies d
JOIN evenbeat.jobs p ON p.id = ANY (ARRAY[d.predecessor_id])
LEFT JOIN LATERAL (
    SELECT e.status, e.result, e.error_code, e.error_message FROM evenbeat.executions e
    WHERE e.job_id = p.id AND e.plan_time = coalesce(d.plan_time, e.plan_time)
    ORDER BY e.plan_time DESC, e.retry_attempt DESC, e.release_count DESC
    LIMIT 1) e ON true
WHERE d.job_id = %(job_id)s AND d.position > %(after)s
  AND (%(name)s::text IS NULL OR p.name = %(name)s OR p.task = %(name)s)
ORDER BY d.position
LIMIT %(limit)s;
