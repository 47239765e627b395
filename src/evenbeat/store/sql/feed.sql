-- What is happening: for those who look on live. Every statement reads a bounded number of rows.

-- name: feed_since
-- Executions claimed since a moment, oldest first.
SELECT e.id, e.job_id, j.task, j.name, j.queue, e.status, e.execution_number, e.retry_attempt,
       e.plan_time, e.started_at, e.completed_at, e.duration_ms, e.error_code, e.error_message,
       e.progress
FROM evenbeat.executions e
LEFT JOIN evenbeat.jobs j ON j.id = ANY (ARRAY[e.job_id])
WHERE e.id >= evenbeat.uuid7_floor(%(since)s::timestamptz)
ORDER BY e.id
LIMIT %(limit)s;

-- name: feed_among
-- Of these executions, those that have ended or have progress to show.
SELECT e.id, e.job_id, j.task, j.name, j.queue, e.status, e.execution_number, e.retry_attempt,
       e.plan_time, e.started_at, e.completed_at, e.duration_ms, e.error_code, e.error_message,
       e.progress
FROM evenbeat.executions e
LEFT JOIN evenbeat.jobs j ON j.id = ANY (ARRAY[e.job_id])
WHERE e.id = ANY (%(ids)s::uuid[]) AND (e.status <> 'running' OR e.progress IS NOT NULL)
ORDER BY e.id;

-- name: feed_of_jobs
-- The newest few executions of each of these jobs.
SELECT e.id, e.job_id, j.task, j.name, j.queue, e.status, e.execution_number, e.retry_attempt,
       e.plan_time, e.started_at, e.completed_at, e.duration_ms, e.error_code, e.error_message,
       e.progress
FROM unnest(%(job_ids)s::uuid[]) AS watched (id)
JOIN evenbeat.jobs j ON j.id = ANY (ARRAY[watched.id])
CROSS JOIN LATERAL (
    SELECT * FROM evenbeat.executions e
    WHERE e.job_id = watched.id
    ORDER BY e.plan_time DESC, e.retry_attempt DESC, e.release_count DESC
    LIMIT %(each)s) e
ORDER BY e.id;

-- name: feed_running
-- The executions under way now.
SELECT lock_token FROM evenbeat.jobs WHERE status = 'running' LIMIT %(limit)s;
