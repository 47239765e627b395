-- Placement: who was moved by whom, and how even the schedule has been.

-- Recurring jobs, newest placement last: the load model reads all of them every few minutes, and
-- between two such readings only what has been placed since. One-off jobs are not in it.
CREATE INDEX jobs_placed ON evenbeat.jobs (placed_at) WHERE schedule_kind IN ('interval', 'cron');

-- A rebalance as it was applied; `skipped` counts the jobs that stayed, by reason.
CREATE TABLE evenbeat.rebalances (
    id         uuid        PRIMARY KEY,
    created_at timestamptz NOT NULL,
    created_by text,
    moved      integer     NOT NULL DEFAULT 0,
    skipped    jsonb       NOT NULL DEFAULT '{}',
    old_score  double precision NOT NULL,
    new_score  double precision NOT NULL,
    old_peak   double precision NOT NULL,
    new_peak   double precision NOT NULL,
    undone_at  timestamptz,
    undone_by  text,
    restored   integer,

    CONSTRAINT undone_says_how_many CHECK ((undone_at IS NULL) = (restored IS NULL))
);

-- What undo needs to know of each moved job: where it was, and where it must still be.
CREATE TABLE evenbeat.rebalance_moves (
    rebalance_id  uuid        NOT NULL REFERENCES evenbeat.rebalances ON DELETE CASCADE,
    job_id        uuid        NOT NULL,
    name          text,
    old_time      timestamptz NOT NULL,
    new_time      timestamptz NOT NULL,
    old_anchor_at timestamptz NOT NULL,
    new_anchor_at timestamptz NOT NULL,
    old_placed_at timestamptz,
    restored      boolean     NOT NULL DEFAULT false,

    PRIMARY KEY (rebalance_id, job_id)
);

-- The course of the score, a row every five minutes.
CREATE TABLE evenbeat.distribution_history (
    at         timestamptz      PRIMARY KEY,
    score      double precision NOT NULL,
    peak_load  double precision NOT NULL,
    mean_load  double precision NOT NULL,
    total_jobs integer          NOT NULL
);
