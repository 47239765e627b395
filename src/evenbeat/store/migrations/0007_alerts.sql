-- oldest code: 3
-- Runs that were too late to start, by the hour like the other outcomes.
ALTER TABLE evenbeat.outcomes ADD COLUMN missed bigint NOT NULL DEFAULT 0;

-- Recurring jobs that a rule about their latest runs is true of: found by the chore `figures`, which looks
-- at a job when it has run. `value` is its success rate, or how many times as long it takes.
CREATE TABLE evenbeat.job_alerts (
    job_id uuid             NOT NULL,
    rule   text             NOT NULL COLLATE "C",
    value  double precision NOT NULL,
    since  timestamptz      NOT NULL,
    PRIMARY KEY (job_id, rule)
);
