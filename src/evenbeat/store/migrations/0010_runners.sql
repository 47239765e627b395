-- oldest code: 3
-- How full each runner of a worker is, and which ended runs still hold a thread (`RunnerLoad`).
ALTER TABLE evenbeat.workers ADD COLUMN runners jsonb NOT NULL DEFAULT '[]';
