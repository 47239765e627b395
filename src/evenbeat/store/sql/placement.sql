-- Placement: what the load model reads, and rebalances that are applied, remembered and undone.

-- name: load_snapshot
-- What a rebalance needs to know of every job that will run again. A job that was placed again and
-- has not run since is `unproven`: another move could push its run out further and further. One whose
-- plan has come stays, and counts where its plans are due, however late this one is.
SELECT j.id, j.name, j.task, j.queue, j.schedule_kind, j.interval_seconds, j.cron_expression,
       j.timezone, j.anchor_at, j.plan_time,
       CASE WHEN j.plan_time <= {now} AND j.execution_window IS NULL
            THEN least(j.next_run_at, j.plan_time + j.schedule_delay_seconds * interval '1s')
            ELSE j.next_run_at END,
       j.status, j.placement, j.placed_at,
       {cost}, j.execution_window, j.schedule_version,
       coalesce(j.placed_at > coalesce(j.started_at, j.created_at), false),
       j.schedule_delay_seconds
FROM evenbeat.jobs j LEFT JOIN {task_durations} ON d.task = j.task
WHERE j.schedule_kind IN ('interval', 'cron')
  AND j.status IN ('pending', 'scheduled', 'running', 'paused')
ORDER BY j.id;

-- name: interval_counts
-- Every interval job that is not paused as (interval, second of its next run, cost, window), counted;
-- those placed after `until` are left to `placed_since`, which knows them by id. What waits for a retry
-- or was put off counts where its plans are due, and so does a job with a window, which starts elsewhere.
SELECT j.interval_seconds,
       floor(extract(epoch FROM CASE WHEN j.execution_window IS NULL
           THEN coalesce(least(j.next_run_at, j.plan_time + j.schedule_delay_seconds * interval '1s'),
                         j.anchor_at)
           ELSE coalesce(j.plan_time, j.anchor_at) + j.schedule_delay_seconds * interval '1s'
       END))::bigint,
       round({cost}),
       j.execution_window,
       coalesce(j.placement = 'balanced', false),
       count(*)
FROM evenbeat.jobs j LEFT JOIN {task_durations} ON d.task = j.task
WHERE j.schedule_kind IN ('interval', 'cron') AND j.schedule_kind = 'interval'
  AND j.status IN ('pending', 'scheduled', 'running')
  AND (j.placed_at IS NULL OR j.placed_at <= %(until)s)
GROUP BY 1, 2, 3, 4, 5;

-- name: cron_loads
-- Every cron job that is not paused.
SELECT j.id, coalesce(j.name, j.task), j.cron_expression, j.timezone,
       {cost}, j.execution_window
FROM evenbeat.jobs j LEFT JOIN {task_durations} ON d.task = j.task
WHERE j.schedule_kind IN ('interval', 'cron') AND j.schedule_kind = 'cron'
  AND j.status IN ('pending', 'scheduled', 'running')
ORDER BY j.id;

-- name: placed_since
-- The interval jobs placed after a moment, and whether each will run by itself.
SELECT j.id, j.interval_seconds,
       floor(extract(epoch FROM CASE WHEN j.execution_window IS NULL
           THEN coalesce(least(j.next_run_at, j.plan_time + j.schedule_delay_seconds * interval '1s'),
                         j.anchor_at)
           ELSE coalesce(j.plan_time, j.anchor_at) + j.schedule_delay_seconds * interval '1s'
       END))::bigint,
       {cost},
       j.execution_window,
       coalesce(j.placement = 'balanced', false),
       j.status IN ('pending', 'scheduled', 'running')
FROM evenbeat.jobs j LEFT JOIN {task_durations} ON d.task = j.task
WHERE j.schedule_kind IN ('interval', 'cron') AND j.placed_at > %(since)s;

-- name: task_durations
-- How long the runs of each task took on average, as far back as their counts are kept.
SELECT task, ms FROM {task_durations};

-- name: off_peak_jobs
-- The jobs whose off-peak hours are others than these. One whose plan has come still runs in the hours
-- that it waits for.
SELECT j.id
FROM evenbeat.jobs j
WHERE starts_with(j.execution_window, 'off_peak') AND j.execution_window <> %(hours)s
  AND j.status IN ('pending', 'scheduled', 'paused')
  AND (j.plan_time IS NULL OR j.plan_time > {now}
       OR (j.status = 'paused' AND j.next_run_at <= {now}))
  AND j.current_retry_count = 0 AND j.release_count = 0
ORDER BY j.id LIMIT %(limit)s;

-- name: late_jobs
-- Recurring jobs that could run but for a worker, and have waited for one for longer than `late_seconds`.
-- One whose due time was changed before (a retry, a window, an earlier call of `delay_late`) is not
-- among them, so nothing is put off twice.
SELECT {job}
FROM evenbeat.jobs j
WHERE j.schedule_kind IN ('interval', 'cron')
  AND {waiting j} AND {open j}
  AND j.next_run_at <= {now} - make_interval(secs => %(late_seconds)s)
  AND j.next_run_at <= j.plan_time + make_interval(secs => j.schedule_delay_seconds + 0.001)
  AND j.current_retry_count = 0 AND j.release_count = 0;

-- name: delay_late
-- Gives late jobs a later due time for the same plan, each only if it still waits as it did. One that
-- somebody has locked is being claimed or changed, and is left alone.
WITH wanted AS (
    SELECT * FROM unnest(%(ids)s::uuid[], %(due_times)s::timestamptz[], %(starts)s::timestamptz[])
    AS w (id, due_time, start)
),
held AS (
    SELECT j.id, w.start
    FROM (SELECT * FROM wanted ORDER BY id) w CROSS JOIN LATERAL (
        SELECT * FROM evenbeat.jobs j
        WHERE j.id = w.id AND {waiting j} AND j.next_run_at = w.due_time
          AND j.current_retry_count = 0 AND j.release_count = 0
        LIMIT 1
        FOR UPDATE SKIP LOCKED) j
)
UPDATE evenbeat.jobs j
SET status = 'scheduled', next_run_at = h.start, updated_at = {now}
FROM held h
WHERE j.id = ANY (ARRAY[h.id])
RETURNING j.id;

-- name: add_rebalance
-- Opens the record of a rebalance.
INSERT INTO evenbeat.rebalances (id, created_at, created_by, old_score, new_score, old_peak, new_peak)
VALUES (%(id)s, {now}, %(created_by)s, %(old_score)s, %(new_score)s,
        %(old_peak)s, %(new_peak)s)
RETURNING created_at;

-- name: move_jobs
-- Shifts the plans and the rhythm of waiting jobs and notes where they were, each only if nothing
-- about its schedule has changed since it was read. Returns those that moved.
WITH wanted AS (
    SELECT * FROM unnest(
        %(ids)s::uuid[], %(old_times)s::timestamptz[], %(new_times)s::timestamptz[],
        %(anchors)s::timestamptz[], %(versions)s::int[])
    AS w (id, old_time, new_time, anchor_at, schedule_version)
),
-- In the order of ids, like every verb over many jobs, so that two of them never deadlock.
-- The kind is asked last: with it, the index of all recurring jobs would do for finding one by its id.
held AS (
    SELECT j.id, j.name, j.queue, j.anchor_at, j.placed_at, w.old_time, w.new_time
    FROM (SELECT * FROM wanted ORDER BY id) w CROSS JOIN LATERAL (
        SELECT * FROM evenbeat.jobs j
        WHERE j.id = w.id
          AND j.status = 'scheduled' AND NOT j.is_paused
          AND j.next_run_at = w.old_time AND j.anchor_at = w.anchor_at
          AND j.schedule_version = w.schedule_version
          AND j.current_retry_count = 0 AND j.release_count = 0
          AND least(j.plan_time, w.old_time, w.new_time, j.plan_time + (w.new_time - w.old_time))
              > {now}
        LIMIT 1
        FOR UPDATE) j
    WHERE j.schedule_kind = 'interval'
),
moved AS (
    UPDATE evenbeat.jobs j
    SET anchor_at = j.anchor_at + (h.new_time - h.old_time),
        plan_time = j.plan_time + (h.new_time - h.old_time),
        next_run_at = h.new_time,
        placed_at = {now},
        updated_at = {now}
    FROM held h
    WHERE j.id = ANY (ARRAY[h.id])
    RETURNING j.id, j.anchor_at
),
noted AS (
    INSERT INTO evenbeat.rebalance_moves (rebalance_id, job_id, name, old_time, new_time,
                                          old_anchor_at, new_anchor_at, old_placed_at)
    SELECT %(rebalance_id)s, h.id, h.name, h.old_time, h.new_time, h.anchor_at, m.anchor_at,
           h.placed_at
    FROM held h JOIN moved m USING (id)
),
told AS (
    SELECT pg_notify(%(channel)s, 'due:' || queue) FROM (SELECT DISTINCT queue FROM held) q
)
SELECT id FROM moved WHERE (SELECT count(*) FROM told) >= 0;

-- name: complete_rebalance
-- Completes the record of a rebalance with what came of it.
UPDATE evenbeat.rebalances
SET moved = %(moved)s, skipped = %(skipped)s, new_score = %(new_score)s, new_peak = %(new_peak)s
WHERE id = %(id)s
RETURNING id;

-- name: rebalance_for_update
-- One rebalance, locked until the transaction ends.
SELECT id, created_at, created_by, moved, skipped, old_score, new_score, old_peak, new_peak,
       undone_at, undone_by, restored
FROM evenbeat.rebalances WHERE id = %(id)s FOR UPDATE;

-- name: rebalances
-- Rebalances, newest first.
SELECT id, created_at, created_by, moved, skipped, old_score, new_score, old_peak, new_peak,
       undone_at, undone_by, restored
FROM evenbeat.rebalances ORDER BY created_at DESC, id DESC LIMIT %(limit)s;

-- name: rebalance_moves
-- What one rebalance moved, by job.
SELECT job_id, name, old_time, new_time, restored
FROM evenbeat.rebalance_moves WHERE rebalance_id = %(id)s ORDER BY job_id;

-- name: restore_jobs
-- Puts back every job of a rebalance that is still where it put it, if its old time is yet to come.
WITH held AS (
    SELECT j.id, j.queue, m.old_time, m.new_time, m.old_anchor_at, m.old_placed_at
    FROM (SELECT * FROM evenbeat.rebalance_moves
          WHERE rebalance_id = %(id)s ORDER BY job_id) m CROSS JOIN LATERAL (
        SELECT * FROM evenbeat.jobs j
        WHERE j.id = m.job_id
          AND j.status = 'scheduled' AND NOT j.is_paused
          AND j.next_run_at = m.new_time AND j.anchor_at = m.new_anchor_at
          AND j.current_retry_count = 0 AND j.release_count = 0
          AND least(m.old_time, j.plan_time, j.plan_time - (m.new_time - m.old_time))
              > {now}
        LIMIT 1
        FOR UPDATE) j
    WHERE j.schedule_kind = 'interval'
),
restored AS (
    UPDATE evenbeat.jobs j
    SET anchor_at = h.old_anchor_at,
        plan_time = j.plan_time - (h.new_time - h.old_time),
        next_run_at = h.old_time,
        placed_at = h.old_placed_at,
        updated_at = {now}
    FROM held h
    WHERE j.id = ANY (ARRAY[h.id])
    RETURNING j.id
),
noted AS (
    UPDATE evenbeat.rebalance_moves m SET restored = true
    FROM restored r WHERE m.rebalance_id = %(id)s AND m.job_id = r.id
),
told AS (
    SELECT pg_notify(%(channel)s, 'due:' || queue) FROM (SELECT DISTINCT queue FROM held) q
)
SELECT id FROM restored WHERE (SELECT count(*) FROM told) >= 0;

-- name: not_restored
-- The jobs that an undo left alone, and why.
SELECT m.job_id, m.name,
       CASE WHEN j.id IS NULL THEN 'deleted'
            WHEN j.status = 'running' THEN 'job_running'
            WHEN j.started_at > r.created_at THEN 'has_run'
            WHEN j.is_paused THEN 'paused'
            WHEN m.old_time <= {now} THEN 'time_passed'
            ELSE 'changed_meanwhile' END
FROM evenbeat.rebalance_moves m
JOIN evenbeat.rebalances r ON r.id = m.rebalance_id
LEFT JOIN evenbeat.jobs j ON j.id = ANY (ARRAY[m.job_id])
WHERE m.rebalance_id = %(id)s AND NOT m.restored
ORDER BY m.job_id;

-- name: close_undo
-- Marks a rebalance as undone.
UPDATE evenbeat.rebalances
SET undone_at = {now}, undone_by = %(undone_by)s,
    restored = %(restored)s
WHERE id = %(id)s
RETURNING undone_at;

-- name: rebalance_totals
-- How many rebalances there were, how many moves in all, and what the last one did.
SELECT count(*), coalesce(sum(moved), 0)::bigint,
       (array_agg(moved ORDER BY created_at DESC, id DESC))[1],
       (array_agg((SELECT coalesce(sum(value::bigint), 0)::bigint FROM jsonb_each_text(skipped))
                  ORDER BY created_at DESC, id DESC))[1]
FROM evenbeat.rebalances;

-- name: record_distribution
-- Adds to the history of the score; one point for a moment.
INSERT INTO evenbeat.distribution_history (at, score, peak_load, mean_load, total_jobs)
VALUES ({now}, %(score)s, %(peak_load)s, %(mean_load)s, %(total_jobs)s)
ON CONFLICT (at) DO UPDATE
SET score = excluded.score, peak_load = excluded.peak_load, mean_load = excluded.mean_load,
    total_jobs = excluded.total_jobs
RETURNING at;

-- name: distribution_history
-- The history of the score since a moment, oldest first.
SELECT at, score, peak_load, mean_load, total_jobs
FROM evenbeat.distribution_history
WHERE %(since)s::timestamptz IS NULL OR at >= %(since)s::timestamptz
ORDER BY at;

-- name: prune_placement
-- Drops what is older than a moment: points of the history, and the single moves of rebalances.
WITH points AS (
    DELETE FROM evenbeat.distribution_history WHERE at < %(before)s RETURNING 1
),
moves AS (
    DELETE FROM evenbeat.rebalance_moves m USING evenbeat.rebalances r
    WHERE r.id = m.rebalance_id AND r.created_at < %(before)s RETURNING 1
)
SELECT (SELECT count(*) FROM points) + (SELECT count(*) FROM moves);
