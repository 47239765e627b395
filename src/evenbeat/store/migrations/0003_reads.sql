-- Reading at scale: outcomes counted once, jobs counted for all, what tasks there are, and indexes
-- that hold only the few rows somebody will look for.

-- What has ended, by the hour of its end and its task. The chore `figures` adds what ended since
-- it last looked; whole days of long ago are folded into one row at the epoch.
CREATE TABLE evenbeat.outcomes (
    hour        timestamptz      NOT NULL,
    task        text             NOT NULL COLLATE "C",
    completed   bigint           NOT NULL DEFAULT 0,
    failed      bigint           NOT NULL DEFAULT 0,
    cancelled   bigint           NOT NULL DEFAULT 0,
    lost        bigint           NOT NULL DEFAULT 0,
    duration_ms double precision NOT NULL DEFAULT 0,
    wait_ms     double precision NOT NULL DEFAULT 0,
    PRIMARY KEY (hour, task)
) WITH (fillfactor = 70);

-- Executions that were still running when the count passed them by.
CREATE TABLE evenbeat.uncounted (
    execution_id uuid PRIMARY KEY
);

-- How many jobs there are of each kind, as of the figure `job_counts`.
CREATE TABLE evenbeat.job_counts (
    status        text   NOT NULL COLLATE "C",
    queue         text   NOT NULL COLLATE "C",
    task          text   NOT NULL COLLATE "C",
    schedule_kind text   NOT NULL COLLATE "C",
    jobs          bigint NOT NULL,
    PRIMARY KEY (status, queue, task, schedule_kind)
);

-- What the workers can run, so that a process without the handlers can offer it.
CREATE TABLE evenbeat.tasks (
    name       text        PRIMARY KEY COLLATE "C",
    queue      text        NOT NULL COLLATE "C",
    runner     text        NOT NULL CHECK (runner IN ('async', 'thread', 'process')),
    schema     jsonb       NOT NULL,
    doc        text        NOT NULL DEFAULT '',
    defaults   jsonb       NOT NULL DEFAULT '{}',
    updated_at timestamptz NOT NULL
);

-- Every update of a job that moves it on writes to all indexes that hold it, so one over all jobs
-- by (queue, task) costs a drain 13 %. Each job is in just one of the partial indexes on waiting,
-- running, paused and finished jobs instead, and a list asks them all.
CREATE INDEX jobs_paused ON evenbeat.jobs (queue, task) WHERE is_paused;

DROP INDEX evenbeat.jobs_finished;
CREATE INDEX jobs_finished ON evenbeat.jobs (status, queue, task, completed_at)
    WHERE status IN ('completed', 'failed', 'cancelled');

-- Jobs whose last run went wrong, newest first: what needs a person.
CREATE INDEX jobs_failing ON evenbeat.jobs (completed_at) WHERE error_message IS NOT NULL;

-- Only jobs with tags pay for this one.
CREATE INDEX jobs_tags ON evenbeat.jobs USING gin ((metadata -> 'tags') jsonb_path_ops)
    WHERE metadata ? 'tags';

-- Runs that ended with an error. A run that succeeds never changes the column, so it stays in its
-- place on the page (HOT) and out of the index.
CREATE INDEX executions_errors ON evenbeat.executions (id) WHERE error_code IS NOT NULL;
