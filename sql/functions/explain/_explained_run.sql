-- The state of a job that does not wait in staging, by its staged id or Graphile Worker's, as json. One that has failed for
-- good has no slot: policy and partition are those of the view `jobs`.
create or replace function _explained_run(p_id bigint)
returns jsonb language sql stable as $$
  select coalesce((
    select jsonb_build_object(
      'state', case when j.locked_at is not null then 'running' when j.attempts >= j.max_attempts then 'failed'
        when f.job_id is not null then 'admitted' else 'plain' end,
      'id', coalesce(f.staged_id::text, j.id::text), 'job_id', j.id::text,
      'policy', coalesce(p.name, v.policy), 'partition', coalesce(q.key, v.partition),
      'task_identifier', j.task_identifier, 'run_at', j.run_at, 'attempts', j.attempts, 'started_at', j.locked_at,
      'worker_id', j.locked_by, 'error', j.last_error,
      'trace_id', _trace_id_of(_traceparent_of(j.flags)),
      'cancelled', case when f.cancelled_at is not null
        then jsonb_build_object('at', f.cancelled_at, 'by', f.cancelled_by, 'reason', f.cancel_reason) end)
    from (
      select x.id from (select p_id as id union all
        select f.job_id from in_flight_jobs f where f.staged_id = p_id) x
    ) i
    join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = i.id
    left join in_flight_jobs f on f.job_id = j.id
    left join policies p on p.id = f.policy_id
    left join partitions q on q.id = f.partition_id
    left join lateral (   -- else it read all jobs
      select x.policy, x.partition from :DISPATCH_POLICY_SCHEMA.jobs x where x.id = j.id and x.state = 'failed' limit 1
    ) v on true
    limit 1
  ), jsonb_build_object('state', 'unknown', 'id', p_id::text));
$$;
