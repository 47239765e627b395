-- What is parsed for each statement had better be short (see 0011). Those that keep the states of a job
-- apart stay, in fewer words; so does the one that no schedule can be without. The priority's range is
-- checked before a job is written.
ALTER TABLE evenbeat.jobs
    DROP CONSTRAINT priority_in_range,
    DROP CONSTRAINT status_is_known,
    DROP CONSTRAINT schedule_is_complete,
    DROP CONSTRAINT running_has_lease_and_others_none,
    DROP CONSTRAINT paused_says_so,
    DROP CONSTRAINT only_waiting_or_running_is_paused,
    DROP CONSTRAINT scheduled_has_a_time,
    DROP CONSTRAINT due_has_a_plan,
    ADD CONSTRAINT status_is_known CHECK (
        status = ANY ('{pending,scheduled,running,paused,completed,failed,cancelled}'::text[])),
    ADD CONSTRAINT schedule_is_complete CHECK (
        (schedule_kind = 'interval') = (interval_seconds IS NOT NULL)
        AND (schedule_kind = 'cron') = (cron_expression IS NOT NULL)),
    ADD CONSTRAINT running_has_lease_and_others_none CHECK (
        num_nulls(lock_token, locked_by, lock_expires_at) = CASE status WHEN 'running' THEN 0 ELSE 3 END),
    ADD CONSTRAINT only_paused_or_running_is_paused CHECK (
        is_paused = (status = 'paused') OR is_paused AND status = 'running'),
    ADD CONSTRAINT scheduled_has_a_time_and_due_has_a_plan CHECK (
        (status <> 'scheduled' OR next_run_at IS NOT NULL)
        AND (next_run_at IS NULL OR plan_time IS NOT NULL));
