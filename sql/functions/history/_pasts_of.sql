-- What the history has to know of these staged jobs before they leave staging. Jobs of policies without a history are left out.
create or replace function :DISPATCH_POLICY_SCHEMA._pasts_of(p_staged_ids bigint[])
returns :DISPATCH_POLICY_SCHEMA._private_past[] language sql stable as $$
  select array(
    select row(
        s.id, p.id, s.partition_id, coalesce(q.key, a.key), s.task_identifier, s.job_key, s.parked_job_id,
        -- a parked job has a new row in staging, whose times are those of its retry
        case when s.parked_job_id is null then s.created_at end, case when s.parked_job_id is null then s.run_at end,
        s.created_at, greatest(s.created_at, s.run_at), :DISPATCH_POLICY_SCHEMA._trace_id_of(s.traceparent)):::DISPATCH_POLICY_SCHEMA._private_past
    from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s
    left join :DISPATCH_POLICY_SCHEMA._private_partitions q on q.id = s.partition_id
    left join :DISPATCH_POLICY_SCHEMA._private_policy_tasks t on q.id is null and t.task_identifier = s.task_identifier
    join :DISPATCH_POLICY_SCHEMA._private_policies p on p.id = coalesce(q.policy_id, t.policy_id)
    -- the router has not made its partition yet
    left join lateral (
      select x.key from :DISPATCH_POLICY_SCHEMA._private_arrivals x
      where q.id is null and x.policy = p.name and x.partition_id = s.partition_id limit 1) a on true
    where s.id = any(p_staged_ids) and p.history_kept_for is not null);
$$;
