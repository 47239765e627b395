-- Access: the tokens that were issued, and the one-time codes of login links.

-- name: add_token
-- Makes a token known, so that it can be listed and revoked; those long expired are forgotten.
WITH forgotten AS (
    DELETE FROM evenbeat.tokens
    WHERE expires_at < {now} - interval '7 days'
)
INSERT INTO evenbeat.tokens (id, kind, subject, role, created_at, created_by, expires_at)
VALUES (%(id)s, 'token', %(subject)s, %(role)s, {now},
        %(created_by)s, %(expires_at)s)
RETURNING id;

-- name: tokens
-- The newest first; `active` leaves out what is revoked or expired.
SELECT t.id, t.kind, t.subject, t.role, t.created_at, t.created_by, t.expires_at, t.revoked_at
FROM evenbeat.tokens t
WHERE NOT %(active)s
   OR (t.revoked_at IS NULL AND t.expires_at > now())
ORDER BY t.created_at DESC, t.id DESC
LIMIT %(limit)s OFFSET %(offset)s;

-- name: count_tokens
-- How many tokens `tokens` would give without a limit.
SELECT count(*) FROM evenbeat.tokens t
WHERE NOT %(active)s
   OR (t.revoked_at IS NULL AND t.expires_at > now());

-- name: revoke_token
-- Ends a token for good; one that is revoked already keeps its first date. With `session_only`,
-- leaves alone what was not made by signing in.
UPDATE evenbeat.tokens
SET revoked_at = coalesce(revoked_at, now())
WHERE id = %(id)s AND (kind = 'session' OR NOT %(session_only)s)
RETURNING id;

-- name: revoked_tokens
-- Every revoked token. Rows outlive their token by days, so none can come back by being forgotten.
SELECT id FROM evenbeat.tokens WHERE revoked_at IS NOT NULL;

-- name: add_login_code
-- Keeps the hash of a one-time code; those that have expired are forgotten.
WITH forgotten AS (
    DELETE FROM evenbeat.login_codes
    WHERE expires_at < now()
)
INSERT INTO evenbeat.login_codes (code_hash, subject, role, created_at, expires_at)
VALUES (%(code_hash)s, %(subject)s, %(role)s, now(),
        now() + make_interval(secs => %(ttl_seconds)s))
RETURNING expires_at;

-- name: redeem_login_code
-- Turns a code into a session, at most once: the one that deletes the row gets it.
WITH used AS (
    DELETE FROM evenbeat.login_codes WHERE code_hash = %(code_hash)s
    RETURNING subject, role, expires_at
)
INSERT INTO evenbeat.tokens (id, kind, subject, role, created_at, created_by, expires_at)
SELECT %(id)s, 'session', used.subject, used.role, {now},
       'login link', %(expires_at)s
FROM used
WHERE used.expires_at > {now}
RETURNING subject, role;
