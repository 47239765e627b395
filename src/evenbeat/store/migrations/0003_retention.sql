-- oldest code: 2
-- Jobs may say for how long their history is kept. Few do, so retention finds them by an index of
-- their own.
ALTER TABLE evenbeat.jobs ADD COLUMN retention_seconds double precision;
CREATE INDEX jobs_retention ON evenbeat.jobs (id) WHERE retention_seconds IS NOT NULL;
