-- oldest code: 3
-- Fair turns: jobs with a fair key wait apart from the others, so that those do not pay for it. Workers
-- of older code take jobs in the order of time whatever their fair keys, and find no index for that: each
-- of their claims reads the table until they are replaced.
ALTER TABLE evenbeat.jobs
    ADD COLUMN fair_key    text     COLLATE "C",
    ADD COLUMN fair_weight smallint NOT NULL DEFAULT 1;

DROP INDEX evenbeat.jobs_lanes;
CREATE INDEX jobs_lanes ON evenbeat.jobs (queue, task, priority, next_run_at)
    WHERE concurrency_key IS NULL AND fair_key IS NULL
          AND status IN ('pending', 'scheduled') AND next_run_at IS NOT NULL;

CREATE INDEX jobs_fair_lanes ON evenbeat.jobs (queue, task, priority, next_run_at)
    WHERE fair_key IS NOT NULL AND status IN ('pending', 'scheduled') AND next_run_at IS NOT NULL;

-- Those that are due, key by key. A claim makes pending what was scheduled and has come due, so that a
-- million keys whose jobs are for tomorrow do not stand in its way.
CREATE INDEX jobs_fair ON evenbeat.jobs (queue, fair_key, task, priority, next_run_at)
    INCLUDE (fair_weight)
    WHERE fair_key IS NOT NULL AND starts_with(status, 'pending') AND next_run_at IS NOT NULL;

CREATE INDEX jobs_fair_later ON evenbeat.jobs (next_run_at)
    WHERE fair_key IS NOT NULL AND starts_with(status, 'scheduled');
