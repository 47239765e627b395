-- oldest code: 2
-- Few jobs run off-peak; when the quiet hours change, they are found by an index of their own.
CREATE INDEX jobs_off_peak ON evenbeat.jobs (id) WHERE starts_with(execution_window, 'off_peak');
