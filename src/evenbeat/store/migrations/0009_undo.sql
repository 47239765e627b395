-- oldest code: 3
-- Jobs as they were before an operator's verb, so that it can be taken back.
CREATE TABLE evenbeat.undos (
    id         uuid        PRIMARY KEY,
    created_at timestamptz NOT NULL,
    jobs       jsonb       NOT NULL
);
