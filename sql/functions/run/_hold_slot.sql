-- A bypassing retry counts as in flight while it runs: it takes its partition's slots, past their limits and without
-- tokens. Called before the task runs; the job's release gives them back. A job that took the place of an admitted one, in
-- its row under its key, has that one's slots as well, and holds both.
create or replace function :DISPATCH_POLICY_SCHEMA._hold_slot(
  p_policy text, p_partition_key text, p_job_id bigint, p_staged_id bigint, p_revision int, p_cost float8
) returns void language plpgsql as $$
declare
  v_partition_id uuid := :DISPATCH_POLICY_SCHEMA._partition_id(p_policy, p_partition_key);
  v_locked_ids bigint[] := :DISPATCH_POLICY_SCHEMA._lock_limiters(array[v_partition_id]);
  v_limiter_ids bigint[] := array(
    select l.id from :DISPATCH_POLICY_SCHEMA._private_limiters l
    where l.id = any(v_locked_ids) and not l.by_tokens);
  v_held_ids bigint[];
begin
  select f.limiter_ids into v_held_ids from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f
  where f.job_id = p_job_id for update;
  insert into :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs as f (
    job_id, staged_id, admission, revision, policy_id, partition_id, limiter_ids, cost, admitted_at)
  select p_job_id, p_staged_id, :DISPATCH_POLICY_SCHEMA._admission_now(), p_revision, p.policy_id, p.id,
    array(select unnest(v_held_ids) union select unnest(v_limiter_ids)), p_cost, clock_timestamp()
  from :DISPATCH_POLICY_SCHEMA._private_partitions p where p.id = v_partition_id
  on conflict (job_id) do update set
    staged_id = excluded.staged_id, admission = excluded.admission, revision = excluded.revision, attempt = null,
    pool_id = null, started_at = null, missing_since = null, policy_id = excluded.policy_id, partition_id = excluded.partition_id,
    limiter_ids = excluded.limiter_ids, cost = excluded.cost;
  update :DISPATCH_POLICY_SCHEMA._private_limiters l set in_flight = l.in_flight + 1
  where l.id = any(v_limiter_ids) and (l.id = any(v_held_ids)) is not true;
end
$$;
