-- Takes the place of 0001 in a database whose schema was made by the twelve migrations of the time
-- before the first release: the same tables, three of whose columns have other names.
ALTER TABLE evenbeat.jobs RENAME COLUMN aged TO aging_bonus;
ALTER TABLE evenbeat.jobs RENAME COLUMN releases TO release_count;
ALTER TABLE evenbeat.jobs RENAME COLUMN tick_plans TO burst_count;
ALTER TABLE evenbeat.executions RENAME COLUMN releases TO release_count;
DELETE FROM evenbeat.migrations;
