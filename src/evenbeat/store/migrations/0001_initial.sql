-- The ground: jobs (schedule and queue entry in one row), executions (their history), and the
-- small tables around them. `evenbeat.` is replaced by the configured schema when this is applied.

-- Ids that sort by time, so that newest-first listings need no index of their own. A token must be
-- unique, not unguessable: where the server was built without a crypto library, `gen_random_uuid` reads
-- the system's random device for each id, which took a sixth of a claim.
CREATE FUNCTION evenbeat.uuid7(moment timestamptz) RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
    SELECT overlay(
        overlay(md5(random()::text || random()::text || pg_backend_pid()::text)
                PLACING lpad(to_hex((extract(epoch FROM moment) * 1000)::bigint), 12, '0') || '7'
                FROM 1 FOR 13)
        PLACING '8' FROM 17 FOR 1)::uuid
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
    release_count           integer     NOT NULL DEFAULT 0,  -- how often this occurrence was handed back
    burst_count             smallint    NOT NULL DEFAULT 0,  -- late plans run in a row, while it catches up
    priority                smallint    NOT NULL DEFAULT 0,
    aging_bonus             smallint    NOT NULL DEFAULT 0,  -- what aging has added to the priority
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

    -- What it shares with other jobs of the same key.
    concurrency_key         text        COLLATE "C",
    concurrency_limit       integer,
    rate_limit              text,

    -- What it is called.
    name                    text        COLLATE "C",
    scope_kind              text        NOT NULL DEFAULT 'global' COLLATE "C",
    scope_id                text        NOT NULL DEFAULT 'global' COLLATE "C",
    dedup_key               text        COLLATE "C",
    parent_id               uuid,
    error_message           text,
    metadata                jsonb       NOT NULL DEFAULT '{}',
    created_by              text,

    -- PostgreSQL parses every rule of a table for each statement that writes to it, so only those are
    -- here that keep the states of a job apart, in few words. Which words and numbers a definition may
    -- have is checked before it is written.
    CONSTRAINT status_is_known CHECK (
        status = ANY ('{pending,scheduled,running,paused,completed,failed,cancelled}'::text[])),
    CONSTRAINT schedule_is_complete CHECK (
        (schedule_kind = 'interval') = (interval_seconds IS NOT NULL)
        AND (schedule_kind = 'cron') = (cron_expression IS NOT NULL)),
    CONSTRAINT running_has_lease_and_others_none CHECK (
        num_nulls(lock_token, locked_by, lock_expires_at) = CASE status WHEN 'running' THEN 0 ELSE 3 END),
    CONSTRAINT only_paused_or_running_is_paused CHECK (
        is_paused = (status = 'paused') OR is_paused AND status = 'running'),
    CONSTRAINT scheduled_has_a_time_and_due_has_a_plan CHECK (
        (status <> 'scheduled' OR next_run_at IS NOT NULL)
        AND (next_run_at IS NULL OR plan_time IS NOT NULL))
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
    WHERE concurrency_key IS NULL AND status IN ('pending', 'scheduled') AND next_run_at IS NOT NULL;

-- Jobs with a concurrency key have lanes of their own, so that neither kind weighs on the claim of the
-- other.
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

-- Lists of jobs. Every update that moves a job on writes to all indexes that hold it, so one over all
-- jobs by (queue, task) would cost a drain 13 %. Each job is in just one of the partial indexes on waiting,
-- running, paused, finished and awaiting jobs instead, and a list asks them all.
CREATE INDEX jobs_paused ON evenbeat.jobs (queue, task) WHERE is_paused;

CREATE INDEX jobs_finished ON evenbeat.jobs (status, queue, task, completed_at)
    WHERE status IN ('completed', 'failed', 'cancelled');

-- Jobs that wait for others have no time, so no lane has them.
CREATE INDEX jobs_awaiting ON evenbeat.jobs (queue, task)
    WHERE status = 'pending' AND next_run_at IS NULL;

-- Jobs whose last run went wrong, newest first: what needs a person.
CREATE INDEX jobs_failing ON evenbeat.jobs (completed_at) WHERE error_message IS NOT NULL;

-- Only jobs with tags pay for this one.
CREATE INDEX jobs_tags ON evenbeat.jobs USING gin ((metadata -> 'tags') jsonb_path_ops)
    WHERE metadata ? 'tags';

-- Recurring jobs, newest placement last: the load model reads all of them every few minutes, and
-- between two such readings only what has been placed since. One-off jobs are not in it.
CREATE INDEX jobs_placed ON evenbeat.jobs (placed_at) WHERE schedule_kind IN ('interval', 'cron');

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
    release_count    integer     NOT NULL DEFAULT 0,
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
    -- plan, newest first; a run handed back by a stopping worker frees its place by `release_count`.
    CONSTRAINT one_run_per_attempt UNIQUE (job_id, plan_time, retry_attempt, release_count)
) WITH (
    -- Every row is written twice, at the claim and at the end. With half of a page kept free the second
    -- version always fits beside the first, so that no index is touched (HOT).
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 1
);

-- Runs that ended with an error. A run that succeeds never changes the column, so it stays in its
-- place on the page (HOT) and out of the index.
CREATE INDEX executions_errors ON evenbeat.executions (id) WHERE error_code IS NOT NULL;

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

-- concurrency keys -------------------------------------------------------------------------------

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

-- jobs that run after others ---------------------------------------------------------------------

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

-- templates --------------------------------------------------------------------------------------

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

-- placement --------------------------------------------------------------------------------------

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

-- counts -----------------------------------------------------------------------------------------

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

-- access -----------------------------------------------------------------------------------------

-- Issued tokens, so that they can be listed and revoked, and the one-time codes of login links. Neither
-- table holds a secret: of a code only its hash is stored, of a token nothing.
CREATE TABLE evenbeat.tokens (
    id          uuid        PRIMARY KEY,
    kind        text        NOT NULL CHECK (kind IN ('token', 'session')),
    subject     text        NOT NULL CHECK (length(subject) BETWEEN 1 AND 200),
    role        text        NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    created_at  timestamptz NOT NULL,
    created_by  text        NOT NULL CHECK (length(created_by) BETWEEN 1 AND 200),
    expires_at  timestamptz NOT NULL,
    revoked_at  timestamptz
);

CREATE INDEX tokens_expiry ON evenbeat.tokens (expires_at);
CREATE INDEX tokens_revoked ON evenbeat.tokens (id) WHERE revoked_at IS NOT NULL;

CREATE TABLE evenbeat.login_codes (
    code_hash   bytea       PRIMARY KEY CHECK (length(code_hash) = 32),
    subject     text        NOT NULL CHECK (length(subject) BETWEEN 1 AND 200),
    role        text        NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    created_at  timestamptz NOT NULL,
    expires_at  timestamptz NOT NULL CHECK (expires_at > created_at)
);

-- idempotent requests ----------------------------------------------------------------------------

-- Answers to requests that carried an Idempotency-Key, kept so that a repeated request changes
-- nothing and hears the same. A row is written in the transaction that adds the job.
CREATE TABLE evenbeat.idempotency_keys (
    principal   text        NOT NULL COLLATE "C",
    key         text        NOT NULL COLLATE "C",
    fingerprint bytea       NOT NULL,
    status      smallint,
    answer      text,
    created_at  timestamptz NOT NULL,
    PRIMARY KEY (principal, key)
);

-- Retention goes by age.
CREATE INDEX idempotency_keys_by_age ON evenbeat.idempotency_keys (created_at);

-- webhooks ---------------------------------------------------------------------------------------

CREATE TABLE evenbeat.webhooks (
    id               uuid        PRIMARY KEY,
    created_at       timestamptz NOT NULL,
    updated_at       timestamptz NOT NULL,
    created_by       text,
    url              text        NOT NULL,
    description      text        NOT NULL DEFAULT '',

    -- What it hears of; null means all of them.
    events           text[]      NOT NULL,
    job_id           uuid,
    tasks            text[],
    queues           text[],
    tags             text[],

    -- After a rotation the old secret signs along for a day.
    secret           text        NOT NULL,
    old_secret       text,
    old_secret_until timestamptz,

    enabled          boolean     NOT NULL DEFAULT true,
    disabled_reason  text,
    failing_since    timestamptz,

    CONSTRAINT something_is_heard CHECK (cardinality(events) > 0)
);

-- The end of a run asks for the endpoints of its job and for those of all jobs.
CREATE INDEX webhooks_of_job ON evenbeat.webhooks (job_id);

-- One row for each endpoint that is told. The payload is kept as text, so that what is sent is what
-- was stored. No foreign key to the endpoint: it would lock its row at the end of every run.
CREATE TABLE evenbeat.webhook_messages (
    id           uuid        PRIMARY KEY,
    webhook_id   uuid        NOT NULL,
    event        text        NOT NULL COLLATE "C",
    created_at   timestamptz NOT NULL,
    job_id       uuid,
    execution_id uuid,
    delivered_at timestamptz,
    attempts     integer     NOT NULL DEFAULT 0,
    payload      json        NOT NULL
) WITH (fillfactor = 90);

CREATE INDEX webhook_messages_of_endpoint ON evenbeat.webhook_messages (webhook_id, id);

-- What is not delivered, among millions that are: lists of what failed, and sending it again.
CREATE INDEX webhook_messages_undelivered ON evenbeat.webhook_messages (webhook_id, id)
    WHERE delivered_at IS NULL;

-- The id is that of the execution that made the attempt: one run, one entry.
CREATE TABLE evenbeat.webhook_deliveries (
    id          uuid        PRIMARY KEY,
    message_id  uuid        NOT NULL,
    attempt     integer     NOT NULL,
    started_at  timestamptz NOT NULL,
    duration_ms double precision,
    status_code smallint,
    response    text,
    error_code  text,
    error       text
);

CREATE INDEX webhook_deliveries_of_message ON evenbeat.webhook_deliveries (message_id, attempt);

-- Makes the job that delivers a message. While one lives there is no second: it is due at once.
-- The many retries are for workers that die; when to stop trying is for the task to say. At most ten
-- deliveries to one endpoint run at once, so that one that stalls cannot take up all workers.
CREATE FUNCTION evenbeat.send_webhook(message uuid, endpoint uuid, moment timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO evenbeat.jobs (id, created_at, updated_at, plan_time, next_run_at, status, task,
                               queue, payload, dedup_key, max_retries, created_by,
                               concurrency_key, concurrency_limit)
    VALUES (evenbeat.uuid7(moment), moment, moment, moment, moment, 'pending', 'evenbeat:webhook',
            'webhooks', jsonb_build_object('message', message), 'webhook:' || message, 100,
            'webhooks', 'webhook:' || endpoint, 10)
    ON CONFLICT (dedup_key)
        WHERE dedup_key IS NOT NULL AND status IN ('pending', 'scheduled', 'running', 'paused')
    DO UPDATE SET next_run_at = least(jobs.next_run_at, excluded.next_run_at)
    WHERE jobs.status IN ('pending', 'scheduled');
    PERFORM pg_notify(btrim('evenbeat.', '."'), 'due:webhooks');
END
$$;

-- Whoever stores a message has stored its delivery: no statement can do the one without the other.
CREATE FUNCTION evenbeat.webhook_message_stored() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM evenbeat.send_webhook(NEW.id, NEW.webhook_id, NEW.created_at);
    RETURN NULL;
END
$$;

CREATE TRIGGER send AFTER INSERT ON evenbeat.webhook_messages
FOR EACH ROW EXECUTE FUNCTION evenbeat.webhook_message_stored();

-- Stores a message for every endpoint that wants to hear of this end of a job, called for each by the
-- very statement that ends it. It tells neither payload nor metadata, which may hold secrets.
-- `run` is null for a job that was not running, `lasted` for a run that was cut off at `moment`.
CREATE FUNCTION evenbeat.tell_webhooks(what text, moment timestamptz, job uuid, run uuid,
                                       lasted double precision, code text, message text,
                                       next_run timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO evenbeat.webhook_messages (id, webhook_id, event, created_at, job_id, execution_id,
                                           payload)
    SELECT evenbeat.uuid7(moment), w.id, what, moment, job, run, json_build_object(
        'type', what,
        'timestamp', moment,
        'data', json_build_object(
            'job', json_build_object(
                'id', j.id, 'name', j.name, 'task', j.task, 'queue', j.queue,
                'scope', json_build_object('kind', j.scope_kind, 'id', j.scope_id),
                'tags', coalesce(j.metadata -> 'tags', '[]'), 'parent_id', j.parent_id),
            'execution', CASE WHEN e.id IS NOT NULL THEN json_build_object(
                'id', e.id, 'number', e.execution_number, 'attempt', e.retry_attempt + 1,
                'plan_time', e.plan_time, 'started_at', j.started_at, 'completed_at', moment,
                'duration_ms', round(coalesce(
                    lasted, extract(epoch FROM moment - j.started_at) * 1000)::numeric, 3),
                'error_code', code, 'error_message', message,
                'retry_at', CASE WHEN what = 'job.retrying' THEN next_run END) END))
    FROM evenbeat.jobs j
    LEFT JOIN evenbeat.executions e ON e.id = run
    CROSS JOIN LATERAL (
        SELECT * FROM evenbeat.webhooks WHERE job_id IS NULL AND enabled
        UNION ALL
        SELECT * FROM evenbeat.webhooks WHERE job_id = job AND enabled) w
    WHERE j.id = job AND j.task <> 'evenbeat:webhook'
      AND what = ANY (w.events)
      AND (w.tasks IS NULL OR j.task = ANY (w.tasks))
      AND (w.queues IS NULL OR j.queue = ANY (w.queues))
      AND (w.tags IS NULL OR j.metadata -> 'tags' ?| w.tags);
END
$$;

-- crawled sites ----------------------------------------------------------------------------------

-- A source is what is crawled again and again: a source_id, or the site where none was given.
CREATE TABLE evenbeat.sources (
    id            text        PRIMARY KEY COLLATE "C" CHECK (id <> ''),
    url           text        NOT NULL,
    name          text,
    payload       jsonb       NOT NULL,             -- how it was crawled last: the job's arguments
    queue         text        NOT NULL COLLATE "C",
    job_id        uuid        NOT NULL,             -- the job that crawled it last; it may be gone
    first_seen_at timestamptz NOT NULL,
    tried_at      timestamptz NOT NULL,
    crawled_at    timestamptz,                      -- the last crawl that succeeded
    queued_at     timestamptz,                      -- when it was last queued for being stale
    items_crawled integer     NOT NULL DEFAULT 0,
    items_indexed integer     NOT NULL DEFAULT 0
);

-- Which sources are stale.
CREATE INDEX sources_by_age ON evenbeat.sources ((coalesce(crawled_at, first_seen_at)));

CREATE TABLE evenbeat.documents (
    id            uuid        PRIMARY KEY,
    source        text        NOT NULL COLLATE "C" REFERENCES evenbeat.sources (id) ON DELETE CASCADE,
    key           text        NOT NULL COLLATE "C", -- the URL without what makes no difference
    url           text        NOT NULL,
    title         text        NOT NULL,
    text          text        NOT NULL,
    content_hash  bytea       NOT NULL CHECK (length(content_hash) = 32),
    depth         integer     NOT NULL CHECK (depth >= 0),
    job_id        uuid        NOT NULL,
    first_seen_at timestamptz NOT NULL,
    seen_at       timestamptz NOT NULL,
    changed_at    timestamptz NOT NULL,
    gone_at       timestamptz,
    search        tsvector    NOT NULL GENERATED ALWAYS AS (
        setweight(to_tsvector('pg_catalog.english', title), 'A')
        || setweight(to_tsvector('pg_catalog.english', text), 'B')) STORED,

    CONSTRAINT one_document_per_page UNIQUE (source, key),
    CONSTRAINT changed_between_first_and_last_sight
        CHECK (first_seen_at <= changed_at AND changed_at <= seen_at)
) WITH (
    -- Most pages are seen again and have not changed: leave room to note that on the same page.
    fillfactor = 80
);

-- What is gone is not searched.
CREATE INDEX documents_search ON evenbeat.documents USING gin (search) WHERE gone_at IS NULL;
CREATE INDEX documents_newest ON evenbeat.documents (changed_at DESC, id) WHERE gone_at IS NULL;
