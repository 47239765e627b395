-- The ground: jobs (schedule and queue entry in one row), executions (their history), and the
-- small tables around them. `evenbeat.` is replaced by the configured schema when this is applied.

-- Ids that sort by time, so that newest-first listings need no index of their own.
CREATE FUNCTION evenbeat.uuid7(moment timestamptz) RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
    SELECT encode(
        set_bit(set_bit(
            overlay(uuid_send(gen_random_uuid())
                    PLACING substring(int8send((extract(epoch FROM moment) * 1000)::bigint) FROM 3)
                    FROM 1 FOR 6),
            52, 1), 53, 1),
        'hex')::uuid
$$;

-- The lowest id that `uuid7` can give for a moment: "older than" becomes a range of the primary key.
CREATE FUNCTION evenbeat.uuid7_floor(moment timestamptz) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (lpad(to_hex((extract(epoch FROM greatest(moment, 'epoch')) * 1000)::bigint), 12, '0')
            || '70008000000000000000')::uuid
$$;

CREATE TABLE evenbeat.jobs (
    id                      uuid        PRIMARY KEY,
    created_at              timestamptz NOT NULL,
    updated_at              timestamptz NOT NULL,

    -- The next occurrence: its nominal instant, and when it is due (delay, window, retry included).
    plan_time               timestamptz,
    next_run_at             timestamptz,

    -- The lease. The token is also the id of the execution it pays for.
    lock_token              uuid,
    locked_by               uuid,
    lock_acquired_at        timestamptz,
    lock_expires_at         timestamptz,

    -- What happened last.
    started_at              timestamptz,
    completed_at            timestamptz,
    paused_at               timestamptz,
    cancelled_at            timestamptz,
    average_duration_ms     double precision,
    run_count               integer     NOT NULL DEFAULT 0,
    current_retry_count     integer     NOT NULL DEFAULT 0,
    releases                integer     NOT NULL DEFAULT 0,
    tick_plans              smallint    NOT NULL DEFAULT 0,
    priority                smallint    NOT NULL DEFAULT 0,
    aged                    smallint    NOT NULL DEFAULT 0,
    is_paused               boolean     NOT NULL DEFAULT false,
    status                  text        NOT NULL COLLATE "C",

    -- What to run.
    task                    text        NOT NULL COLLATE "C",
    queue                   text        NOT NULL DEFAULT 'default' COLLATE "C",
    payload                 jsonb       NOT NULL DEFAULT '{}',

    -- When to run it.
    schedule_kind           text        NOT NULL DEFAULT 'once' COLLATE "C",
    schedule_version        integer     NOT NULL DEFAULT 0,
    interval_seconds        bigint,
    cron_expression         text,
    timezone                text        NOT NULL DEFAULT 'UTC',
    anchor_at               timestamptz,
    schedule_delay_seconds  double precision NOT NULL DEFAULT 0,
    execution_window        text,
    placement               text        COLLATE "C",
    placed_at               timestamptz,
    cost_ms                 double precision,
    catch_up                text        NOT NULL DEFAULT 'latest_only' COLLATE "C",
    catch_up_window_seconds double precision,
    max_plans_per_tick      smallint    NOT NULL DEFAULT 10,

    -- How it may fail.
    max_retries             integer     NOT NULL DEFAULT 3,
    retry_backoff_seconds   double precision NOT NULL DEFAULT 60,
    retry_cap_seconds       double precision NOT NULL DEFAULT 3600,
    retry_jitter            double precision NOT NULL DEFAULT 0.2,
    retry_delays_seconds    double precision[],
    on_failure              text        NOT NULL DEFAULT 'continue' COLLATE "C",
    timeout_seconds         double precision,
    lease_seconds           double precision,
    heartbeat_seconds       double precision,
    allow_stale_reentry     boolean     NOT NULL DEFAULT true,

    -- What it is called.
    name                    text        COLLATE "C",
    scope_kind              text        NOT NULL DEFAULT 'global' COLLATE "C",
    scope_id                text        NOT NULL DEFAULT 'global' COLLATE "C",
    dedup_key               text        COLLATE "C",
    parent_id               uuid,
    error_message           text,
    metadata                jsonb       NOT NULL DEFAULT '{}',
    created_by              text,

    CONSTRAINT status_is_known CHECK (status IN
        ('pending', 'scheduled', 'running', 'paused', 'completed', 'failed', 'cancelled')),
    CONSTRAINT running_has_lease_and_others_none CHECK (
        (status = 'running') = (lock_token IS NOT NULL)
        AND (lock_token IS NULL) = (lock_expires_at IS NULL)
        AND (lock_token IS NULL) = (locked_by IS NULL)),
    CONSTRAINT paused_says_so CHECK (status <> 'paused' OR is_paused),
    CONSTRAINT only_waiting_or_running_is_paused CHECK (NOT is_paused OR status IN ('paused', 'running')),
    CONSTRAINT scheduled_has_a_time CHECK (status <> 'scheduled' OR next_run_at IS NOT NULL),
    CONSTRAINT due_has_a_plan CHECK (next_run_at IS NULL OR plan_time IS NOT NULL),
    CONSTRAINT priority_in_range CHECK (priority BETWEEN 0 AND 100 AND aged BETWEEN 0 AND priority),
    CONSTRAINT schedule_is_complete CHECK (CASE schedule_kind
        WHEN 'interval' THEN interval_seconds IS NOT NULL AND interval_seconds >= 1 AND anchor_at IS NOT NULL
                             AND cron_expression IS NULL
        WHEN 'cron'     THEN cron_expression IS NOT NULL AND interval_seconds IS NULL
        WHEN 'once'     THEN cron_expression IS NULL AND interval_seconds IS NULL
        WHEN 'after'    THEN cron_expression IS NULL AND interval_seconds IS NULL
        ELSE false END),
    CONSTRAINT placement_is_known CHECK (placement IN ('balanced', 'grid', 'pinned')),
    CONSTRAINT catch_up_is_known CHECK (catch_up IN ('skip', 'latest_only', 'every_plan')),
    CONSTRAINT on_failure_is_known CHECK (on_failure IN ('continue', 'stop')),
    CONSTRAINT counts_are_not_negative CHECK (
        run_count >= 0 AND current_retry_count >= 0 AND max_retries >= 0 AND releases >= 0
        AND schedule_delay_seconds >= 0 AND max_plans_per_tick > 0),
    CONSTRAINT names_are_not_empty CHECK (task <> '' AND queue <> '' AND name <> '' AND dedup_key <> '')
) WITH (
    -- Finished rows are rewritten in place and the claim reads the front of an index that churns:
    -- leave room on the page and vacuum by the thousand, not by a share of a million.
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 1,
    autovacuum_analyze_scale_factor = 0.05
);

-- The claim: a lane is one (queue, task, priority), oldest due first. Only claimable rows are in
-- it, so neither history nor running jobs weigh on the claim.
CREATE INDEX jobs_lanes ON evenbeat.jobs (queue, task, priority, next_run_at)
    WHERE status IN ('pending', 'scheduled') AND next_run_at IS NOT NULL;

-- Running jobs by worker: the reaper's and the dashboard's view. The expiry is not in it, so a
-- renewal touches no index.
CREATE INDEX jobs_leases ON evenbeat.jobs (locked_by) WHERE status = 'running';

-- At most one live job for a key.
CREATE UNIQUE INDEX jobs_dedup ON evenbeat.jobs (dedup_key)
    WHERE dedup_key IS NOT NULL AND status IN ('pending', 'scheduled', 'running', 'paused');

-- One job for a name in a scope.
CREATE UNIQUE INDEX jobs_name ON evenbeat.jobs (name, scope_kind, scope_id) WHERE name IS NOT NULL;

-- One child for a plan of its parent (backfill).
CREATE UNIQUE INDEX jobs_child ON evenbeat.jobs (parent_id, plan_time) WHERE parent_id IS NOT NULL;

-- Finished jobs by age: retention, and lists of what failed.
CREATE INDEX jobs_finished ON evenbeat.jobs (status, completed_at)
    WHERE status IN ('completed', 'failed', 'cancelled');

CREATE TABLE evenbeat.executions (
    id               uuid        PRIMARY KEY,      -- the lease token of the claim that started it
    job_id           uuid        NOT NULL,
    plan_time        timestamptz NOT NULL,
    started_at       timestamptz NOT NULL,
    completed_at     timestamptz,
    worker_id        uuid        NOT NULL,
    duration_ms      double precision,
    wait_ms          double precision,
    cpu_time_ms      double precision,
    memory_peak_mb   real,
    rows_affected    bigint,
    execution_number integer     NOT NULL,
    retry_attempt    integer     NOT NULL DEFAULT 0,
    items_crawled    integer,
    items_indexed    integer,
    releases         integer     NOT NULL DEFAULT 0,
    status           text        NOT NULL COLLATE "C",
    error_code       text        COLLATE "C",
    error_message    text,
    stack_trace      text,
    progress         jsonb,
    result           jsonb,
    metadata         jsonb,

    CONSTRAINT status_is_known CHECK (status IN ('running', 'completed', 'failed', 'cancelled')),
    CONSTRAINT ended_when_not_running CHECK ((status = 'running') = (completed_at IS NULL)),
    -- The database itself refuses a doubled occurrence. Its index also lists a job's history by
    -- plan, newest first; a run handed back by a stopping worker frees its place by `releases`.
    CONSTRAINT one_run_per_attempt UNIQUE (job_id, plan_time, retry_attempt, releases)
) WITH (
    -- A row is written at the claim and once more at the end, on the same page (HOT).
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 1
);

CREATE TABLE evenbeat.workers (
    id                 uuid        PRIMARY KEY,
    host               text        NOT NULL,
    pid                integer     NOT NULL,
    process_started_at double precision NOT NULL,
    version            text        NOT NULL,
    queues             text[],
    tasks              text[],
    concurrency        integer     NOT NULL,
    running            integer     NOT NULL DEFAULT 0,
    status             text        NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'draining')),
    started_at         timestamptz NOT NULL,
    heartbeat_at       timestamptz NOT NULL
) WITH (fillfactor = 50);

-- A queue has a row only once somebody has paused it.
CREATE TABLE evenbeat.queues (
    name      text PRIMARY KEY COLLATE "C",
    paused_at timestamptz
);

-- Maintenance leases: at most one holder of a chore at a time, on any node.
CREATE TABLE evenbeat.chores (
    name        text PRIMARY KEY COLLATE "C",
    holder      uuid,
    expires_at  timestamptz NOT NULL,
    last_run_at timestamptz
);

-- Figures that are too dear to compute for every question, and counters that outlive processes.
CREATE TABLE evenbeat.figures (
    name       text PRIMARY KEY COLLATE "C",
    value      jsonb NOT NULL,
    updated_at timestamptz NOT NULL
) WITH (fillfactor = 50);
