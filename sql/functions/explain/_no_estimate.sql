-- Why nobody can say when a job starts, whatever the pace, in words. Null: nothing forbids an estimate. `p_it` is what
-- _explained_wait says of the job, `p_stop` what stops its partition, and `p_first` whether none of its partition goes before.
create or replace function _no_estimate(
  p_it jsonb, p_stop jsonb, p_policy policies,
  p_partition partitions, p_job staged_jobs,
  p_first boolean, p_now timestamptz
) returns text language plpgsql stable as $$
begin
  return case
    when (p_job).partition_id is null then 'its partition is not worked out yet'
    -- for as long as the doctor waits for the crontab
    when p_it -> 'ticked_by' = 'null' and (p_policy).crontab_ticked_at < p_now - interval '5 minutes' then
      'neither a loop nor the crontab ticks its policy'
    when (p_partition).id is null then 'no tick has seen its partition yet'
    when p_stop ->> 'reason' = 'paused' and p_stop ->> 'until' is null then 'it is paused until resume'
    when (p_partition).probe_job_id is not null or ((p_partition).probing and not p_first) then
      'it waits for the end of the job that goes first after a hold'
    when p_it ->> 'reason' = 'strict_order' then 'the job that goes first may fail again'
    when (p_job).retry_at is not null then 'Graphile Worker did not take it, and may not at the next try'
    when exists (
      select from jsonb_array_elements(p_it -> 'gates') g where g ->> 'reason' in ('rate_zero', 'max_zero')
    ) then 'a limit of zero lets nothing go'
    when not isfinite((p_job).run_at) then 'it is never due' end;
end
$$;
