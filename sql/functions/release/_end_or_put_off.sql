-- Failed jobs that are given up fail for good, with Graphile Worker's own message of the failure; a retry past the gates
-- waits in Graphile Worker, under the policy's own back-off. Returns those that another transaction is at.
create or replace function :DISPATCH_POLICY_SCHEMA._end_or_put_off(
  p_jobs :DISPATCH_POLICY_SCHEMA._private_finished_job[], p_now timestamptz
) returns bigint[] language plpgsql
set lock_timeout = '5ms' as $$
declare
  v_job record;
  v_left bigint[] := '{}';
begin
  for v_job in
    select j.id, j.revision, j.last_error, (f.retry)."giveUp" is true as gives_up, (f.retry).after as seconds
    from unnest(p_jobs) f join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = f.job
    where j.locked_at is null
      -- the next job of its key may have got the row: it has not failed
      and j.attempts = (f.retry).attempt and j.last_error is not null
      and ((f.retry)."giveUp" or ((f.retry).native and j.attempts < j.max_attempts))
  loop
    begin
      continue when :DISPATCH_POLICY_SCHEMA._lock_in_revision(array[v_job.id], array[v_job.revision]) = '{}';
      if v_job.gives_up then
        perform :GRAPHILE_WORKER_SCHEMA.permanently_fail_jobs(array[v_job.id], v_job.last_error);
      else
        perform :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(
          array[v_job.id], run_at => p_now + :DISPATCH_POLICY_SCHEMA._wait(v_job.seconds));
      end if;
    exception when lock_not_available then
      v_left := v_left || v_job.id;
    end;
  end loop;
  return v_left;
end
$$;
