-- The table of limits: what jobs ask for, what operators set, and how each key stands.

-- name: note_limits
-- Makes keys known with what their newest jobs ask for. Figures that an operator has set stay, and a
-- row that says the same already is neither written nor locked. Returns the keys that changed.
INSERT INTO evenbeat.limits AS l (key, max_running, rate_limit, burst, step_us, next_start_at,
                                  updated_at)
SELECT asked.key, asked.max_running, asked.rate_limit, asked.burst, asked.step_us,
       CASE WHEN asked.rate_limit IS NOT NULL THEN {now} END,
       {now}
FROM unnest(%(keys)s::text[], %(max_running)s::int[], %(rate_limits)s::text[], %(bursts)s::int[],
            %(steps_us)s::bigint[]) AS asked (key, max_running, rate_limit, burst, step_us)
WHERE NOT EXISTS (SELECT FROM evenbeat.limits known
                  WHERE known.key = asked.key
                    AND (known.is_set OR (known.max_running IS NOT DISTINCT FROM asked.max_running
                                          AND known.rate_limit IS NOT DISTINCT FROM asked.rate_limit)))
ORDER BY asked.key
ON CONFLICT (key) DO UPDATE
SET max_running = excluded.max_running, rate_limit = excluded.rate_limit, burst = excluded.burst,
    step_us = excluded.step_us, updated_at = excluded.updated_at,
    next_start_at = CASE WHEN excluded.rate_limit IS NOT NULL
                         THEN coalesce(least(l.next_start_at, excluded.updated_at
                                             + excluded.step_us * interval '1 microsecond'),
                                       excluded.updated_at) END
WHERE NOT l.is_set
RETURNING l.key;

-- name: limits_asked
-- What a waiting job of each of these keys asks for.
SELECT asked.key, j.concurrency_limit, j.rate_limit
FROM unnest(%(keys)s::text[]) AS asked (key) CROSS JOIN LATERAL (
    SELECT j.concurrency_limit, j.rate_limit
    FROM evenbeat.jobs j
    WHERE j.concurrency_key IS NOT NULL AND j.concurrency_key = asked.key
      AND {waiting j}
    ORDER BY j.queue, j.task, j.priority, j.next_run_at
    LIMIT 1) j;

-- name: set_limit
-- Sets what counts for a key, whatever its jobs ask for.
INSERT INTO evenbeat.limits AS l (key, max_running, rate_limit, burst, step_us, next_start_at, is_set,
                                  updated_at)
VALUES (%(key)s, %(max_running)s, %(rate_limit)s, %(burst)s, %(step_us)s,
        CASE WHEN %(rate_limit)s::text IS NOT NULL THEN {now} END,
        true, {now})
ON CONFLICT (key) DO UPDATE
SET max_running = excluded.max_running, rate_limit = excluded.rate_limit, burst = excluded.burst,
    step_us = excluded.step_us, is_set = true, updated_at = excluded.updated_at,
    next_start_at = CASE WHEN excluded.rate_limit IS NOT NULL
                         THEN coalesce(least(l.next_start_at, excluded.updated_at
                                             + excluded.step_us * interval '1 microsecond'),
                                       excluded.updated_at) END
RETURNING key;

-- name: unset_limit
-- Leaves a key to what its jobs ask for.
UPDATE evenbeat.limits SET is_set = false, updated_at = {now}
WHERE key = %(key)s RETURNING key;

-- name: limits
-- Keys in their order, each with how many run and how many wait (counted up to 1000).
SELECT l.key, l.max_running, l.rate_limit, l.next_start_at, l.is_set,
       (SELECT count(*) FROM evenbeat.jobs r
        WHERE r.concurrency_key IS NOT NULL AND r.concurrency_key = l.key AND r.status = 'running'),
       (SELECT count(*) FROM (
           SELECT FROM evenbeat.jobs j
           WHERE j.concurrency_key IS NOT NULL AND j.concurrency_key = l.key
             AND {waiting j}
           LIMIT 1000) first),
       l.updated_at
FROM evenbeat.limits l
WHERE (%(keys)s::text[] IS NULL OR l.key = ANY (%(keys)s::text[]))
ORDER BY l.key
LIMIT %(limit)s OFFSET %(offset)s;

-- name: count_limits
-- How many keys are known.
SELECT count(*) FROM evenbeat.limits;

-- name: prune_limits
-- Forgets keys that nobody has set and that nothing waits or runs with, if they are old enough that
-- their rate has long let them go. One that is needed again comes back with its next job.
DELETE FROM evenbeat.limits l
WHERE NOT l.is_set AND l.updated_at < %(older_than)s
  AND (l.next_start_at IS NULL OR l.next_start_at < %(older_than)s)
  AND NOT EXISTS (SELECT FROM evenbeat.jobs j
                  WHERE j.concurrency_key IS NOT NULL AND j.concurrency_key = l.key
                    AND {waiting j})
  AND NOT EXISTS (SELECT FROM evenbeat.jobs j
                  WHERE j.concurrency_key IS NOT NULL AND j.concurrency_key = l.key
                    AND j.status = 'running')
RETURNING l.key;
