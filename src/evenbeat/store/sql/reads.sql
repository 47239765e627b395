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
ORDER BY e.plan_time DESC, e.retry_attempt DESC, e.release_count DESC
LIMIT %(limit)s OFFSET %(offset)s;

-- name: attempts_at
-- The runs of one occurrence of a job, in their order.
SELECT {execution} FROM evenbeat.executions e
WHERE e.job_id = %(job_id)s AND e.plan_time = %(plan_time)s
ORDER BY e.retry_attempt, e.release_count
LIMIT %(limit)s;

-- name: count_executions_of
-- How many rows that history has.
SELECT count(*) FROM evenbeat.executions e
WHERE e.job_id = %(job_id)s
  AND (%(statuses)s::text[] IS NULL OR e.status = ANY (%(statuses)s::text[]));

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
-- Every execution there ever was in figures: the kept sums, and what they do not hold yet.
WITH mark AS (
    SELECT coalesce((SELECT (value ->> 'after')::uuid FROM evenbeat.figures WHERE name = 'counting'),
                    '00000000-0000-0000-0000-000000000000'::uuid) AS after
),
since AS (
    SELECT e.status, e.duration_ms FROM evenbeat.executions e
    WHERE e.id > (SELECT after FROM mark)
    UNION ALL
    SELECT e.status, e.duration_ms FROM evenbeat.uncounted u
    JOIN evenbeat.executions e ON e.id = u.execution_id
),
parts AS (
    SELECT coalesce(sum(completed + failed + cancelled), 0) AS total,
           coalesce(sum(completed), 0) AS completed, coalesce(sum(failed), 0) AS failed,
           coalesce(sum(duration_ms), 0) AS duration_ms
    FROM evenbeat.outcomes
    UNION ALL
    SELECT count(*), count(*) FILTER (WHERE status = 'completed'),
           count(*) FILTER (WHERE status = 'failed'),
           coalesce(sum(duration_ms) FILTER (WHERE status = 'completed'), 0)
    FROM since
)
SELECT sum(total)::bigint, sum(completed)::bigint, sum(failed)::bigint,
       sum(duration_ms) / nullif(sum(completed), 0)::float8
FROM parts;

-- name: counted_totals
-- What the kept sums hold, without what has ended since they were made.
SELECT coalesce(sum(completed + failed + cancelled), 0)::bigint,
       coalesce(sum(completed), 0)::bigint, coalesce(sum(failed), 0)::bigint,
       sum(duration_ms) / nullif(sum(completed), 0)::float8
FROM evenbeat.outcomes;

-- name: hourly_outcomes
-- What ended in each of the last hours, the present one included, without Evenbeat's own tasks; hours
-- without any are there too.
SELECT h.hour, coalesce(sum(o.completed), 0)::bigint, coalesce(sum(o.failed), 0)::bigint,
       coalesce(sum(o.cancelled), 0)::bigint, coalesce(sum(o.lost), 0)::bigint
FROM generate_series(
         date_trunc('hour', {now}, 'UTC')
             - (%(hours)s::int - 1) * interval '1 hour',
         date_trunc('hour', {now}, 'UTC'),
         interval '1 hour') AS h (hour)
LEFT JOIN evenbeat.outcomes o ON o.hour = h.hour AND NOT starts_with(o.task, 'evenbeat:')
GROUP BY h.hour ORDER BY h.hour;

-- name: kept_figure
-- One kept figure and its moment.
SELECT value, updated_at FROM evenbeat.figures WHERE name = %(name)s;

-- name: kept_counts
-- How many jobs there are of each kind, as of the figure `job_counts`.
SELECT status, queue, task, schedule_kind, jobs FROM evenbeat.job_counts
ORDER BY status, queue, task, schedule_kind;

-- name: names_like
-- The names that match, from the index on names alone.
SELECT DISTINCT name FROM evenbeat.jobs
WHERE name IS NOT NULL AND name COLLATE "default" ILIKE %(search)s
LIMIT %(limit)s;

-- name: tasks_like
-- The tasks that match, among those that have jobs or workers.
SELECT task FROM (SELECT task FROM evenbeat.job_counts
                  UNION SELECT name FROM evenbeat.tasks) known
WHERE task COLLATE "default" ILIKE %(search)s
ORDER BY task LIMIT %(limit)s;

-- name: upcoming
-- The jobs that run next. They are among the first of as many lanes, so no others are looked at.
WITH RECURSIVE
{all_lanes},
heads AS (
    SELECT lanes.queue, lanes.task, lanes.priority, lanes.kind, head.next_run_at
    FROM lanes CROSS JOIN LATERAL ({each kind of lanes}
         SELECT j.next_run_at FROM evenbeat.jobs j
         WHERE {kind j}
           AND {waiting j}
           AND j.queue = lanes.queue AND j.task = lanes.task AND j.priority = lanes.priority
           AND j.next_run_at >= coalesce(%(after)s::timestamptz, '-infinity')
         ORDER BY j.next_run_at
         LIMIT 1
    {end}) head
    ORDER BY head.next_run_at
    LIMIT %(limit)s
)
SELECT {job}
FROM heads CROSS JOIN LATERAL ({each kind of heads}
     SELECT j.* FROM evenbeat.jobs j
     WHERE {kind j}
       AND {waiting j}
       AND j.queue = heads.queue AND j.task = heads.task AND j.priority = heads.priority
       AND j.next_run_at >= heads.next_run_at
     ORDER BY j.next_run_at
     LIMIT %(limit)s
{end}) j
ORDER BY j.next_run_at, j.id
LIMIT %(limit)s;

-- name: last_outcomes
-- The last runs of each of these jobs, newest plan first.
SELECT asked.id, e.id, e.status, e.plan_time, e.started_at, e.duration_ms, e.error_code
FROM unnest(%(job_ids)s::uuid[]) AS asked (id)
CROSS JOIN LATERAL (
    SELECT * FROM evenbeat.executions e
    WHERE e.job_id = asked.id
    ORDER BY e.plan_time DESC, e.retry_attempt DESC, e.release_count DESC
    LIMIT %(limit)s) e
ORDER BY asked.id, e.plan_time DESC, e.retry_attempt DESC, e.release_count DESC;

-- name: failing_jobs
-- Jobs whose last run went wrong, by task and error, the most first: given up, going on with the next
-- plan, or waiting for another attempt. The newest 5,000 of them are looked at.
SELECT failing.task, run.error_code, count(*),
       count(*) FILTER (WHERE failing.current_retry_count > 0), max(failing.completed_at),
       (array_agg(failing.id ORDER BY failing.completed_at DESC))[1],
       (array_agg(failing.name ORDER BY failing.completed_at DESC))[1],
       (array_agg(failing.error_message ORDER BY failing.completed_at DESC))[1]
FROM (SELECT * FROM evenbeat.jobs
      WHERE error_message IS NOT NULL AND status <> 'cancelled'
        AND completed_at >= %(since)s::timestamptz AND NOT starts_with(task, 'evenbeat:')
      ORDER BY completed_at DESC
      LIMIT 5000) failing
LEFT JOIN LATERAL (
    SELECT e.error_code FROM evenbeat.executions e WHERE e.job_id = failing.id
    ORDER BY e.plan_time DESC, e.retry_attempt DESC, e.release_count DESC
    LIMIT 1) run ON true
GROUP BY failing.task, run.error_code
ORDER BY 3 DESC, 5 DESC;

-- name: failing_endpoints
-- Webhook endpoints that have not taken a message for a while, and how many wait (up to 1000).
SELECT url, failing_since, (SELECT count(*) FROM (
           SELECT FROM evenbeat.webhook_messages m
           WHERE m.webhook_id = w.id AND m.delivered_at IS NULL
           LIMIT 1000) waiting)
FROM evenbeat.webhooks w WHERE enabled AND failing_since IS NOT NULL
ORDER BY failing_since;

-- name: standstill
-- Whether anything can run: live workers, the oldest of them and the last sign of any; whether jobs wait;
-- how many were waiting or running in queues that are not paused, and paused, at the last count; and when
-- maintenance last counted runs.
SELECT (SELECT count(*) FROM evenbeat.workers w
        WHERE w.heartbeat_at > {now} - make_interval(secs => %(silent_seconds)s)),
       (SELECT min(started_at) FROM evenbeat.workers w
        WHERE w.heartbeat_at > {now} - make_interval(secs => %(silent_seconds)s)),
       (SELECT max(heartbeat_at) FROM evenbeat.workers),
       EXISTS ({each kind} SELECT FROM evenbeat.jobs j WHERE {kind j} AND {waiting j} {end}),
       (SELECT coalesce(sum(c.jobs), 0)::bigint FROM evenbeat.job_counts c
        WHERE c.status IN ('pending', 'scheduled', 'running')
          AND NOT EXISTS (SELECT FROM evenbeat.queues q
                          WHERE q.name = c.queue AND q.paused_at IS NOT NULL)),
       (SELECT coalesce(sum(c.jobs), 0)::bigint FROM evenbeat.job_counts c
        WHERE c.status = 'paused' OR c.status IN ('pending', 'scheduled')
          AND EXISTS (SELECT FROM evenbeat.queues q
                      WHERE q.name = c.queue AND q.paused_at IS NOT NULL)),
       (SELECT updated_at FROM evenbeat.figures WHERE name = 'executions');

-- name: waiting_lanes
-- Queues and tasks with jobs that have been due for a while: since when, how many (counted up to
-- 1000 a priority), whether the queue is paused, how many workers could take them, how many of these
-- have no slot left, and which: those of the task's runner, or all together. Jobs with a concurrency
-- key wait by intention where there are workers for them.
WITH RECURSIVE
{all_lanes},
late AS (
    SELECT lanes.queue, lanes.task, lanes.kind = 'limited' AS limited,
           min(lanes.next_run_at) AS oldest_due, sum(due.jobs) AS jobs
    FROM lanes CROSS JOIN LATERAL (
        SELECT count(*) AS jobs FROM ({each kind of lanes}
             SELECT FROM evenbeat.jobs j
             WHERE {kind j}
               AND {waiting j}
               AND j.queue = lanes.queue AND j.task = lanes.task AND j.priority = lanes.priority
               AND j.next_run_at <= {now}
             LIMIT 1000
        {end}) first) due
    WHERE lanes.next_run_at <= {now}
                               - make_interval(secs => %(late_seconds)s)
    GROUP BY lanes.queue, lanes.task, lanes.kind = 'limited'
),
served AS (
    SELECT late.*, q.paused_at, able.*, t.runner AS its_runner
    FROM late LEFT JOIN evenbeat.queues q ON q.name = late.queue
    LEFT JOIN evenbeat.tasks t ON t.name = late.task
    CROSS JOIN LATERAL (
        SELECT count(*) AS workers, coalesce(bool_and(own.running >= own.slots), false) AS by_runner,
               count(*) FILTER (WHERE w.running >= w.concurrency OR own.running >= own.slots) AS busy,
               sum(own.slots) AS own_slots, sum(w.concurrency) AS slots
        FROM evenbeat.workers w LEFT JOIN LATERAL (
            SELECT * FROM jsonb_to_recordset(w.runners) AS r (runner text, slots int, running int)
            WHERE r.runner = t.runner) own ON true
        WHERE w.status = 'active'
          AND w.heartbeat_at > {now} - make_interval(secs => %(silent_seconds)s)
          AND (w.queues IS NULL OR late.queue = ANY (w.queues))
          AND (w.tasks IS NULL OR late.task = ANY (w.tasks))) able
)
SELECT queue, task, jobs::bigint, oldest_due, paused_at, workers, busy,
       CASE WHEN by_runner THEN its_runner END, CASE WHEN by_runner THEN own_slots ELSE slots END
FROM served
WHERE NOT limited OR workers = 0 OR paused_at IS NOT NULL
ORDER BY oldest_due;

-- name: alerts
-- What needs a person, by rule and task: how many runs or jobs, the worst value, the moment since which
-- it has been so, and the job to look at. It reads sums by the hour, the running jobs and those that the
-- chore `figures` has noted (the first 10,000), and never the many others.
WITH sums AS (
    SELECT hour, task, completed, failed, missed FROM evenbeat.outcomes
    WHERE hour >= date_trunc('hour', {now} - interval '24 hours', 'UTC')
      AND NOT starts_with(task, 'evenbeat:')
)
SELECT 'failure_rate' AS rule, task, sum(failed)::bigint AS number,
       sum(failed)::float8 / sum(completed + failed)::float8 AS worst,
       date_trunc('hour', {now} - interval '1 hour', 'UTC') AS since, NULL::uuid AS job_id,
       NULL::text AS name
FROM sums
WHERE hour >= date_trunc('hour', {now} - interval '1 hour', 'UTC')
GROUP BY task
HAVING sum(completed + failed) >= %(least_runs)s
   AND sum(failed)::float8 / sum(completed + failed)::float8 > %(failure_rate)s
UNION ALL
SELECT 'running_long', task, count(*), NULL, min(started_at),
       (array_agg(id ORDER BY started_at))[1], (array_agg(name ORDER BY started_at))[1]
FROM evenbeat.jobs
WHERE status = 'running'
  AND started_at < {now} - make_interval(
          secs => greatest(%(running_long)s::float8, 2 * average_duration_ms / 1000))
GROUP BY task
UNION ALL
SELECT 'over_usual', task, count(*),
       max(extract(epoch FROM {now} - started_at) * 1000 / greatest(average_duration_ms, 1)),
       min(started_at), (array_agg(id ORDER BY started_at))[1],
       (array_agg(name ORDER BY started_at))[1]
FROM evenbeat.jobs
WHERE status = 'running' AND average_duration_ms IS NOT NULL
  AND started_at < {now} - make_interval(
          secs => greatest(60, %(over_usual)s::float8 * average_duration_ms / 1000))
  AND started_at >= {now} - make_interval(secs => %(running_long)s::float8)
GROUP BY task
UNION ALL
SELECT 'missed_window', task, sum(missed)::bigint, NULL, min(hour), NULL, NULL
FROM sums WHERE missed > 0
GROUP BY task HAVING sum(missed) > %(missed_window)s
UNION ALL
SELECT noted.rule, j.task, count(*), (array_agg(noted.value ORDER BY noted.gravity DESC))[1],
       min(noted.since), (array_agg(noted.job_id ORDER BY noted.gravity DESC))[1],
       (array_agg(j.name ORDER BY noted.gravity DESC))[1]
FROM (SELECT *, CASE rule WHEN 'slower' THEN value ELSE -value END AS gravity
      FROM evenbeat.job_alerts LIMIT 10000) noted
JOIN evenbeat.jobs j ON j.id = ANY (ARRAY[noted.job_id])
WHERE j.status NOT IN ('paused', 'cancelled')
GROUP BY noted.rule, j.task
UNION ALL
SELECT m.deadline, j.task, count(*), NULL, min(m.since), (array_agg(j.id ORDER BY m.since))[1],
       (array_agg(j.name ORDER BY m.since))[1]
FROM (SELECT * FROM evenbeat.missed_deadlines LIMIT 10000) m
JOIN evenbeat.jobs j ON j.id = ANY (ARRAY[m.job_id])
GROUP BY m.deadline, j.task
ORDER BY 1, 3 DESC, 2;

-- name: timeline
-- Runs that overlap a period, newest first. A run that began before the period is found when it
-- still runs, or when it began within `before_seconds` of the period's start.
SELECT e.id, e.job_id, j.name, j.task, j.queue, e.worker_id, e.plan_time, e.started_at,
       e.completed_at, e.status, e.error_code
FROM (SELECT *
      FROM ((SELECT * FROM evenbeat.executions
             WHERE id >= evenbeat.uuid7_floor(%(since)s::timestamptz)
               AND id < evenbeat.uuid7_floor(%(until)s::timestamptz)
             ORDER BY id DESC
             LIMIT %(limit)s)
            UNION ALL
            (SELECT * FROM evenbeat.executions
             WHERE id < evenbeat.uuid7_floor(%(since)s::timestamptz)
               AND id >= evenbeat.uuid7_floor(%(since)s::timestamptz
                                              - make_interval(secs => %(before_seconds)s))
               AND completed_at >= %(since)s::timestamptz
             ORDER BY id DESC
             LIMIT %(limit)s)
            UNION ALL
            (SELECT x.* FROM evenbeat.jobs r JOIN evenbeat.executions x ON x.id = ANY (ARRAY[r.lock_token])
             WHERE r.status = 'running' AND x.id < evenbeat.uuid7_floor(%(since)s::timestamptz)
             LIMIT %(limit)s)) overlapping
      ORDER BY id DESC
      LIMIT %(limit)s) e
LEFT JOIN evenbeat.jobs j ON j.id = ANY (ARRAY[e.job_id])
ORDER BY e.id DESC
LIMIT %(limit)s;

-- name: known_tasks
-- What workers can run or once could, and how many live ones can now.
SELECT t.name, t.queue, t.runner, t.schema, t.doc, t.defaults,
       (SELECT count(*) FROM evenbeat.workers w
        WHERE w.heartbeat_at > {now}
                               - make_interval(secs => %(silent_seconds)s)
          AND (w.tasks IS NULL OR t.name = ANY (w.tasks)))
FROM evenbeat.tasks t ORDER BY t.name;

-- name: standing_of
-- What surrounds a waiting job: since when its queue is paused, how many due jobs of the queue (and of its
-- fair key) go before it, how many other fair keys of the queue take turns with its own (each counted up
-- to 1000), the database's time, and the runner of its task.
WITH RECURSIVE keys AS (
    (SELECT fair_key FROM evenbeat.jobs
     WHERE {fair} AND {pending}
       AND queue = %(queue)s AND %(fair_key)s::text IS NOT NULL
     ORDER BY fair_key LIMIT 1)
    UNION ALL
    SELECT hop.fair_key FROM keys CROSS JOIN LATERAL (
        SELECT j.fair_key FROM evenbeat.jobs j
        WHERE {fair j} AND {pending j}
          AND j.queue = %(queue)s AND j.fair_key > keys.fair_key
        ORDER BY j.fair_key LIMIT 1) hop
)
SELECT (SELECT paused_at FROM evenbeat.queues WHERE name = %(queue)s),
       (SELECT count(*) FROM (
           (SELECT FROM evenbeat.jobs j
            WHERE %(fair_key)s::text IS NULL AND {free j} AND {waiting j}
              AND j.queue = %(queue)s AND j.next_run_at <= {now}
              AND (j.priority > %(priority)s
                   OR j.priority = %(priority)s AND j.next_run_at < %(next_run_at)s::timestamptz)
            LIMIT 1000)
           UNION ALL
           (SELECT FROM evenbeat.jobs j
            WHERE %(fair_key)s::text IS NULL AND {limited j} AND {waiting j}
              AND j.queue = %(queue)s AND j.next_run_at <= {now}
              AND (j.priority > %(priority)s
                   OR j.priority = %(priority)s AND j.next_run_at < %(next_run_at)s::timestamptz)
            LIMIT 1000)
           UNION ALL
           (SELECT FROM evenbeat.jobs j
            WHERE {fair j} AND {pending j}
              AND j.fair_key = %(fair_key)s
              AND j.queue = %(queue)s AND j.next_run_at <= {now}
              AND (j.priority > %(priority)s
                   OR j.priority = %(priority)s AND j.next_run_at < %(next_run_at)s::timestamptz)
            LIMIT 1000)
           LIMIT 1000) first),
       (SELECT count(*) FROM (SELECT FROM keys WHERE fair_key <> %(fair_key)s LIMIT 1000) others),
       {now}, (SELECT runner FROM evenbeat.tasks WHERE name = %(task)s);

-- name: queue_depths
-- For each queue: waiting and due (counted up to 10,000 a lane), running, oldest due time, whether it
-- is paused, and what is due of each priority.
WITH RECURSIVE
{all_lanes},
depths AS (
    SELECT lanes.queue, lanes.priority, waiting.due, 0 AS running, lanes.next_run_at AS oldest_due
    FROM lanes CROSS JOIN LATERAL (
        SELECT count(*) AS due FROM ({each kind of lanes}
             SELECT FROM evenbeat.jobs j
             WHERE {kind j}
               AND {waiting j}
               AND j.queue = lanes.queue AND j.task = lanes.task AND j.priority = lanes.priority
               AND j.next_run_at <= {now}
             LIMIT 10000
        {end}) first) waiting
    WHERE lanes.next_run_at <= {now}
    UNION ALL
    SELECT queue, NULL, 0, count(*), NULL FROM evenbeat.jobs WHERE status = 'running' GROUP BY queue
),
by_priority AS (
    SELECT queue, priority, sum(due) AS due, sum(running) AS running, min(oldest_due) AS oldest_due
    FROM depths GROUP BY queue, priority
)
SELECT coalesce(d.queue, q.name), coalesce(d.due, 0)::bigint, coalesce(d.running, 0)::bigint,
       d.oldest_due, q.paused_at, d.priorities
FROM (SELECT queue, sum(due) AS due, sum(running) AS running, min(oldest_due) AS oldest_due,
             jsonb_object_agg(priority, due) FILTER (WHERE priority IS NOT NULL) AS priorities
      FROM by_priority GROUP BY queue) d
FULL JOIN evenbeat.queues q ON q.name = d.queue
ORDER BY 1;

-- name: endings
-- How these executions ended, for a worker that is unsure whether its last write arrived.
SELECT id, status, error_code FROM evenbeat.executions WHERE id = ANY (%(ids)s::uuid[]);

-- name: fleet_pause
-- The pause of everything, if it is on.
SELECT reason, paused_by, since, ends_at FROM evenbeat.fleet_pause
WHERE ends_at IS NULL OR ends_at > {now};
