-- What the history has to know of these staged jobs before they leave staging. Jobs of policies without a history are left out.
create or replace function _pasts_of(p_staged_ids bigint[])
returns past[] language sql stable as $$
  select array(
    select row(
        s.id, p.id, s.partition_id, coalesce(q.key, a.key), s.task_identifier, s.job_key, s.parked_job_id,
        -- a parked job has a new row in staging, whose times are those of its retry
        case when s.parked_job_id is null then s.created_at end, case when s.parked_job_id is null then s.run_at end,
        s.created_at, greatest(s.created_at, s.run_at), _trace_id_of(s.traceparent))::past
    from staged_jobs s
    left join partitions q on q.id = s.partition_id
    left join policy_tasks t on q.id is null and t.task_identifier = s.task_identifier
    join policies p on p.id = coalesce(q.policy_id, t.policy_id)
    -- the router has not made its partition yet
    left join lateral (
      select x.key from arrivals x
      where q.id is null and x.policy = p.name and x.partition_id = s.partition_id limit 1) a on true
    where s.id = any(p_staged_ids) and p.history_kept_for is not null);
$$;
