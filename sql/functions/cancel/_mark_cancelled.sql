-- Marks the jobs in flight that a cancel is for, and notifies the worker pools, which tell those that run. A release ends
-- a marked job for good if it has failed, and a start that asks refuses to run it.
--
-- Jobs that have failed are marked as well, because the release of a failure may be under way, and stage the job again.
--
--   told    they run, and were not marked before
--   known   they run, and a cancel before has marked them
--   missed  a job was released, or started anew, before its row was locked: the caller looks again
create or replace function :DISPATCH_POLICY_SCHEMA._mark_cancelled(
  p_ids bigint[], p_policy text, p_partition text, p_by text, p_reason text,
  out told bigint[], out known bigint[], out missed boolean
) language plpgsql volatile as $$
declare
  v_seen bigint := (select count(*) from :DISPATCH_POLICY_SCHEMA._cancellable(p_ids, p_policy, p_partition) c);
  v_new bigint[];
begin
  select coalesce(array_agg(x.job_id) filter (where not x.marked), '{}'),
    coalesce(array_agg(x.job_id) filter (where not x.marked and x.runs), '{}'),
    coalesce(array_agg(x.job_id) filter (where x.marked and x.runs), '{}'),
    count(*) < v_seen
  into v_new, told, known, missed
  from (
    select f.job_id, f.cancelled_at is not null as marked, c.runs
    from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f
    join :DISPATCH_POLICY_SCHEMA._cancellable(p_ids, p_policy, p_partition) c
      on c.job_id = f.job_id and c.admission = f.admission
    order by f.job_id for update of f
  ) x;
  update :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f set
    cancelled_at = clock_timestamp(), cancelled_by = p_by, cancel_reason = p_reason
  where f.job_id = any(v_new);
  perform pg_notify('dispatch_policy', json_build_object(
    'schema', :'DISPATCH_POLICY_SCHEMA', 'policy', p.name, 'cancelled', true)::text)
  from :DISPATCH_POLICY_SCHEMA._private_policies p
  where p.id in (
    select f.policy_id from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f where f.job_id = any(told || known));
end
$$;
