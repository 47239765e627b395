-- Jobs with a fair key: the keys of a queue take turns. A claim reads whose turns come next, deals its room
-- out to them (`domain/fair_turns.py`), and takes the jobs. Nothing is kept of the turns but where each
-- worker goes on, so no row is locked that another claim or an enqueue would wait for.

-- name: fair_come_due
-- Jobs that were scheduled and have come due are pending from now on, the oldest first. So a claim looks at
-- keys that have due jobs, and at no others.
UPDATE evenbeat.jobs
SET status = 'pending'
WHERE id = ANY (ARRAY(
    SELECT id FROM evenbeat.jobs
    WHERE {fair} AND {scheduled} AND next_run_at <= {now}
    ORDER BY next_run_at
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED))
RETURNING id;

-- name: fair_turns
-- The next keys that have due jobs, in the order of their turns, and once around at most: for each its
-- tasks and priorities, with the oldest due time and the weight of that job, and whether this worker
-- can take it. Begins with the key `from_key` of the queue `from_queue`, or behind it when its turn
-- is over (`is_over`), and ends with the first task of one key too many (`keys`), or with too many
-- tasks and priorities (`lanes`). Of a queue that has nothing for this worker it reads nothing.
WITH RECURSIVE
lanes AS ({fair_lanes_by lanes}),
queues AS MATERIALIZED (
    SELECT array_agg(DISTINCT queue ORDER BY queue) AS names
    FROM lanes
    WHERE next_run_at <= {now}
      AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s::text[]))
      AND (%(tasks)s::text[] IS NULL OR task = ANY (%(tasks)s::text[]))
      AND {open lanes}
),
-- Hops through the index. A row is a lane of a key, or a place before or behind all lanes of one. (No
-- key comes between another and the same with a control character at its end.)
walk AS (
    SELECT %(from_queue)s::text COLLATE "C" AS queue,
           (%(from_key)s::text || CASE WHEN %(is_over)s THEN chr(1) ELSE '' END) COLLATE "C" AS fair_key,
           ''::text COLLATE "C" AS task, 0::smallint AS priority,
           NULL::timestamptz AS next_run_at, NULL::smallint AS fair_weight,
           0 AS key, 0 AS lane, false AS is_around
    FROM queues WHERE names IS NOT NULL
    UNION ALL
    SELECT hop.*
    FROM walk CROSS JOIN queues CROSS JOIN LATERAL (
        (SELECT j.queue, j.fair_key, j.task, j.priority, j.next_run_at, j.fair_weight,
                walk.key + (walk.next_run_at IS NULL OR j.fair_key <> walk.fair_key)::int,
                walk.lane + 1, walk.is_around
         FROM evenbeat.jobs j
         WHERE {fair j} AND {pending j}
           AND walk.queue = ANY (queues.names)
           AND j.queue = walk.queue
           AND (j.fair_key, j.task, j.priority) > (walk.fair_key, walk.task, walk.priority)
         ORDER BY j.queue, j.fair_key, j.task, j.priority, j.next_run_at
         LIMIT 1)
        UNION ALL
        (SELECT queue, '', '', -1::smallint, NULL, NULL, walk.key, walk.lane, walk.is_around
         FROM unnest(queues.names) AS later (queue)
         WHERE queue > walk.queue
         ORDER BY queue
         LIMIT 1)
        UNION ALL
        SELECT queues.names[1], '', '', -1::smallint, NULL, NULL, walk.key, walk.lane, true
        WHERE NOT walk.is_around
        LIMIT 1) hop
    WHERE walk.key <= %(keys)s AND walk.lane < %(lanes)s
      AND NOT (hop.is_around
               AND ((hop.queue, hop.fair_key) > (%(from_queue)s::text, %(from_key)s::text)
                    OR NOT %(is_over)s
                       AND (hop.queue, hop.fair_key) = (%(from_queue)s::text, %(from_key)s::text)))
)
SELECT queue, fair_key, fair_weight, task, priority, next_run_at,
       next_run_at <= {now} AND (%(tasks)s::text[] IS NULL OR task = ANY (%(tasks)s::text[]))
FROM walk WHERE next_run_at IS NOT NULL ORDER BY lane;

-- name: claim_fair
-- Takes due jobs of these keys, of each up to its share, the most urgent first, and opens an execution
-- for each. Two claims that want jobs of the same key get different ones.
WITH
lanes AS MATERIALIZED (
    SELECT * FROM unnest(%(queues)s::text[], %(keys)s::text[], %(shares)s::int[], %(tasks)s::text[],
                         %(priorities)s::smallint[], %(since)s::timestamptz[])
    AS lane (queue, fair_key, share, task, priority, next_run_at)
),
picked AS (
    SELECT taken.id
    FROM (SELECT DISTINCT queue, fair_key, share FROM lanes) own
    CROSS JOIN LATERAL (
        SELECT due.id
        FROM (SELECT task, priority, next_run_at FROM lanes
              WHERE lanes.queue = own.queue AND lanes.fair_key = own.fair_key
              ORDER BY priority DESC, next_run_at) lane
        CROSS JOIN LATERAL (
            SELECT j.id
            FROM evenbeat.jobs j
            WHERE {fair j} AND {pending j}
              AND j.queue = own.queue AND j.fair_key = own.fair_key
              AND j.task = lane.task AND j.priority = lane.priority
              AND j.next_run_at >= lane.next_run_at
              AND j.next_run_at <= {now}
            ORDER BY j.next_run_at
            LIMIT own.share
            FOR UPDATE SKIP LOCKED) due
        LIMIT own.share) taken
),
{claimed at now}
SELECT {job} FROM claimed j ORDER BY j.priority DESC, j.next_run_at;
