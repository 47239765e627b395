-- oldest code: 3
-- What runs log, a few lines a row. `number` is that of the first of them; numbers that no row has were
-- left out. The ids of runs grow with time, so the oldest are found by the key.
CREATE TABLE evenbeat.run_logs (
    execution_id uuid    NOT NULL,
    number       integer NOT NULL CHECK (number > 0),
    lines        jsonb   NOT NULL CHECK (jsonb_typeof(lines) = 'array'),

    PRIMARY KEY (execution_id, number)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
