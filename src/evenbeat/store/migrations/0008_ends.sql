-- oldest code: 3
-- Which errors are tried again, and until when a one-off job may start. Workers of older code do not know
-- these settings: they go by the task's own.
ALTER TABLE evenbeat.jobs
    ADD COLUMN retry_on text[],
    ADD COLUMN never_retry text[],
    ADD COLUMN expires_seconds double precision,
    -- Of a job that runs after others: the plan of the run that started it.
    ADD COLUMN predecessor_plan_time timestamptz;
-- The plan of the run that ended as wanted.
ALTER TABLE evenbeat.dependencies ADD COLUMN plan_time timestamptz;

-- What a handler reported by names of its own.
ALTER TABLE evenbeat.executions ADD COLUMN figures jsonb;
