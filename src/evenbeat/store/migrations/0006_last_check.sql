-- oldest code: 3
-- When a worker last looked for due jobs: a heartbeat alone does not say that it does.
ALTER TABLE evenbeat.workers ADD COLUMN checked_at timestamptz;
