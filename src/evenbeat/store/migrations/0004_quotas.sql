-- oldest code: 3
-- How much memory (in bytes) and CPU time the processes of a run may take. Workers of older code do
-- not know these limits and keep none.
ALTER TABLE evenbeat.jobs
    ADD COLUMN memory_limit bigint,
    ADD COLUMN cpu_limit_seconds double precision;
