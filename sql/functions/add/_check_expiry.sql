-- Raises unless there is a time, or null, for each job, and the task of each job with a time has a policy.
create or replace function _check_expiry(
  p_specs :GRAPHILE_WORKER_SCHEMA.job_spec[], p_expires_at timestamptz[]
) returns void language plpgsql as $$
begin
  if cardinality(p_expires_at) <> cardinality(p_specs) then
    raise exception 'dispatch_policy: expires_at has % entries, specs has %; expected one time (or null) per job',
      cardinality(p_expires_at), cardinality(p_specs) using errcode = 'DPARG';
  end if;
  perform _refuse_expiry(s.identifier, s.expires_at)
  from rows from (unnest(p_specs), unnest(p_expires_at))
    s (identifier, payload, queue_name, run_at, max_attempts, job_key, priority, flags, expires_at)
  where s.expires_at is not null and not exists (
    select from policy_tasks t where t.task_identifier = s.identifier);
end
$$;
