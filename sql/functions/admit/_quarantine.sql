-- Quarantines a job, still staged. If it waits for another transaction, all of `p_among` are quarantined that wait for the
-- same. Returns these, also those that another session has locked: they stay due. Under strict order the others of their
-- partitions wait for them.
create or replace function _quarantine(
  p_staged_id bigint, p_among bigint[], p_error text, p_locks boolean, p_now timestamptz
) returns bigint[] language sql volatile as $$
  -- It leaves jobs that another session has locked: it runs while an error is handled, and must not fail.
  with same as materialized (
    select s.id from staged_jobs s
    join staged_jobs x on x.id = p_staged_id
    where s.id = any(p_among) and (s.id = x.id
      or (p_locks and x.job_key is null and x.parked_job_id is null and case when x.queue_name is null
        then s.task_identifier = x.task_identifier else s.queue_name = x.queue_name end))
  ),
  quarantined as (
    update staged_jobs s set
      due = false, failures = least(s.failures + 1, 30000), error = p_error,
      sort_at = case when exists (
          select from partitions q
          join policies p on p.id = q.policy_id
          where q.id = s.partition_id and p.job_order = 'strict') then '-infinity' else s.sort_at end,
      retry_at = p_now + case when p_locks
        then least(interval '50 milliseconds' * power(2, least(s.failures, 10)), interval '1 second')
        else _quarantine_for(s.failures) end
    where s.id = any(array(
      select y.id from staged_jobs y
      where y.id in (select m.id from same m) for update skip locked))
  )
  select array(select m.id from same m);
$$;
