-- Jobs that run after others, and templates of jobs.

-- One row for each job that another waits for. There is no foreign key: it would cost every update
-- of a job a look. What is waited for is locked when a row is made, and looked at when it is deleted.
CREATE TABLE evenbeat.dependencies (
    job_id         uuid        NOT NULL,
    predecessor_id uuid        NOT NULL,
    wanted         text        NOT NULL COLLATE "C",
    position       smallint    NOT NULL,
    created_at     timestamptz NOT NULL,

    -- When it last ended as wanted, since the job's last start; `fresh`: and has started nothing yet.
    -- Of a job that has ended for good, the mark outlasts the start.
    satisfied_at   timestamptz,
    fresh          boolean     NOT NULL DEFAULT false,

    -- How it last ended, as wanted or not.
    last_end       text        COLLATE "C",
    last_end_at    timestamptz,

    PRIMARY KEY (predecessor_id, job_id),
    CONSTRAINT wanted_is_known CHECK (wanted IN ('success', 'failure', 'any')),
    CONSTRAINT end_is_known CHECK (last_end IN ('completed', 'failed', 'cancelled')),
    CONSTRAINT fresh_is_satisfied CHECK (NOT fresh OR satisfied_at IS NOT NULL)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- What one job waits for.
CREATE UNIQUE INDEX dependencies_of ON evenbeat.dependencies (job_id, predecessor_id);

-- Marks that have started nothing yet.
CREATE INDEX dependencies_fresh ON evenbeat.dependencies (job_id) WHERE fresh;

-- Rows that no end has reached, by age: an end during which a row was made did not see it.
CREATE INDEX dependencies_untouched ON evenbeat.dependencies (created_at)
    WHERE last_end_at IS NULL AND satisfied_at IS NULL;

-- Jobs that wait for others have no time, so no lane has them. With this index, lists find every job
-- in one partial index or another (see 0003).
CREATE INDEX jobs_awaiting ON evenbeat.jobs (queue, task)
    WHERE status = 'pending' AND next_run_at IS NULL;

-- Definitions of jobs with holes in them.
CREATE TABLE evenbeat.templates (
    name        text        PRIMARY KEY COLLATE "C",
    description text,
    parameters  jsonb       NOT NULL,
    body        jsonb       NOT NULL,
    version     integer     NOT NULL DEFAULT 1,
    created_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL,
    created_by  text,

    CONSTRAINT name_is_not_empty CHECK (name <> '')
);
