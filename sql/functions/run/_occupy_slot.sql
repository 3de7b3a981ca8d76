-- Occupies slots for a job that starts past its gates: past the limits, and without tokens. So a retry that bypasses the
-- gates counts in flight while it runs. Called before the task runs; the job's release frees the slots. A job that
-- replaced an admitted one, in its row and under its key, occupies that one's slots as well.
create or replace function _occupy_slot(
  p_policy text, p_partition_key text, p_job_id bigint, p_staged_id bigint, p_revision int, p_cost float8
) returns void language plpgsql as $$
declare
  v_partition_id uuid := _partition_id(p_policy, p_partition_key);
  v_limiter_ids bigint[] := array(
    select l.id from unnest(_lock_limiters(_limiters_of(array[v_partition_id]))) l
    where not l.by_tokens);
  v_occupied_ids bigint[];
begin
  select f.limiter_ids into v_occupied_ids from in_flight_jobs f
  where f.job_id = p_job_id for update;
  insert into in_flight_jobs as f (
    job_id, staged_id, admission, revision, policy_id, partition_id, limiter_ids, cost, paid, admitted_at)
  select p_job_id, p_staged_id, _admission_now(), p_revision, p.policy_id, p.id,
    array(select unnest(v_occupied_ids) union select unnest(v_limiter_ids)), p_cost, '{"cost": 0}', clock_timestamp()
  from partitions p where p.id = v_partition_id
  on conflict (job_id) do update set
    staged_id = excluded.staged_id, admission = excluded.admission, revision = excluded.revision, attempt = null,
    pool_id = null, started_at = null, missing_since = null, cancelled_at = null, cancelled_by = null, cancel_reason = null,
    policy_id = excluded.policy_id, partition_id = excluded.partition_id,
    limiter_ids = excluded.limiter_ids, cost = excluded.cost, paid = excluded.paid, admitted_at = excluded.admitted_at;
  update limiters l set in_flight = l.in_flight + 1
  where l.id = any(v_limiter_ids) and (l.id = any(v_occupied_ids)) is not true;
end
$$;
