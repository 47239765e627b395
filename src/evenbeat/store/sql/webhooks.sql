-- Webhooks: endpoints, the messages for them, and the log of deliveries. The messages about jobs are
-- stored where runs end (`finish`, `cancel`); storing one makes the job that delivers it.

-- name: add_webhook
-- Adds an endpoint.
INSERT INTO evenbeat.webhooks AS w (id, created_at, updated_at, created_by, url, description,
                                    events, job_id, tasks, queues, tags, secret, enabled,
                                    format, quiet_hours)
VALUES (%(id)s, {now}, {now},
        %(created_by)s, %(url)s, %(description)s, %(events)s::text[], %(job_id)s,
        %(tasks)s::text[], %(queues)s::text[], %(tags)s::text[], %(secret)s, %(enabled)s,
        %(format)s, %(quiet_hours)s)
RETURNING {webhook};

-- name: webhooks
-- Every endpoint, or those of one job, newest first.
SELECT {webhook} FROM evenbeat.webhooks w
WHERE %(job_id)s::uuid IS NULL OR w.job_id = %(job_id)s::uuid
ORDER BY w.created_at DESC, w.id DESC
LIMIT %(limit)s OFFSET %(offset)s;

-- name: count_webhooks
-- How many endpoints `webhooks` would give without a limit, and how many hear of all jobs.
SELECT count(*) FILTER (WHERE %(job_id)s::uuid IS NULL OR w.job_id = %(job_id)s::uuid),
       count(*) FILTER (WHERE w.job_id IS NULL)
FROM evenbeat.webhooks w;

-- name: webhook
-- One endpoint.
SELECT {webhook} FROM evenbeat.webhooks w WHERE w.id = %(id)s;

-- name: webhook_until_commit
-- One endpoint, locked until the transaction ends: a delivery may be about to disable it.
SELECT {webhook} FROM evenbeat.webhooks w WHERE w.id = %(id)s FOR UPDATE;

-- name: update_webhook
-- Writes an edited endpoint. Being enabled by a person takes away the reason why it was not, and it
-- counts as failing again only when it fails again.
UPDATE evenbeat.webhooks w
SET url = %(url)s, description = %(description)s, events = %(events)s::text[],
    tasks = %(tasks)s::text[], queues = %(queues)s::text[], tags = %(tags)s::text[],
    enabled = %(enabled)s, format = %(format)s, quiet_hours = %(quiet_hours)s,
    disabled_reason = CASE WHEN NOT %(enabled)s THEN w.disabled_reason END,
    failing_since = CASE WHEN w.url = %(url)s AND (w.enabled OR NOT %(enabled)s)
                         THEN w.failing_since END,
    updated_at = {now}
WHERE w.id = %(id)s
RETURNING {webhook};

-- name: rotate_webhook_secret
-- Puts a new secret in place of the old one, which signs along until `old_until`.
UPDATE evenbeat.webhooks w
SET old_secret = w.secret, secret = %(secret)s,
    old_secret_until = {now}
                       + make_interval(secs => %(old_seconds)s),
    updated_at = {now}
WHERE w.id = %(id)s
RETURNING {webhook};

-- name: delete_webhook
-- Removes an endpoint with its messages, their log and the jobs that would still deliver them.
WITH gone AS (
    DELETE FROM evenbeat.webhooks w WHERE w.id = %(id)s RETURNING w.id
),
messages AS (
    DELETE FROM evenbeat.webhook_messages m USING gone WHERE m.webhook_id = gone.id
    RETURNING m.id, m.delivered_at
),
log AS (
    DELETE FROM evenbeat.webhook_deliveries d USING messages m WHERE d.message_id = m.id
),
jobs AS (
    DELETE FROM evenbeat.jobs j USING messages m
    WHERE j.dedup_key = 'webhook:' || m.id AND m.delivered_at IS NULL
      AND j.status IN ('pending', 'scheduled', 'paused')
    RETURNING j.id
),
history AS (
    DELETE FROM evenbeat.executions e USING jobs WHERE e.job_id = ANY (ARRAY[jobs.id])
)
SELECT id FROM gone;

-- name: add_webhook_test
-- Stores a test message for an enabled endpoint, whatever it hears of. Returns nothing for another.
INSERT INTO evenbeat.webhook_messages (id, webhook_id, event, created_at, payload)
SELECT %(message)s, w.id, 'webhook.test', {now}, json_build_object(
           'type', 'webhook.test', 'timestamp', {now},
           'data', json_build_object('webhook', json_build_object(
               'id', w.id, 'description', w.description, 'events', w.events)))
FROM evenbeat.webhooks w
WHERE w.id = %(id)s AND w.enabled
RETURNING id;

-- name: add_balance_alert
-- Stores a message for every endpoint that hears of a low balance.
INSERT INTO evenbeat.webhook_messages (id, webhook_id, event, created_at, payload)
SELECT evenbeat.uuid7({now}), w.id, 'balance.low',
       {now}, json_build_object(
           'type', 'balance.low', 'timestamp', {now},
           'data', %(data)s::json)
FROM evenbeat.webhooks w
WHERE w.enabled AND w.job_id IS NULL AND 'balance.low' = ANY (w.events)
RETURNING id;

-- name: outgoing_webhook
-- A message with what its delivery needs: where to, which secrets sign, and what time it is.
SELECT m.event, m.payload::text, m.delivered_at IS NOT NULL, w.url, coalesce(w.enabled, false),
       w.secret,
       CASE WHEN w.old_secret_until > {now} THEN w.old_secret END,
       {now}, coalesce(w.format, 'json'), w.quiet_hours
FROM evenbeat.webhook_messages m LEFT JOIN evenbeat.webhooks w ON w.id = m.webhook_id
WHERE m.id = %(message)s;

-- name: undelivered_beside
-- What waits to be sent to the endpoint of a message, that one included, oldest first.
SELECT m.id, m.payload
FROM evenbeat.webhook_messages one
JOIN evenbeat.webhook_messages m ON m.webhook_id = one.webhook_id AND m.delivered_at IS NULL
WHERE one.id = %(message)s
ORDER BY m.id
LIMIT %(limit)s;

-- name: delivered_together
-- Notes that these messages went out as part of another.
UPDATE evenbeat.webhook_messages SET delivered_at = {now}
WHERE id = ANY (%(ids)s::uuid[]) AND delivered_at IS NULL
RETURNING id;

-- name: add_alert_messages
-- Stores a message for every endpoint that hears of alerts.
INSERT INTO evenbeat.webhook_messages (id, webhook_id, event, created_at, payload)
SELECT evenbeat.uuid7({now}), w.id, %(event)s, {now},
       json_build_object('type', %(event)s::text, 'timestamp', {now}, 'data', %(data)s::json)
FROM evenbeat.webhooks w
WHERE w.enabled AND w.job_id IS NULL AND %(event)s = ANY (w.events)
RETURNING id;

-- name: tell_alerts
-- Notes which alerts are on; returns those that were not.
WITH asked AS (
    SELECT * FROM unnest(%(keys)s::text[], %(titles)s::text[], %(since)s::timestamptz[])
        AS a (key, title, since)
),
seen AS (
    UPDATE evenbeat.alerts_told t SET title = a.title, seen_at = {now}
    FROM asked a WHERE t.key = a.key
    RETURNING t.key
)
INSERT INTO evenbeat.alerts_told (key, title, since, seen_at)
SELECT key, title, since, {now} FROM asked WHERE key NOT IN (SELECT key FROM seen)
ON CONFLICT (key) DO NOTHING
RETURNING key;

-- name: forget_alerts_told
-- Strikes alerts that have not been seen for a while; returns what they were.
DELETE FROM evenbeat.alerts_told
WHERE seen_at < {now} - make_interval(secs => %(over_after_seconds)s)
RETURNING key, title, since;

-- name: record_delivery
-- Notes an attempt, once, and what it means for the message and for the endpoint: delivered, gone
-- (disabled, with the reason), or failing since the first failure in a row.
WITH noted AS (
    INSERT INTO evenbeat.webhook_deliveries (id, message_id, attempt, started_at, duration_ms,
                                             status_code, response, error_code, error)
    SELECT %(id)s, m.id, m.attempts + 1, %(started_at)s, %(duration_ms)s, %(status_code)s,
           %(response)s, %(error_code)s, %(error)s
    FROM evenbeat.webhook_messages m WHERE m.id = %(message)s
    ON CONFLICT DO NOTHING
    RETURNING message_id, attempt
),
counted AS (
    UPDATE evenbeat.webhook_messages m
    SET attempts = n.attempt,
        delivered_at = CASE WHEN %(delivered)s THEN {now}
                            ELSE m.delivered_at END
    FROM noted n WHERE m.id = n.message_id
    RETURNING m.webhook_id, m.attempts
),
judged AS (
    UPDATE evenbeat.webhooks w
    SET failing_since = CASE WHEN NOT %(delivered)s
                             THEN coalesce(w.failing_since, %(now)s::timestamptz, now()) END,
        enabled = w.enabled AND %(disabled_reason)s::text IS NULL,
        disabled_reason = coalesce(%(disabled_reason)s::text, w.disabled_reason)
    FROM counted c
    WHERE w.id = c.webhook_id
      AND ((w.failing_since IS NULL) <> %(delivered)s OR %(disabled_reason)s::text IS NOT NULL)
)
SELECT attempts FROM counted;

-- name: webhook_messages
-- The messages of an endpoint, newest first, each with its last attempt. One that is not delivered
-- is pending while a job lives that will try again, and failed when there is none. Asked for what
-- is not delivered, it reads nothing else.
SELECT m.id, m.webhook_id, m.event, m.created_at, m.job_id, m.execution_id, m.state, m.attempts,
       m.delivered_at, m.next_attempt_at, d.status_code, d.error_code, d.error
FROM (
    SELECT m.*, j.next_run_at AS next_attempt_at, CASE
               WHEN m.delivered_at IS NOT NULL THEN 'delivered'
               WHEN j.id IS NOT NULL THEN 'pending' ELSE 'failed' END AS state
    FROM evenbeat.webhook_messages m
    LEFT JOIN LATERAL (
        SELECT j.id, j.next_run_at FROM evenbeat.jobs j
        WHERE m.delivered_at IS NULL AND j.dedup_key = 'webhook:' || m.id
          AND j.status IN ('pending', 'scheduled', 'running', 'paused')
        LIMIT 1) j ON true
    WHERE m.webhook_id = %(webhook_id)s
      AND (%(states)s::text[] IS NULL OR 'delivered' = ANY (%(states)s::text[])
           OR m.delivered_at IS NULL)) m
LEFT JOIN evenbeat.webhook_deliveries d ON d.message_id = m.id AND d.attempt = m.attempts
WHERE %(states)s::text[] IS NULL OR m.state = ANY (%(states)s::text[])
ORDER BY m.id DESC
LIMIT %(limit)s OFFSET %(offset)s;

-- name: count_webhook_messages
-- How many messages `webhook_messages` would give without a limit; nobody counts beyond `most`.
SELECT count(*) FROM (
    SELECT FROM evenbeat.webhook_messages m
    WHERE m.webhook_id = %(webhook_id)s
      AND (%(states)s::text[] IS NULL OR 'delivered' = ANY (%(states)s::text[])
           OR m.delivered_at IS NULL)
      AND (%(states)s::text[] IS NULL OR CASE
               WHEN m.delivered_at IS NOT NULL THEN 'delivered'
               WHEN EXISTS (SELECT FROM evenbeat.jobs j
                            WHERE j.dedup_key = 'webhook:' || m.id
                              AND j.status IN ('pending', 'scheduled', 'running', 'paused'))
               THEN 'pending' ELSE 'failed' END = ANY (%(states)s::text[]))
    LIMIT %(most)s) counted;

-- name: webhook_message
-- One message, as `webhook_messages` has it, and its payload.
SELECT m.id, m.webhook_id, m.event, m.created_at, m.job_id, m.execution_id, CASE
           WHEN m.delivered_at IS NOT NULL THEN 'delivered'
           WHEN j.id IS NOT NULL THEN 'pending' ELSE 'failed' END,
       m.attempts, m.delivered_at,
       CASE WHEN m.delivered_at IS NULL THEN j.next_run_at END,
       d.status_code, d.error_code, d.error, m.payload
FROM evenbeat.webhook_messages m
LEFT JOIN evenbeat.jobs j ON j.dedup_key = 'webhook:' || m.id
                         AND j.status IN ('pending', 'scheduled', 'running', 'paused')
LEFT JOIN evenbeat.webhook_deliveries d ON d.message_id = m.id AND d.attempt = m.attempts
WHERE m.id = %(id)s;

-- name: webhook_attempts
-- Every attempt at a message, the first one first.
SELECT id, attempt, started_at, duration_ms, status_code, response, error_code, error
FROM evenbeat.webhook_deliveries WHERE message_id = %(message)s ORDER BY attempt;

-- name: redeliver_webhooks
-- Sends messages of an enabled endpoint again: those named, or those that have failed since a
-- moment. Where a delivery still waits, it is due now instead of twice. Where one is running, nothing
-- is done: it would end without sending again what it has delivered.
WITH again AS (
    UPDATE evenbeat.webhook_messages m SET delivered_at = NULL
    FROM evenbeat.webhooks w
    WHERE w.id = m.webhook_id AND w.enabled
      AND (m.id = ANY (%(messages)s::uuid[])
           AND NOT EXISTS (SELECT FROM evenbeat.jobs j
                           WHERE j.dedup_key = 'webhook:' || m.id AND j.status = 'running')
           OR (m.webhook_id = %(webhook_id)s::uuid AND m.delivered_at IS NULL
               AND m.id >= evenbeat.uuid7_floor(%(since)s::timestamptz)
               AND NOT EXISTS (SELECT FROM evenbeat.jobs j
                               WHERE j.dedup_key = 'webhook:' || m.id
                                 AND j.status IN ('pending', 'scheduled', 'running', 'paused'))))
    RETURNING m.id, m.webhook_id
)
SELECT id, evenbeat.send_webhook(id, webhook_id, {now}) FROM again;

-- name: prune_webhooks
-- Removes old messages with their log, but for those still to be delivered; and the endpoints of
-- jobs that are no more, once nothing is left to tell them.
WITH old AS (
    SELECT id FROM evenbeat.webhook_messages m
    WHERE id < evenbeat.uuid7_floor(%(older_than)s::timestamptz)
      AND (delivered_at IS NOT NULL
           OR NOT EXISTS (SELECT FROM evenbeat.jobs j
                          WHERE j.dedup_key = ANY (ARRAY['webhook:' || m.id])
                            AND j.status IN ('pending', 'scheduled', 'running', 'paused')))
    ORDER BY id
    LIMIT %(limit)s
),
log AS (
    DELETE FROM evenbeat.webhook_deliveries d USING old WHERE d.message_id = old.id
),
orphans AS (
    DELETE FROM evenbeat.webhooks w
    WHERE w.job_id IS NOT NULL
      AND NOT EXISTS (SELECT FROM evenbeat.jobs j WHERE j.id = ANY (ARRAY[w.job_id]))
      AND NOT EXISTS (SELECT FROM evenbeat.webhook_messages m WHERE m.webhook_id = w.id)
)
DELETE FROM evenbeat.webhook_messages m USING old WHERE m.id = old.id
RETURNING m.id;
