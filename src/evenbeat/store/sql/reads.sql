-- Reading one thing, or a figure about many. Lists with filters are composed in reads.py.

-- name: job
-- One job.
SELECT {job} FROM evenbeat.jobs j WHERE j.id = %(id)s;

-- name: jobs
-- These jobs, by creation.
SELECT {job} FROM evenbeat.jobs j WHERE j.id = ANY (%(ids)s::uuid[]) ORDER BY j.id;

-- name: job_by_name
-- One job by its name and scope.
SELECT {job} FROM evenbeat.jobs j
WHERE j.name = %(name)s AND j.scope_kind = %(scope_kind)s AND j.scope_id = %(scope_id)s;

-- name: execution
-- One execution.
SELECT {execution} FROM evenbeat.executions e WHERE e.id = %(id)s;

-- name: executions_of
-- A job's history, newest plan first.
SELECT {execution} FROM evenbeat.executions e
WHERE e.job_id = %(job_id)s
  AND (%(statuses)s::text[] IS NULL OR e.status = ANY (%(statuses)s::text[]))
ORDER BY e.plan_time DESC, e.retry_attempt DESC, e.releases DESC
LIMIT %(limit)s OFFSET %(offset)s;

-- name: count_executions_of
-- How many rows that history has.
SELECT count(*) FROM evenbeat.executions e
WHERE e.job_id = %(job_id)s
  AND (%(statuses)s::text[] IS NULL OR e.status = ANY (%(statuses)s::text[]));

-- name: recent_executions
-- Executions of all jobs, newest first; ids sort by time.
SELECT {execution} FROM evenbeat.executions e
WHERE (%(statuses)s::text[] IS NULL OR e.status = ANY (%(statuses)s::text[]))
  AND (%(since)s::timestamptz IS NULL
       OR e.id >= evenbeat.uuid7_floor(%(since)s::timestamptz))
ORDER BY e.id DESC
LIMIT %(limit)s OFFSET %(offset)s;

-- name: job_stats
-- What a job's kept history amounts to. Runs handed back or cancelled count as neither.
SELECT count(*),
       count(*) FILTER (WHERE status = 'completed'),
       count(*) FILTER (WHERE status = 'failed'),
       avg(duration_ms) FILTER (WHERE status = 'completed'),
       max(started_at)
FROM evenbeat.executions WHERE job_id = %(job_id)s;

-- name: counts_by_status
-- Jobs in each state.
SELECT status, count(*) FROM evenbeat.jobs GROUP BY status;

-- name: execution_totals
-- All kept executions in figures, or those claimed since a moment.
SELECT count(*),
       count(*) FILTER (WHERE status = 'completed'),
       count(*) FILTER (WHERE status = 'failed'),
       avg(duration_ms) FILTER (WHERE status = 'completed')
FROM evenbeat.executions
WHERE (%(since)s::timestamptz IS NULL
       OR id >= evenbeat.uuid7_floor(%(since)s::timestamptz));

-- name: queue_depths
-- For each queue: waiting and due, running, oldest due time, and whether it is paused.
SELECT coalesce(d.queue, q.name),
       coalesce(d.due, 0), coalesce(d.running, 0), d.oldest_due, q.paused_at
FROM (
    SELECT queue,
           count(*) FILTER (WHERE status <> 'running') AS due,
           count(*) FILTER (WHERE status = 'running') AS running,
           min(next_run_at) FILTER (WHERE status <> 'running') AS oldest_due
    FROM evenbeat.jobs
    WHERE status = 'running'
       OR (status IN ('pending', 'scheduled') AND next_run_at <= coalesce(%(now)s::timestamptz, now()))
    GROUP BY queue) d
FULL JOIN evenbeat.queues q ON q.name = d.queue
ORDER BY 1;

-- name: load_snapshot
-- What placement needs to know of every job that will run again.
SELECT j.id, j.schedule_kind, j.interval_seconds, j.cron_expression, j.timezone, j.anchor_at,
       j.plan_time, j.next_run_at, j.status, j.placement, j.placed_at,
       coalesce(j.cost_ms, j.average_duration_ms)
FROM evenbeat.jobs j
WHERE j.schedule_kind IN ('interval', 'cron')
  AND j.status IN ('pending', 'scheduled', 'running', 'paused')
ORDER BY j.id;

-- name: endings
-- How these executions ended, for a worker that is unsure whether its last write arrived.
SELECT id, status, error_code FROM evenbeat.executions WHERE id = ANY (%(ids)s::uuid[]);
