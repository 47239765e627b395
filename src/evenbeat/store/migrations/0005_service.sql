-- Answers to requests that carried an Idempotency-Key, kept so that a repeated request changes
-- nothing and hears the same. A row is written in the transaction that adds the job.
CREATE TABLE evenbeat.idempotency_keys (
    principal   text        NOT NULL COLLATE "C",
    key         text        NOT NULL COLLATE "C",
    fingerprint bytea       NOT NULL,
    status      smallint,
    answer      text,
    created_at  timestamptz NOT NULL,
    PRIMARY KEY (principal, key)
);

-- Retention goes by age.
CREATE INDEX idempotency_keys_by_age ON evenbeat.idempotency_keys (created_at);
