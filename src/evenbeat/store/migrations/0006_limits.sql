-- Limits: how many jobs with one key may run at once, and how often one may start.

ALTER TABLE evenbeat.jobs
    ADD COLUMN concurrency_key   text COLLATE "C",
    ADD COLUMN concurrency_limit integer,
    ADD COLUMN rate_limit        text;

-- A key as it stands: what the newest job asked for, or what an operator has set (`is_set`). How many
-- run is not kept here: the running rows are the truth, whatever dies. `next_start_at` is the state
-- of the token bucket: a token comes every `step_us`, and at most `burst` of them are saved up.
CREATE TABLE evenbeat.limits (
    key           text        PRIMARY KEY COLLATE "C" CHECK (key <> ''),
    max_running   integer     CHECK (max_running >= 1),
    rate_limit    text,
    burst         integer     CHECK (burst >= 1),
    step_us       bigint      CHECK (step_us >= 1),
    next_start_at timestamptz,
    is_set        boolean     NOT NULL DEFAULT false,
    updated_at    timestamptz NOT NULL,

    CONSTRAINT a_rate_has_a_bucket CHECK (
        (rate_limit IS NULL) = (burst IS NULL) AND (rate_limit IS NULL) = (step_us IS NULL)
        AND (rate_limit IS NULL) = (next_start_at IS NULL))
) WITH (fillfactor = 50);

-- Keys that may start again soon, or have just become free to.
CREATE INDEX limits_by_start ON evenbeat.limits (next_start_at) WHERE next_start_at IS NOT NULL;

-- Jobs with a key have lanes of their own, so that neither kind weighs on the claim of the other.
DROP INDEX evenbeat.jobs_lanes;
CREATE INDEX jobs_lanes ON evenbeat.jobs (queue, task, priority, next_run_at)
    WHERE concurrency_key IS NULL AND status IN ('pending', 'scheduled') AND next_run_at IS NOT NULL;
CREATE INDEX jobs_limited_lanes ON evenbeat.jobs (queue, task, priority, next_run_at)
    INCLUDE (concurrency_key)
    WHERE concurrency_key IS NOT NULL AND status IN ('pending', 'scheduled')
          AND next_run_at IS NOT NULL;

-- The same jobs key by key: what waits behind one, however much waits behind the others.
CREATE INDEX jobs_limited ON evenbeat.jobs (concurrency_key, queue, task, priority, next_run_at)
    WHERE concurrency_key IS NOT NULL AND status IN ('pending', 'scheduled')
          AND next_run_at IS NOT NULL;

-- How many of a key run.
CREATE INDEX jobs_limited_running ON evenbeat.jobs (concurrency_key)
    WHERE concurrency_key IS NOT NULL AND status = 'running';
