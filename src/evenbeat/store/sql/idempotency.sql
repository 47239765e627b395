-- Requests that may be sent twice: a key stands for one request of one caller, for a day.

-- name: reserve_key
-- Takes a key that is free or has expired. Whoever asks for one that another transaction is taking
-- waits for its end. Returns nothing when the key stands for a request already.
INSERT INTO evenbeat.idempotency_keys AS k (principal, key, fingerprint, created_at)
VALUES (%(principal)s, %(key)s, %(fingerprint)s, {now})
ON CONFLICT (principal, key) DO UPDATE
SET fingerprint = excluded.fingerprint, created_at = excluded.created_at,
    status = NULL, answer = NULL
WHERE k.created_at <= excluded.created_at - make_interval(secs => %(lifetime_seconds)s)
RETURNING k.key;

-- name: kept_answer
-- The request that a key stands for, and what it was answered.
SELECT fingerprint, status, answer FROM evenbeat.idempotency_keys
WHERE principal = %(principal)s AND key = %(key)s;

-- name: keep_answer
-- Keeps the answer with its key.
UPDATE evenbeat.idempotency_keys SET status = %(status)s, answer = %(answer)s
WHERE principal = %(principal)s AND key = %(key)s
RETURNING key;

-- name: prune_keys
-- Forgets keys that have expired, in batches.
DELETE FROM evenbeat.idempotency_keys
WHERE (principal, key) IN (
    SELECT principal, key FROM evenbeat.idempotency_keys
    WHERE created_at < %(older_than)s
    ORDER BY created_at
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED)
RETURNING key;
