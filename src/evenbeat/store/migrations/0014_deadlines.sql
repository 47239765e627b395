-- oldest code: 3
-- By when runs must have started or succeeded, and which jobs have missed that.
ALTER TABLE evenbeat.jobs
    ADD COLUMN must_start_within_seconds  double precision,
    ADD COLUMN must_finish_by             text,
    ADD COLUMN must_succeed_every_seconds double precision;

-- Few jobs have a deadline; the others pay nothing.
CREATE INDEX jobs_deadlines ON evenbeat.jobs (id)
    WHERE must_start_within_seconds IS NOT NULL OR must_finish_by IS NOT NULL
          OR must_succeed_every_seconds IS NOT NULL;

CREATE TABLE evenbeat.missed_deadlines (
    job_id   uuid        NOT NULL,
    deadline text        NOT NULL COLLATE "C",
    since    timestamptz NOT NULL,
    message  text        NOT NULL,
    PRIMARY KEY (job_id, deadline)
);

-- As before, and with the deadline that a message is about, if it is about one.
CREATE OR REPLACE FUNCTION evenbeat.tell_webhooks(what text, moment timestamptz, job uuid, run uuid,
                                       lasted double precision, code text, message text,
                                       next_run timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO evenbeat.webhook_messages (id, webhook_id, event, created_at, job_id, execution_id,
                                           payload)
    SELECT evenbeat.uuid7(moment), w.id, what, moment, job, run, json_build_object(
        'type', what,
        'timestamp', moment,
        'data', json_build_object(
            'job', json_build_object(
                'id', j.id, 'name', j.name, 'task', j.task, 'queue', j.queue,
                'scope', json_build_object('kind', j.scope_kind, 'id', j.scope_id),
                'tags', coalesce(j.metadata -> 'tags', '[]'), 'parent_id', j.parent_id),
            'execution', CASE WHEN e.id IS NOT NULL THEN json_build_object(
                'id', e.id, 'number', e.execution_number, 'attempt', e.retry_attempt + 1,
                'plan_time', e.plan_time, 'started_at', j.started_at, 'completed_at', moment,
                'duration_ms', round(coalesce(
                    lasted, extract(epoch FROM moment - j.started_at) * 1000)::numeric, 3),
                'error_code', code, 'error_message', message,
                'retry_at', CASE WHEN what = 'job.retrying' THEN next_run END) END,
            'deadline', CASE WHEN what = ANY ('{job.late,job.overdue,job.recovered}'::text[])
                THEN json_build_object('kind', code, 'since', next_run, 'message', message) END))
    FROM evenbeat.jobs j
    LEFT JOIN evenbeat.executions e ON e.id = run
    CROSS JOIN LATERAL (
        SELECT * FROM evenbeat.webhooks WHERE job_id IS NULL AND enabled
        UNION ALL
        SELECT * FROM evenbeat.webhooks WHERE job_id = job AND enabled) w
    WHERE j.id = job AND j.task <> 'evenbeat:webhook'
      AND what = ANY (w.events)
      AND (w.tasks IS NULL OR j.task = ANY (w.tasks))
      AND (w.queues IS NULL OR j.queue = ANY (w.queues))
      AND (w.tags IS NULL OR j.metadata -> 'tags' ?| w.tags);
END
$$;
