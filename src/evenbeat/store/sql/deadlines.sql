-- Deadlines of jobs, and which of them were missed.

-- name: jobs_with_deadlines
-- Jobs that have a deadline or have missed one, by id, each with its newest run and its newest success.
SELECT newest.started_at, newest.wait_ms, success.plan_time, success.completed_at, {job}
FROM evenbeat.jobs j
LEFT JOIN LATERAL (
    SELECT e.started_at, e.wait_ms FROM evenbeat.executions e
    WHERE e.job_id = j.id
    ORDER BY e.plan_time DESC, e.retry_attempt DESC, e.release_count DESC
    LIMIT 1) newest ON true
LEFT JOIN LATERAL (
    SELECT e.plan_time, e.completed_at FROM evenbeat.executions e
    WHERE e.job_id = j.id AND e.status = 'completed'
    ORDER BY e.plan_time DESC, e.retry_attempt DESC, e.release_count DESC
    LIMIT 1) success ON true
WHERE (j.must_start_within_seconds IS NOT NULL OR j.must_finish_by IS NOT NULL
       OR j.must_succeed_every_seconds IS NOT NULL)
  AND (%(after)s::uuid IS NULL OR j.id > %(after)s::uuid)
ORDER BY j.id
LIMIT %(limit)s;

-- name: missed_deadlines
-- What is known to be missed of these jobs, or of all.
SELECT job_id, deadline, since, message FROM evenbeat.missed_deadlines
WHERE %(ids)s::uuid[] IS NULL OR job_id = ANY (%(ids)s::uuid[]);

-- name: note_missed_deadlines
-- Notes what was missed, once, and tells the webhooks. Returns what is new.
WITH noted AS (
    INSERT INTO evenbeat.missed_deadlines (job_id, deadline, since, message)
    SELECT * FROM unnest(%(ids)s::uuid[], %(deadlines)s::text[], %(since)s::timestamptz[],
                         %(messages)s::text[])
    ON CONFLICT (job_id, deadline) DO NOTHING
    RETURNING *
)
SELECT job_id, deadline,
       evenbeat.tell_webhooks(CASE deadline WHEN 'overdue' THEN 'job.overdue' ELSE 'job.late' END,
                              {now}, job_id, NULL, NULL, deadline, message, since)
FROM noted;

-- name: forget_missed_deadlines
-- Strikes what was made up for, and tells the webhooks.
WITH gone AS (
    DELETE FROM evenbeat.missed_deadlines m
    USING unnest(%(ids)s::uuid[], %(deadlines)s::text[]) AS g (job_id, deadline)
    WHERE m.job_id = g.job_id AND m.deadline = g.deadline
    RETURNING m.*
)
SELECT job_id, deadline,
       evenbeat.tell_webhooks('job.recovered', {now}, job_id, NULL, NULL, deadline, message, since)
FROM gone;

-- name: forget_deadlines_of_others
-- Strikes what is said of jobs that are gone or have no deadline any more.
DELETE FROM evenbeat.missed_deadlines m
WHERE NOT EXISTS (
    SELECT FROM evenbeat.jobs j
    WHERE j.id = m.job_id
      AND (j.must_start_within_seconds IS NOT NULL OR j.must_finish_by IS NOT NULL
           OR j.must_succeed_every_seconds IS NOT NULL)
    OFFSET 0)
RETURNING m.job_id;
