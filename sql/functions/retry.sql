-- Failed jobs, once Graphile Worker has recorded their failure (events, last_error and attempts are its own): park
-- them inside Graphile Worker (run_at infinity, the last priority: parked at 0 they slowed every fetch of a later
-- priority) and stage a row that refers to each, due at its back-off time. Returns the jobs that are still locked, whose
-- failure is about to be recorded.
create or replace function :DISPATCH_POLICY_SCHEMA._retry(
  p_jobs :DISPATCH_POLICY_SCHEMA._private_finished_job[], p_now timestamptz
) returns bigint[] language plpgsql as $$
declare
  v_locked bigint[];
  v_parked bigint[];
begin
  select coalesce(array_agg(j.id) filter (where j.locked_at is not null), '{}'),
    coalesce(array_agg(j.id order by j.id) filter (where j.locked_at is null
      and (j.attempts < j.max_attempts
        -- one that was removed meanwhile has used up its attempts, and lost its key
        or (f.retry ->> 'giveBack' is not null and j.attempts = (f.retry ->> 'attempt')::int
          and j.key is not distinct from f.retry ->> 'jobKey'))
      and (f.retry ->> 'after') is not null and (f.retry ->> 'native') is null
      -- a job that holds nothing (its row was swept, or it was retried past the gates) could not be admitted again
      and exists (select from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs i where i.job_id = j.id)), '{}')
  into v_locked, v_parked
  from unnest(p_jobs) f
  join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = f.job
  where f.retry is not null;
  with parked as materialized (
    select j.id from :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(v_parked, run_at => 'infinity', priority => 32767) j
  ),
  due as materialized (
    select f.job, i.staged_id, i.policy_id, i.cost, p.name as policy, f.retry,
      p_now + make_interval(secs => (f.retry ->> 'after')::float8) as run_at,
      coalesce((f.retry ->> 'priority')::smallint, 0::smallint) as priority,
      coalesce(f.retry #>> '{move,key}', q.key) as key, q.shard
    from parked k
    join unnest(p_jobs) f on f.job = k.id
    join :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs i on i.job_id = k.id
    join :DISPATCH_POLICY_SCHEMA._private_policies p on p.id = i.policy_id
    join :DISPATCH_POLICY_SCHEMA._private_partitions q on q.id = i.partition_id
  ),
  staged as (
    insert into :DISPATCH_POLICY_SCHEMA._private_staged_jobs (
      id, partition_id, task_identifier, payload, queue_name, run_at, max_attempts, priority, cost, due, parked_job_id)
    overriding system value
    select d.staged_id, :DISPATCH_POLICY_SCHEMA._partition_id(d.policy, d.key), d.retry ->> 'task', '{}',
      d.retry ->> 'queueName', d.run_at, (d.retry ->> 'maxAttempts')::smallint, d.priority,
      coalesce((d.retry #>> '{move,cost}')::float8, d.cost), d.run_at <= p_now, d.job
    from due d
    on conflict (id) do nothing   -- parked by the flush before, which left what it holds
    returning *
  ),
  told as materialized (
    select :DISPATCH_POLICY_SCHEMA._notify(d.policy), :DISPATCH_POLICY_SCHEMA._count_pending(d.policy, d.jobs)
    from (select due.policy, count(*)::int as jobs from due group by due.policy) d
  )
  insert into :DISPATCH_POLICY_SCHEMA._private_arrivals (
    policy, partition_id, key, shard, version, context, weight, limits, due_at, head_priority, head_run_at, head_id,
    min_cost)
  select d.policy, s.partition_id, d.key, coalesce(d.retry #>> '{move,shard}', d.shard),
    -- where the job moves to, its context and limits count for a partition that is new: no other arrival is older
    case when d.retry #> '{move,key}' is null then 0 else -2147483648 end, (d.retry #> '{move,context}')::jsonb,
    (d.retry #>> '{move,weight}')::float8, (d.retry #> '{move,limits}')::jsonb,
    date_trunc('milliseconds', s.run_at),
    case when s.due then s.priority else 32767 end, case when s.due then s.run_at else 'infinity' end,
    case when s.due then s.id else 9223372036854775807 end, s.cost
  from staged s join due d on d.staged_id = s.id
  where (select count(*) from told) >= 0;
  -- a run that was told to come back later was no attempt
  perform :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(array[j.id], attempts => j.attempts - 1)
  from unnest(p_jobs) f join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = f.job
  where f.retry ->> 'giveBack' is not null and j.id = any(v_parked);
  -- give up: with Graphile Worker's own message of the failure
  perform :GRAPHILE_WORKER_SCHEMA.permanently_fail_jobs(array[j.id], j.last_error)
  from unnest(p_jobs) f join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = f.job
  where f.retry ->> 'giveUp' is not null and j.locked_at is null;
  -- a bypassing retry waits in Graphile Worker, under the policy's own back-off
  perform :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(
    array[j.id], run_at => p_now + make_interval(secs => (f.retry ->> 'after')::float8))
  from unnest(p_jobs) f join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = f.job
  where f.retry ->> 'native' is not null and j.locked_at is null and j.attempts < j.max_attempts;
  return v_locked;
end
$$;
