-- Access: the tokens that were issued, so that they can be listed and revoked, and the one-time
-- codes of login links. Neither holds a secret: of a code only its hash is kept, of a token nothing.

CREATE TABLE evenbeat.tokens (
    id          uuid        PRIMARY KEY,
    kind        text        NOT NULL CHECK (kind IN ('token', 'session')),
    subject     text        NOT NULL CHECK (length(subject) BETWEEN 1 AND 200),
    role        text        NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    created_at  timestamptz NOT NULL,
    created_by  text        NOT NULL CHECK (length(created_by) BETWEEN 1 AND 200),
    expires_at  timestamptz NOT NULL,
    revoked_at  timestamptz
);

CREATE INDEX tokens_expiry ON evenbeat.tokens (expires_at);
CREATE INDEX tokens_revoked ON evenbeat.tokens (id) WHERE revoked_at IS NOT NULL;

CREATE TABLE evenbeat.login_codes (
    code_hash   bytea       PRIMARY KEY CHECK (length(code_hash) = 32),
    subject     text        NOT NULL CHECK (length(subject) BETWEEN 1 AND 200),
    role        text        NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    created_at  timestamptz NOT NULL,
    expires_at  timestamptz NOT NULL CHECK (expires_at > created_at)
);
