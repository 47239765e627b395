-- oldest code: 3
-- Who changed what: an entry for each change that somebody asked for. `ids` are those of what was changed,
-- of which there may be up to a thousand.
CREATE TABLE evenbeat.audit_entries (
    id         uuid        PRIMARY KEY,
    created_at timestamptz NOT NULL,
    actor      text        NOT NULL,
    role       text        NOT NULL,
    via        text        NOT NULL,
    address    text,
    action     text        NOT NULL COLLATE "C",
    ids        uuid[]      NOT NULL,
    name       text,
    changed    integer     NOT NULL,
    before     jsonb,
    after      jsonb
);
CREATE INDEX audit_entries_by_time ON evenbeat.audit_entries (created_at);
CREATE INDEX audit_entries_ids ON evenbeat.audit_entries USING gin (ids);
