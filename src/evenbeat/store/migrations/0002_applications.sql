-- oldest code: 1
-- The code that a worker runs: the application's name and version, and a fingerprint of the schedules
-- that it declares. During a deploy, older code leaves schedules to newer code.
ALTER TABLE evenbeat.workers ADD COLUMN application jsonb;
