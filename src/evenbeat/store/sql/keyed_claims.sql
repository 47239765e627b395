-- Jobs with a concurrency key: claimed key by key, so that no more of a key run, and none starts
-- sooner, than its limits allow. A claim is two statements of one transaction. The first locks keys
-- that look free, skipping those that another claim holds; the second, whose snapshot is taken with
-- the locks held, counts what runs and takes as many as there is room for. So claims of one key come
-- one after the other, and the count is never out of date.

-- name: limited_keys
-- Locks up to `limit` keys that have due work for this worker and look free: `locked`. Says whether
-- others were held by another claim, whether not all due jobs were looked at, how far the walk over
-- keys came (null when it reached the end), and which keys have no row yet.
--
-- With many keys at their limits, looking at all of them for each claim would cost too much. Keys
-- are found in four ways instead, each of them bounded: those of the most urgent due
-- jobs; those in which a run of this process has just ended; those whose rate has just let them go;
-- and, for what these miss, a walk over all waiting keys that goes on from claim to claim.
WITH RECURSIVE
lanes AS ({limited_lanes_by lanes}),
open_lanes AS (
    SELECT queue, task, priority
    FROM lanes
    WHERE next_run_at <= {now}
      AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s::text[]))
      AND (%(tasks)s::text[] IS NULL OR task = ANY (%(tasks)s::text[]))
      AND {open lanes}
    ORDER BY priority DESC, next_run_at
),
early AS (
    SELECT first.concurrency_key AS key, lane.priority, first.next_run_at, first.place
    FROM open_lanes lane CROSS JOIN LATERAL (
        SELECT j.concurrency_key, j.next_run_at, row_number() OVER (ORDER BY j.next_run_at) AS place
        FROM evenbeat.jobs j
        WHERE j.concurrency_key IS NOT NULL
          AND {waiting j}
          AND j.queue = lane.queue AND j.task = lane.task AND j.priority = lane.priority
          AND j.next_run_at <= {now}
        ORDER BY j.next_run_at
        LIMIT %(reach)s) first
),
walked AS (
    (SELECT concurrency_key AS key, 1 AS place
     FROM evenbeat.jobs
     WHERE concurrency_key IS NOT NULL
       AND {waiting}
       AND concurrency_key > %(walk_from)s::text
     ORDER BY concurrency_key, queue, task, priority, next_run_at
     LIMIT 1)
    UNION ALL
    SELECT hop.concurrency_key, walked.place + 1
    FROM walked CROSS JOIN LATERAL (
        SELECT j.concurrency_key
        FROM evenbeat.jobs j
        WHERE j.concurrency_key IS NOT NULL
          AND {waiting j}
          AND j.concurrency_key > walked.key
        ORDER BY j.concurrency_key, j.queue, j.task, j.priority, j.next_run_at
        LIMIT 1) hop
    WHERE walked.place < %(stretch)s
),
rested AS (
    SELECT key FROM evenbeat.limits
    WHERE next_start_at <= {now}
    ORDER BY next_start_at DESC
    LIMIT %(reach)s
),
found AS (
    SELECT key, bool_or(is_due) AS is_due, max(priority) AS priority, min(next_run_at) AS next_run_at
    FROM (SELECT key, true AS is_due, priority, next_run_at FROM early
          UNION ALL SELECT key, false, NULL, NULL FROM unnest(%(freed)s::text[]) AS freed (key)
          UNION ALL SELECT key, false, NULL, NULL FROM rested
          UNION ALL SELECT key, false, NULL, NULL FROM walked) each_way
    GROUP BY key
),
-- Only a glance: what it says may be out of date, which the second statement finds out.
free AS MATERIALIZED (
    SELECT l.key
    FROM found JOIN evenbeat.limits l ON l.key = found.key
    CROSS JOIN LATERAL (
        SELECT found.priority, found.next_run_at WHERE found.is_due
        UNION ALL
        (WITH RECURSIVE own AS (
             (SELECT j.queue, j.task, j.priority, j.next_run_at
              FROM evenbeat.jobs j
              WHERE j.concurrency_key IS NOT NULL AND j.concurrency_key = found.key
                AND {waiting j}
                AND NOT found.is_due
              ORDER BY j.queue, j.task, j.priority, j.next_run_at
              LIMIT 1)
             UNION ALL
             SELECT hop.*
             FROM own CROSS JOIN LATERAL (
                 SELECT j.queue, j.task, j.priority, j.next_run_at
                 FROM evenbeat.jobs j
                 WHERE j.concurrency_key IS NOT NULL AND j.concurrency_key = found.key
                   AND {waiting j}
                   AND (j.queue, j.task, j.priority) > (own.queue, own.task, own.priority)
                 ORDER BY j.queue, j.task, j.priority, j.next_run_at
                 LIMIT 1) hop
         )
         SELECT own.priority, own.next_run_at FROM own
         WHERE next_run_at <= {now}
           AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s::text[]))
           AND (%(tasks)s::text[] IS NULL OR task = ANY (%(tasks)s::text[]))
           AND {open own}
         ORDER BY own.priority DESC, own.next_run_at
         LIMIT 1)) first
    WHERE (l.next_start_at IS NULL OR l.next_start_at <= {now})
      AND (l.max_running IS NULL
           OR l.max_running > (SELECT count(*) FROM evenbeat.jobs r
                               WHERE r.concurrency_key IS NOT NULL AND r.concurrency_key = l.key
                                 AND r.status = 'running'))
    ORDER BY first.priority DESC, first.next_run_at
    LIMIT %(limit)s
),
locked AS (
    SELECT l.key FROM free JOIN evenbeat.limits l ON l.key = free.key
    FOR UPDATE OF l SKIP LOCKED
)
SELECT (SELECT array_agg(key) FROM locked) AS locked,
       (SELECT count(*) FROM free) > (SELECT count(*) FROM locked) AS held,
       (SELECT coalesce(max(place), 0) >= %(reach)s FROM early) AS more_due,
       (SELECT key FROM walked WHERE place = %(stretch)s) AS walked_to,
       (SELECT array_agg(key) FROM found
        WHERE (is_due OR key IN (SELECT key FROM walked))
          AND NOT EXISTS (SELECT FROM evenbeat.limits l WHERE l.key = found.key)) AS unknown;

-- name: claim_limited
-- Takes due jobs of the locked keys, of each as many as may run and start now, most urgent first,
-- and opens an execution for each. A start costs a token also when the run is handed back unrun.
--
-- The moment of the start is taken here, with the locks held and after the snapshot: the beginning
-- of the transaction may lie before the end of a run that made room.
WITH RECURSIVE
present AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS moment
),
room AS (
    SELECT l.key, l.burst, l.step_us, l.next_start_at,
           least(%(limit)s::bigint,
                 l.max_running - (SELECT count(*) FROM evenbeat.jobs r
                                  WHERE r.concurrency_key IS NOT NULL AND r.concurrency_key = l.key
                                    AND r.status = 'running'),
                 CASE WHEN l.next_start_at > p.moment THEN 0
                      WHEN l.next_start_at IS NOT NULL
                      THEN least(l.burst, floor(extract(epoch FROM p.moment - l.next_start_at)
                                                * 1000000 / l.step_us) + 1) END)::bigint AS starts
    FROM evenbeat.limits l CROSS JOIN present p
    WHERE l.key = ANY (%(keys)s::text[])
),
lanes AS (
    SELECT room.key, room.starts, first.*
    FROM room CROSS JOIN LATERAL (
        SELECT j.queue, j.task, j.priority, j.next_run_at
        FROM evenbeat.jobs j
        WHERE j.concurrency_key IS NOT NULL AND j.concurrency_key = room.key
          AND {waiting j}
        ORDER BY j.queue, j.task, j.priority, j.next_run_at
        LIMIT 1) first
    WHERE room.starts > 0
    UNION ALL
    SELECT lanes.key, lanes.starts, hop.*
    FROM lanes CROSS JOIN LATERAL (
        SELECT j.queue, j.task, j.priority, j.next_run_at
        FROM evenbeat.jobs j
        WHERE j.concurrency_key IS NOT NULL AND j.concurrency_key = lanes.key
          AND {waiting j}
          AND (j.queue, j.task, j.priority) > (lanes.queue, lanes.task, lanes.priority)
        ORDER BY j.queue, j.task, j.priority, j.next_run_at
        LIMIT 1) hop
),
open_lanes AS (
    SELECT key, starts, queue, task, priority, next_run_at
    FROM lanes
    WHERE next_run_at <= {now}
      AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s::text[]))
      AND (%(tasks)s::text[] IS NULL OR task = ANY (%(tasks)s::text[]))
      AND {open lanes}
),
keys AS (
    SELECT key, min(starts) AS starts, max(priority) AS priority, min(next_run_at) AS next_run_at
    FROM open_lanes GROUP BY key
    ORDER BY 3 DESC, 4
),
picked AS (
    SELECT taken.id
    FROM keys CROSS JOIN LATERAL (
        SELECT due.id
        FROM (SELECT o.queue, o.task, o.priority FROM open_lanes o WHERE o.key = keys.key
              ORDER BY o.priority DESC, o.next_run_at) lane
        CROSS JOIN LATERAL (
            SELECT j.id
            FROM evenbeat.jobs j
            WHERE j.concurrency_key IS NOT NULL AND j.concurrency_key = keys.key
              AND {waiting j}
              AND j.queue = lane.queue AND j.task = lane.task AND j.priority = lane.priority
              AND j.next_run_at <= {now}
            ORDER BY j.next_run_at
            LIMIT keys.starts
            FOR UPDATE SKIP LOCKED) due
        LIMIT keys.starts) taken
    LIMIT %(limit)s
),
{claimed at present},
spent AS (
    UPDATE evenbeat.limits l
    SET next_start_at = greatest(l.next_start_at,
                                 (SELECT moment FROM present)
                                 - (l.burst - 1) * l.step_us * interval '1 microsecond')
                        + started.jobs * l.step_us * interval '1 microsecond'
    FROM (SELECT concurrency_key, count(*) AS jobs FROM claimed GROUP BY concurrency_key) started
    WHERE l.key = started.concurrency_key AND l.next_start_at IS NOT NULL
)
SELECT {job} FROM claimed j ORDER BY j.priority DESC, j.next_run_at;

-- name: limited_due
-- When the earliest job with a concurrency key that this worker can run is or was due, and the
-- database's time.
WITH RECURSIVE lanes AS ({limited_lanes_by lanes})
SELECT min(next_run_at), {now} FROM lanes
WHERE (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s::text[]))
  AND (%(tasks)s::text[] IS NULL OR task = ANY (%(tasks)s::text[]))
  AND {open lanes};

-- name: limited_next
-- The first moment after `since` at which another look is worth while, when one at that time found
-- all due jobs kept back by their limits: a rate lets its key go, or another job is due. A key that
-- has as many running as it may is no reason: the end of a run says so itself.
WITH RECURSIVE lanes AS (
    (SELECT queue, task, priority
     FROM evenbeat.jobs
     WHERE concurrency_key IS NOT NULL
       AND {waiting}
     ORDER BY queue, task, priority, next_run_at
     LIMIT 1)
    UNION ALL
    SELECT hop.*
    FROM lanes CROSS JOIN LATERAL (
        SELECT j.queue, j.task, j.priority
        FROM evenbeat.jobs j
        WHERE j.concurrency_key IS NOT NULL
          AND {waiting j}
          AND (j.queue, j.task, j.priority) > (lanes.queue, lanes.task, lanes.priority)
        ORDER BY j.queue, j.task, j.priority, j.next_run_at
        LIMIT 1) hop
)
SELECT least((SELECT min(later.next_run_at)
              FROM lanes CROSS JOIN LATERAL (
                  SELECT j.next_run_at
                  FROM evenbeat.jobs j
                  WHERE j.concurrency_key IS NOT NULL
                    AND {waiting j}
                    AND j.queue = lanes.queue AND j.task = lanes.task
                    AND j.priority = lanes.priority
                    AND j.next_run_at > %(since)s::timestamptz
                  ORDER BY j.next_run_at
                  LIMIT 1) later
              WHERE (%(queues)s::text[] IS NULL OR lanes.queue = ANY (%(queues)s::text[]))
                AND (%(tasks)s::text[] IS NULL OR lanes.task = ANY (%(tasks)s::text[]))
                AND {open lanes}),
             (SELECT next_start_at FROM evenbeat.limits
              WHERE next_start_at > %(since)s::timestamptz
              ORDER BY next_start_at
              LIMIT 1));

-- name: hint_freed
-- Hints at the jobs that wait behind these keys: a run of each has ended (which matters only where
-- their number is limited), or their limits have changed.
WITH RECURSIVE lanes AS (
    SELECT l.key, first.*
    FROM evenbeat.limits l CROSS JOIN LATERAL (
        SELECT j.queue, j.task, j.priority, j.next_run_at
        FROM evenbeat.jobs j
        WHERE j.concurrency_key IS NOT NULL AND j.concurrency_key = l.key
          AND {waiting j}
        ORDER BY j.queue, j.task, j.priority, j.next_run_at
        LIMIT 1) first
    WHERE l.key = ANY (%(keys)s::text[]) AND (%(changed)s OR l.max_running IS NOT NULL)
    UNION ALL
    SELECT lanes.key, hop.*
    FROM lanes CROSS JOIN LATERAL (
        SELECT j.queue, j.task, j.priority, j.next_run_at
        FROM evenbeat.jobs j
        WHERE j.concurrency_key IS NOT NULL AND j.concurrency_key = lanes.key
          AND {waiting j}
          AND (j.queue, j.task, j.priority) > (lanes.queue, lanes.task, lanes.priority)
        ORDER BY j.queue, j.task, j.priority, j.next_run_at
        LIMIT 1) hop
)
SELECT pg_notify(%(channel)s, 'due:' || queue)
FROM (SELECT DISTINCT queue FROM lanes
      WHERE next_run_at <= {now}) freed;
