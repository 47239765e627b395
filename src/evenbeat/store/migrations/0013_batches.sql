-- oldest code: 3
-- Batches: jobs that belong together, and jobs that run after all of them (`dependencies`, where the
-- batch stands in the place of a predecessor).
CREATE TABLE evenbeat.batches (
    id          uuid        PRIMARY KEY,
    name        text        COLLATE "C",
    status      text        NOT NULL COLLATE "C",
    created_at  timestamptz NOT NULL,
    ended_at    timestamptz,
    parent_id   uuid,                        -- the batch that it is a part of
    callback_id uuid,                        -- the job that was added with it, to run after it
    created_by  text,

    -- How many of its jobs are in each state, as of the last count.
    counts      jsonb       NOT NULL DEFAULT '{}',
    counted_at  timestamptz,                 -- null once it has ended, until it is counted again

    CONSTRAINT status_is_known CHECK (
        status IN ('open', 'running', 'completed', 'failed', 'cancelled')),
    CONSTRAINT ended_when_over CHECK (
        (ended_at IS NULL) = (status IN ('open', 'running')))
);

-- Those that are looked at: not over, or not counted since they are.
CREATE INDEX batches_at_work ON evenbeat.batches (id)
    WHERE ended_at IS NULL OR counted_at IS NULL;
CREATE INDEX batches_ended ON evenbeat.batches (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX batches_name ON evenbeat.batches (name, id) WHERE name IS NOT NULL;
CREATE INDEX batches_parent ON evenbeat.batches (parent_id) WHERE parent_id IS NOT NULL;
CREATE UNIQUE INDEX batches_callback ON evenbeat.batches (callback_id) WHERE callback_id IS NOT NULL;

-- Only members of a batch pay for the index: nothing counts them, whether any is left is looked up.
ALTER TABLE evenbeat.jobs ADD COLUMN batch_id uuid;
CREATE INDEX jobs_batch ON evenbeat.jobs (batch_id, status, id) WHERE batch_id IS NOT NULL;

-- A job may wait for any number of others; the next that is missing is found at once.
ALTER TABLE evenbeat.dependencies ALTER COLUMN position TYPE integer;
CREATE INDEX dependencies_missing ON evenbeat.dependencies (job_id) WHERE satisfied_at IS NULL;
