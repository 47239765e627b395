-- oldest code: 3
-- What a second call comes to: the job of the first, for a period, or while that waits. Processes of older
-- code add jobs without a key.
ALTER TABLE evenbeat.jobs
    ADD COLUMN unique_for_seconds   double precision,
    ADD COLUMN unique_by            text[],
    ADD COLUMN throttle_seconds     double precision,
    ADD COLUMN debounce_seconds     double precision,
    ADD COLUMN debounce_max_seconds double precision,
    ADD COLUMN unique_key           text COLLATE "C";

-- A key is taken from a job whose period is over when somebody asks for it. A debounced job leaves the
-- index when it starts, and does not come back for its retries.
CREATE UNIQUE INDEX jobs_unique ON evenbeat.jobs (unique_key)
    WHERE unique_key IS NOT NULL AND (debounce_seconds IS NULL OR run_count = 0);
