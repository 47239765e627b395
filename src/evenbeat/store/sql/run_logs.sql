-- What runs have logged: their first lines and their last ones.

-- name: add_log_lines
-- Adds lines of runs that still hold their leases, and removes those that newer ones push out. Written
-- a second time, after an answer that was lost, they change nothing.
WITH pushed_out AS (
    DELETE FROM evenbeat.run_logs l
    USING unnest(%(old_runs)s::uuid[], %(old_numbers)s::int[]) AS o (execution_id, number)
    WHERE l.execution_id = o.execution_id AND l.number = o.number
)
INSERT INTO evenbeat.run_logs (execution_id, number, lines)
SELECT n.execution_id, n.number, n.lines::jsonb
FROM unnest(%(job_ids)s::uuid[], %(runs)s::uuid[], %(numbers)s::int[], %(lines)s::text[])
     AS n (job_id, execution_id, number, lines)
JOIN evenbeat.jobs j ON j.id = n.job_id AND j.lock_token = n.execution_id
ON CONFLICT DO NOTHING
RETURNING number;

-- name: log_lines_after
-- The rows that have a run's lines after this number, and what follows them.
SELECT number, lines FROM evenbeat.run_logs
WHERE execution_id = %(execution_id)s
  AND number >= coalesce((SELECT max(b.number) FROM evenbeat.run_logs b
                          WHERE b.execution_id = %(execution_id)s
                            AND b.number <= %(after)s::bigint + 1), 0)
ORDER BY number;
