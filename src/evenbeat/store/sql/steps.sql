-- What the runs of one occurrence have done for good, and what they wait for.

-- name: steps_of
-- The steps of a job, of one occurrence or of all, in the order in which they happened.
SELECT {step} FROM evenbeat.steps s
WHERE s.job_id = %(job_id)s
  AND (%(plan_time)s::timestamptz IS NULL OR s.plan_time = %(plan_time)s::timestamptz)
ORDER BY coalesce(s.started_at, s.completed_at), s.completed_at, s.execution_number, s.number
LIMIT %(limit)s;

-- name: steps_in
-- What one run did, or began to wait for.
SELECT {step} FROM evenbeat.steps s
WHERE s.job_id = %(job_id)s AND s.plan_time = %(plan_time)s AND s.execution_id = %(execution_id)s
ORDER BY s.started_at, s.completed_at, s.number;

-- name: keep_step
-- Keeps a step, if the run still holds its lease, and returns it as it stands now: an event may have
-- come meanwhile, and the first that completes a step counts. No row: the lease is lost.
WITH run AS (
    SELECT id FROM evenbeat.jobs WHERE id = %(job_id)s AND lock_token = %(token)s
    FOR NO KEY UPDATE
)
INSERT INTO evenbeat.steps AS s (job_id, plan_time, kind, name, number, execution_id,
                                 execution_number, started_at, until, completed_at, timed_out, result)
SELECT id, %(plan_time)s, %(kind)s, %(name)s, %(number)s::int, %(execution_id)s,
       %(execution_number)s::int, %(started_at)s::timestamptz, %(until)s::timestamptz,
       %(completed_at)s::timestamptz, %(timed_out)s::boolean, %(result)s::jsonb
FROM run
ON CONFLICT (job_id, plan_time, kind, name, number) DO UPDATE
SET execution_id = coalesce(s.execution_id, excluded.execution_id),
    execution_number = coalesce(s.execution_number, excluded.execution_number),
    started_at = coalesce(s.started_at, excluded.started_at),
    until = coalesce(s.until, excluded.until),
    completed_at = coalesce(s.completed_at, excluded.completed_at),
    timed_out = CASE WHEN s.completed_at IS NULL THEN excluded.timed_out ELSE s.timed_out END,
    result = CASE WHEN s.completed_at IS NULL THEN excluded.result ELSE s.result END
RETURNING {step};

-- name: lock_claims
-- Claims that are about to be put off, locked, so that no event comes in between.
SELECT lock_token FROM evenbeat.jobs
WHERE id = ANY (%(job_ids)s::uuid[]) AND lock_token = ANY (%(tokens)s::uuid[])
ORDER BY id
FOR NO KEY UPDATE;

-- name: job_to_tell
-- The job that an event is for, locked until the transaction ends, with the plan of its occurrence.
SELECT j.status, coalesce(e.plan_time, j.plan_time), j.queue
FROM evenbeat.jobs j LEFT JOIN evenbeat.executions e ON e.id = ANY (ARRAY[j.lock_token])
WHERE j.id = %(job_id)s
FOR NO KEY UPDATE OF j;

-- name: add_event
-- Gives an event to the run that has waited for it longest, or keeps it for one that will. Whoever
-- sends by a link sends once: nothing is returned the second time.
WITH waiting AS (
    UPDATE evenbeat.steps s
    SET completed_at = {now}, result = %(payload)s::jsonb, sent_by = %(sent_by)s
    WHERE s.job_id = %(job_id)s AND s.plan_time = %(plan_time)s AND s.kind = 'event'
      AND s.name = %(name)s
      AND s.number = (SELECT min(w.number) FROM evenbeat.steps w
                      WHERE w.job_id = %(job_id)s AND w.plan_time = %(plan_time)s
                        AND w.kind = 'event' AND w.name = %(name)s AND w.completed_at IS NULL)
      AND NOT EXISTS (SELECT FROM evenbeat.steps x WHERE x.job_id = %(job_id)s
                        AND %(once)s::boolean AND x.sent_by = %(sent_by)s)
    RETURNING s.number
),
early AS (
    INSERT INTO evenbeat.steps (job_id, plan_time, kind, name, number, completed_at, result, sent_by)
    SELECT %(job_id)s, %(plan_time)s, 'event', %(name)s,
           1 + (SELECT count(*) FROM evenbeat.steps w
                WHERE w.job_id = %(job_id)s AND w.plan_time = %(plan_time)s AND w.kind = 'event'
                  AND w.name = %(name)s),
           {now}, %(payload)s::jsonb, %(sent_by)s
    WHERE NOT EXISTS (SELECT FROM waiting)
      AND NOT EXISTS (SELECT FROM evenbeat.steps x WHERE x.job_id = %(job_id)s
                        AND %(once)s::boolean AND x.sent_by = %(sent_by)s)
    RETURNING number
)
SELECT true FROM waiting UNION ALL SELECT false FROM early;

-- name: wake_job
-- Has a job that was put off go on now; one that is paused goes on when it is resumed.
UPDATE evenbeat.jobs j
SET next_run_at = least(j.next_run_at, {now}), updated_at = {now},
    status = CASE j.status WHEN 'scheduled' THEN 'pending' ELSE j.status END
WHERE j.id = %(job_id)s AND j.status IN ('scheduled', 'paused') AND j.release_count > 0
RETURNING pg_notify(%(channel)s, 'due:' || queue);

-- name: begun_occurrences
-- Those of these jobs of whose present occurrence something is done already.
SELECT j.id FROM evenbeat.jobs j
WHERE j.id = ANY (%(ids)s::uuid[])
  AND EXISTS (SELECT FROM evenbeat.steps s
              WHERE s.job_id = j.id AND s.plan_time = j.plan_time AND s.started_at IS NOT NULL);

-- name: open_waits
-- What these jobs sleep or wait for now.
SELECT {step} FROM evenbeat.steps s JOIN evenbeat.jobs j ON j.id = s.job_id AND j.plan_time = s.plan_time
WHERE s.job_id = ANY (%(ids)s::uuid[]) AND s.completed_at IS NULL
  AND j.status IN ('pending', 'scheduled', 'paused')
ORDER BY s.started_at;

-- name: carry_steps
-- A one-off job is moved: what it has done goes with it.
UPDATE evenbeat.steps SET plan_time = %(to)s
WHERE job_id = %(job_id)s AND plan_time = %(from)s
RETURNING job_id;
