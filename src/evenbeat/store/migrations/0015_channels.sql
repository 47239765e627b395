-- oldest code: 3
-- Webhooks for people: texts for chats and e-mail, and hours in which nothing is sent.
ALTER TABLE evenbeat.webhooks
    ADD COLUMN format      text NOT NULL DEFAULT 'json' COLLATE "C",
    ADD COLUMN quiet_hours text;

-- The alerts that are on, as far as anybody was told.
CREATE TABLE evenbeat.alerts_told (
    key     text        PRIMARY KEY COLLATE "C",
    title   text        NOT NULL,
    since   timestamptz NOT NULL,
    seen_at timestamptz NOT NULL
);

-- As before, but what people read waits a little for what comes with it.
CREATE OR REPLACE FUNCTION evenbeat.send_webhook(message uuid, endpoint uuid, moment timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    -- What people read is collected for a moment, and sent by one delivery at a time.
    is_read boolean := EXISTS (SELECT FROM evenbeat.webhooks WHERE id = endpoint AND format <> 'json');
    due timestamptz := moment + CASE WHEN is_read THEN interval '10 seconds' ELSE interval '0' END;
BEGIN
    INSERT INTO evenbeat.jobs (id, created_at, updated_at, plan_time, next_run_at, status, task,
                               queue, payload, dedup_key, max_retries, created_by,
                               concurrency_key, concurrency_limit)
    VALUES (evenbeat.uuid7(moment), moment, moment, moment, due, 'pending', 'evenbeat:webhook',
            'webhooks', jsonb_build_object('message', message), 'webhook:' || message, 100,
            'webhooks', 'webhook:' || endpoint, CASE WHEN is_read THEN 1 ELSE 10 END)
    ON CONFLICT (dedup_key)
        WHERE dedup_key IS NOT NULL AND status IN ('pending', 'scheduled', 'running', 'paused')
    DO UPDATE SET next_run_at = least(jobs.next_run_at, excluded.next_run_at)
    WHERE jobs.status IN ('pending', 'scheduled');
    PERFORM pg_notify(btrim('evenbeat.', '."'), 'due:webhooks');
END
$$;
