-- Batches: jobs that belong together. Nothing counts while they run, so no row is hot: when a job of
-- one has ended, the worker asks whether any is left (`batches_over` in `journey.sql`), and a chore
-- asks again. Whoever adds to a batch, or lets a job wait for it, holds a share of its row until the
-- transaction ends; whoever ends it holds the row alone, and looks again then.

-- name: add_batch
-- Makes a batch, which is open until all that it begins with is there.
INSERT INTO evenbeat.batches (id, name, status, created_at, parent_id, created_by, counted_at)
VALUES (%(id)s, %(name)s, 'open', {now}, %(parent_id)s, %(created_by)s, {now})
RETURNING id;

-- name: begin_batch
-- Notes what a new batch begins with.
UPDATE evenbeat.batches
SET status = %(status)s, callback_id = %(callback_id)s,
    counts = jsonb_build_object('pending', %(added)s::bigint)
WHERE id = %(id)s
RETURNING id;

-- name: hold_batch
-- The state of a batch, which does not end until the transaction does.
SELECT status FROM evenbeat.batches WHERE id = %(id)s FOR SHARE;

-- name: hold_batches
-- Those of these that are batches; none ends until the transaction does.
SELECT id FROM evenbeat.batches WHERE id = ANY (%(ids)s::uuid[]) ORDER BY id FOR SHARE;

-- name: close_batch
-- Lets a batch end as soon as its jobs have.
UPDATE evenbeat.batches SET status = 'running' WHERE id = %(id)s AND status = 'open' RETURNING id;

-- name: batches_at_work
-- Batches that are not over, and those that have not been counted since, walking on from `after`.
SELECT id, ended_at IS NULL,
       coalesce(counted_at <= {now} - make_interval(secs => %(count_seconds)s), true)
FROM evenbeat.batches
WHERE (ended_at IS NULL OR counted_at IS NULL) AND (%(after)s::uuid IS NULL OR id > %(after)s::uuid)
ORDER BY id
LIMIT %(limit)s;

-- name: count_batches
-- How many jobs of these batches are in each state.
SELECT batch_id, status, count(*) FROM evenbeat.jobs
WHERE batch_id = ANY (%(ids)s::uuid[])
GROUP BY batch_id, status;

-- name: note_counts
-- Keeps the count of a batch, which was begun at `counted_at`.
UPDATE evenbeat.batches SET counts = %(counts)s, counted_at = %(counted_at)s::timestamptz
WHERE id = %(id)s
RETURNING id;

-- name: cancel_batches
-- Ends a batch, and those that are a part of it, for good. Jobs that run after it hear that it ended.
WITH RECURSIVE down (id) AS (
    SELECT %(id)s::uuid
    UNION
    SELECT b.id FROM down JOIN evenbeat.batches b ON b.parent_id = down.id
),
cancelled AS (
    UPDATE evenbeat.batches b
    SET status = 'cancelled', ended_at = {now}, counted_at = NULL
    WHERE b.id IN (SELECT id FROM down) AND b.status IN ('open', 'running', 'failed')
    RETURNING b.id
),
awaited AS (
    UPDATE evenbeat.dependencies d
    SET last_end = 'cancelled', last_end_at = {now},
        satisfied_at = CASE WHEN d.wanted = 'any' THEN {now} END,
        plan_time = CASE WHEN d.wanted = 'any' THEN {now} END,
        fresh = d.wanted = 'any'
    FROM cancelled c
    WHERE d.predecessor_id = c.id AND d.satisfied_at IS NULL
      AND NOT EXISTS (SELECT FROM evenbeat.batches b
                      WHERE b.id = d.predecessor_id AND b.callback_id = d.job_id)
)
SELECT id FROM cancelled;

-- name: batches_within
-- A batch and those that are a part of it, with the jobs that run after them.
WITH RECURSIVE down (id) AS (
    SELECT %(id)s::uuid
    UNION
    SELECT b.id FROM down JOIN evenbeat.batches b ON b.parent_id = down.id
)
SELECT b.id, b.callback_id, b.parent_id FROM down JOIN evenbeat.batches b ON b.id = down.id;

-- name: await_batches_again
-- Jobs that were cancelled with their batches wait for these again.
UPDATE evenbeat.jobs j
SET status = 'pending', cancelled_at = NULL, completed_at = NULL, updated_at = {now}
FROM evenbeat.batches b
WHERE b.id = ANY (%(ids)s::uuid[]) AND j.id = ANY (ARRAY[b.callback_id])
  AND j.status = 'cancelled' AND j.run_count = 0
RETURNING j.id;

-- name: reopen_batches
-- Batches that were cancelled go on.
UPDATE evenbeat.batches SET status = 'running', ended_at = NULL, counted_at = NULL
WHERE id = ANY (%(ids)s::uuid[]) AND status = 'cancelled'
RETURNING id;

-- name: batch_members
-- Ids of the jobs of a batch that are in one state, walking on from `after`. A range of one state, and
-- not an equality, lets no index but that on batches have the order.
SELECT j.id FROM evenbeat.jobs j
WHERE j.batch_id = %(id)s AND j.status BETWEEN %(status)s AND %(status)s
  AND (%(after)s::uuid IS NULL OR j.id > %(after)s::uuid)
ORDER BY j.status, j.id
LIMIT %(limit)s;

-- name: batch_results
-- What the completed jobs of a batch returned, in the order in which they were added.
SELECT j.id, j.task, e.result
FROM (
    SELECT j.id, j.task FROM evenbeat.jobs j
    WHERE j.batch_id = %(id)s AND j.status BETWEEN 'completed' AND 'completed'
      AND (%(after)s::uuid IS NULL OR j.id > %(after)s::uuid)
    ORDER BY j.status, j.id
    LIMIT %(limit)s) j
LEFT JOIN LATERAL (
    SELECT e.result FROM evenbeat.executions e
    WHERE e.job_id = j.id AND e.status = 'completed'
    ORDER BY e.plan_time DESC, e.retry_attempt DESC, e.release_count DESC
    LIMIT 1) e ON true
ORDER BY j.id;

-- name: batch
-- One batch.
SELECT {batch} FROM evenbeat.batches b WHERE b.id = %(id)s;

-- name: batch_of_job
-- The batch after which a job runs, or otherwise the one that it belongs to.
SELECT {batch} FROM evenbeat.batches b
WHERE b.callback_id = %(job_id)s OR b.id = %(batch_id)s
ORDER BY b.callback_id IS NOT DISTINCT FROM %(job_id)s DESC
LIMIT 1;

-- name: batches
-- Batches, newest first.
SELECT {batch} FROM evenbeat.batches b
WHERE (%(name)s::text IS NULL OR b.name = %(name)s)
  AND (%(statuses)s::text[] IS NULL OR b.status = ANY (%(statuses)s::text[]))
ORDER BY b.id DESC
LIMIT %(limit)s OFFSET %(offset)s;

-- name: number_of_batches
-- How many there are.
SELECT count(*) FROM evenbeat.batches b
WHERE (%(name)s::text IS NULL OR b.name = %(name)s)
  AND (%(statuses)s::text[] IS NULL OR b.status = ANY (%(statuses)s::text[]));

-- name: prune_batches
-- Strikes batches that ended long ago, of whose jobs none is left but those that still wait for what
-- has not come, with these and the job that waited for the batch.
WITH old AS (
    SELECT b.id, b.callback_id FROM evenbeat.batches b
    WHERE b.ended_at < %(older_than)s
      AND NOT EXISTS (SELECT FROM evenbeat.jobs j WHERE j.batch_id = b.id
                      AND NOT (j.status = 'pending' AND j.next_run_at IS NULL))
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
),
unused AS (
    DELETE FROM evenbeat.jobs j USING old
    WHERE (j.id = old.callback_id OR j.batch_id = old.id) AND j.status = 'pending' AND j.next_run_at IS NULL
    RETURNING j.id
),
untied AS (
    DELETE FROM evenbeat.dependencies d USING unused WHERE d.job_id = unused.id
)
DELETE FROM evenbeat.batches b USING old WHERE b.id = old.id RETURNING b.id;
