-- A bypassing retry counts as in flight while it runs: it takes its partition's slots, past their limits and without
-- tokens. Called before the task runs; the job's release gives them back.
create or replace function :DISPATCH_POLICY_SCHEMA._hold_slot(
  p_policy text, p_partition_key text, p_job_id bigint, p_staged_id bigint, p_cost float8
) returns boolean language plpgsql as $$
declare
  v_partition_id uuid := :DISPATCH_POLICY_SCHEMA._partition_id(p_policy, p_partition_key);
  v_locked_ids bigint[] := :DISPATCH_POLICY_SCHEMA._lock_limiters(array[v_partition_id]);
  v_limiter_ids bigint[] := array(
    select l.id from :DISPATCH_POLICY_SCHEMA._private_limiters l
    where l.id = any(v_locked_ids) and l.kind <> 'throttle');
begin
  insert into :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs (
    job_id, staged_id, policy_id, partition_id, limiter_ids, cost, admitted_at)
  select p_job_id, p_staged_id, p.policy_id, p.id, v_limiter_ids, p_cost, clock_timestamp()
  from :DISPATCH_POLICY_SCHEMA._private_partitions p where p.id = v_partition_id
  on conflict (job_id) do nothing;
  if not found then
    return false;
  end if;
  update :DISPATCH_POLICY_SCHEMA._private_limiters l set in_flight = l.in_flight + 1 where l.id = any(v_limiter_ids);
  return true;
end
$$;
