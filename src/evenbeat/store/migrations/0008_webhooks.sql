-- Webhooks: who is told of what, the messages that tell it, and every attempt at delivering one.

CREATE TABLE evenbeat.webhooks (
    id               uuid        PRIMARY KEY,
    created_at       timestamptz NOT NULL,
    updated_at       timestamptz NOT NULL,
    created_by       text,
    url              text        NOT NULL,
    description      text        NOT NULL DEFAULT '',

    -- What it hears of; null means all of them.
    events           text[]      NOT NULL,
    job_id           uuid,
    tasks            text[],
    queues           text[],
    tags             text[],

    -- After a rotation the old secret signs along for a day.
    secret           text        NOT NULL,
    old_secret       text,
    old_secret_until timestamptz,

    enabled          boolean     NOT NULL DEFAULT true,
    disabled_reason  text,
    failing_since    timestamptz,

    CONSTRAINT something_is_heard CHECK (cardinality(events) > 0)
);

-- The end of a run asks for the endpoints of its job and for those of all jobs.
CREATE INDEX webhooks_of_job ON evenbeat.webhooks (job_id);

-- One row for each endpoint that is told. The payload is kept as text, so that what is sent is what
-- was stored. No foreign key to the endpoint: it would lock its row at the end of every run.
CREATE TABLE evenbeat.webhook_messages (
    id           uuid        PRIMARY KEY,
    webhook_id   uuid        NOT NULL,
    event        text        NOT NULL COLLATE "C",
    created_at   timestamptz NOT NULL,
    job_id       uuid,
    execution_id uuid,
    delivered_at timestamptz,
    attempts     integer     NOT NULL DEFAULT 0,
    payload      json        NOT NULL
) WITH (fillfactor = 90);

CREATE INDEX webhook_messages_of_endpoint ON evenbeat.webhook_messages (webhook_id, id);

-- What is not delivered, among millions that are: lists of what failed, and sending it again.
CREATE INDEX webhook_messages_undelivered ON evenbeat.webhook_messages (webhook_id, id)
    WHERE delivered_at IS NULL;

-- The id is that of the execution that made the attempt: one run, one entry.
CREATE TABLE evenbeat.webhook_deliveries (
    id          uuid        PRIMARY KEY,
    message_id  uuid        NOT NULL,
    attempt     integer     NOT NULL,
    started_at  timestamptz NOT NULL,
    duration_ms double precision,
    status_code smallint,
    response    text,
    error_code  text,
    error       text
);

CREATE INDEX webhook_deliveries_of_message ON evenbeat.webhook_deliveries (message_id, attempt);

-- Makes the job that delivers a message. While one lives there is no second: it is due at once.
-- The many retries are for workers that die; when to stop trying is for the task to say. At most ten
-- deliveries to one endpoint run at once, so that one that stalls cannot take up all workers.
CREATE FUNCTION evenbeat.send_webhook(message uuid, endpoint uuid, moment timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO evenbeat.jobs (id, created_at, updated_at, plan_time, next_run_at, status, task,
                               queue, payload, dedup_key, max_retries, created_by,
                               concurrency_key, concurrency_limit)
    VALUES (evenbeat.uuid7(moment), moment, moment, moment, moment, 'pending', 'evenbeat:webhook',
            'webhooks', jsonb_build_object('message', message), 'webhook:' || message, 100,
            'webhooks', 'webhook:' || endpoint, 10)
    ON CONFLICT (dedup_key)
        WHERE dedup_key IS NOT NULL AND status IN ('pending', 'scheduled', 'running', 'paused')
    DO UPDATE SET next_run_at = least(jobs.next_run_at, excluded.next_run_at)
    WHERE jobs.status IN ('pending', 'scheduled');
    PERFORM pg_notify(btrim('evenbeat.', '."'), 'due:webhooks');
END
$$;

-- Whoever stores a message has stored its delivery: no statement can do the one without the other.
CREATE FUNCTION evenbeat.webhook_message_stored() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM evenbeat.send_webhook(NEW.id, NEW.webhook_id, NEW.created_at);
    RETURN NULL;
END
$$;

CREATE TRIGGER send AFTER INSERT ON evenbeat.webhook_messages
FOR EACH ROW EXECUTE FUNCTION evenbeat.webhook_message_stored();

-- Stores a message for every endpoint that wants to hear of this end of a job, called for each by the
-- very statement that ends it. It tells neither payload nor metadata, which may hold secrets.
-- `run` is null for a job that was not running, `lasted` for a run that was cut off at `moment`.
CREATE FUNCTION evenbeat.tell_webhooks(what text, moment timestamptz, job uuid, run uuid,
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
                'retry_at', CASE WHEN what = 'job.retrying' THEN next_run END) END))
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
