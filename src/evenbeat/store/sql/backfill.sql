-- Running past plans of a recurring job once more, each as a child of its own.

-- name: plans_with_child
-- Plans of these for which the job has a child already, whatever became of it.
SELECT plan_time FROM evenbeat.jobs
WHERE parent_id = %(id)s AND plan_time = ANY (%(plans)s::timestamptz[]);

-- name: plans_run
-- Plans in a period that the job itself has completed, as far as its history is kept, or runs now.
SELECT DISTINCT plan_time, status FROM evenbeat.executions
WHERE job_id = %(id)s AND plan_time BETWEEN %(after)s AND %(until)s
  AND status IN ('completed', 'running');
