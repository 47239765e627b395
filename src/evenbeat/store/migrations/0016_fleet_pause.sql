-- oldest code: 3
-- One switch for everything: while there is a row that has not ended by itself, nothing is claimed. No job
-- and no queue is changed, so what was paused before is still paused after. Workers of older code do not
-- know of it.
CREATE TABLE evenbeat.fleet_pause (
    is_only   boolean     PRIMARY KEY DEFAULT true CHECK (is_only),
    reason    text        NOT NULL,
    paused_by text        NOT NULL,
    since     timestamptz NOT NULL,
    ends_at   timestamptz,
    CHECK (ends_at > since)
);
