-- oldest code: 3
-- What the runs of one occurrence have done for good: results of steps, sleeps, and events that were
-- waited for or came before anybody did. The key has no surprise in it: the second wait for "approved"
-- is the event "approved" number 2, whichever of both comes first.
CREATE TABLE evenbeat.steps (
    job_id           uuid        NOT NULL,
    plan_time        timestamptz NOT NULL,
    kind             text        NOT NULL COLLATE "C" CHECK (kind IN ('step', 'sleep', 'event')),
    name             text        NOT NULL COLLATE "C",
    number           integer     NOT NULL,
    execution_id     uuid,                    -- the run that did it, or came to it first
    execution_number integer,
    started_at       timestamptz,             -- of an event: since when a run has waited for it
    until            timestamptz,
    completed_at     timestamptz,
    timed_out        boolean     NOT NULL DEFAULT false,
    result           jsonb,
    sent_by          text,

    PRIMARY KEY (job_id, plan_time, kind, name, number),
    CONSTRAINT only_events_come_before_they_are_waited_for CHECK (
        started_at IS NOT NULL AND execution_id IS NOT NULL
        OR kind = 'event' AND completed_at IS NOT NULL)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
