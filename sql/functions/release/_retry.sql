-- Parks failed jobs in Graphile Worker, once it has recorded their failure, and stages a row that refers to each, due at
-- its back-off time. Events, last_error and attempts stay Graphile Worker's own.
--
-- A parked job has run_at infinity and the last priority: at priority 0, parked jobs slowed every fetch of a later one.
-- Returns the jobs that the next flush must send again. These are jobs whose failure is about to be recorded, and jobs
-- that another transaction has locked.
create or replace function :DISPATCH_POLICY_SCHEMA._retry(
  p_jobs :DISPATCH_POLICY_SCHEMA._private_finished_job[], p_now timestamptz
) returns bigint[] language plpgsql as $$
declare
  v_locked bigint[];
  v_parked bigint[];
  v_tried bigint[];
  v_revisions int[];
begin
  select coalesce(array_agg(x.id) filter (where x.is_locked), '{}'),
    coalesce(array_agg(x.id order by x.lot) filter (where x.parks), '{}'),
    coalesce(array_agg(x.revision order by x.lot) filter (where x.parks), '{}')
  into v_locked, v_tried, v_revisions
  from (
    select j.id, j.revision, j.locked_at is not null as is_locked, j.locked_at is null
      and (j.attempts < j.max_attempts
        -- a job that was removed meanwhile has used up its attempts, and lost its key
        or ((f.retry)."giveBack" and j.attempts = (f.retry).attempt
          and j.key is not distinct from (f.retry)."jobKey"))
      and (f.retry).after is not null and (f.retry).native is not true
      -- A job without a slot was swept, or retried past the gates: it could not be admitted again.
      and h.job_id is not null as parks,
      random() as lot
    from unnest(p_jobs) f
    join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = f.job
    left join :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs h on h.job_id = f.job
    where f.retries and :DISPATCH_POLICY_SCHEMA._is_row_of((f.retry).revision, h.staged_id, j.revision, j.flags)
  ) x;
  v_parked := :DISPATCH_POLICY_SCHEMA._park(v_tried, v_revisions);
  v_locked := v_locked || array(select unnest(v_tried) except select unnest(v_parked));
  with parked as materialized (
    select u.id, u.revision from unnest(v_tried, v_revisions) u (id, revision) where u.id = any(v_parked)
  ),
  due as materialized (
    select f.job, k.revision, i.policy_id,
      -- a copy of the job, with its flags, may be staged under its id
      case when exists (
          select from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s
          where s.id = i.staged_id and s.parked_job_id is distinct from f.job)
        then nextval(pg_get_serial_sequence(format('%I._private_staged_jobs', :'DISPATCH_POLICY_SCHEMA'), 'id'))
        else i.staged_id end as staged_id, i.cost, p.name as policy, f.retry,
      :DISPATCH_POLICY_SCHEMA._sort_at_again(p.job_order, i.sort_at) as sort_at,
      p_now + :DISPATCH_POLICY_SCHEMA._wait((f.retry).after) as run_at,
      coalesce((f.retry).priority, 0::smallint) as priority,
      coalesce(((f.retry).move).key, q.key) as key, q.shard
    from parked k
    join unnest(p_jobs) f on f.job = k.id
    join :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs i on i.job_id = k.id
    join :DISPATCH_POLICY_SCHEMA._private_policies p on p.id = i.policy_id
    join :DISPATCH_POLICY_SCHEMA._private_partitions q on q.id = i.partition_id
  ),
  staged as (
    insert into :DISPATCH_POLICY_SCHEMA._private_staged_jobs as s (id, partition_id, task_identifier, payload, run_at,
      max_attempts, priority, cost, due, parked_job_id, parked_revision, sort_at)
    overriding system value
    select d.staged_id, :DISPATCH_POLICY_SCHEMA._partition_id(d.policy, d.key), (d.retry).task, '{}',
      d.run_at, (d.retry)."maxAttempts", d.priority, coalesce(((d.retry).move).cost, d.cost), d.run_at <= p_now, d.job,
      d.revision, d.sort_at
    from due d
    -- the flush before parked it and left its slot; or somebody retried it by hand, and it failed again
    on conflict (parked_job_id) where parked_job_id is not null do update set
      partition_id = excluded.partition_id, left_partition_id = s.partition_id, run_at = excluded.run_at,
      max_attempts = excluded.max_attempts, priority = excluded.priority, cost = excluded.cost, due = excluded.due,
      parked_revision = excluded.parked_revision, sort_at = excluded.sort_at, retry_at = null, failures = 0, error = null
    returning *, (xmax = 0) as fresh
  ),
  notified as materialized (
    select :DISPATCH_POLICY_SCHEMA._notify(d.policy), :DISPATCH_POLICY_SCHEMA._count_pending(d.policy, d.jobs)
    from (
      select d.policy, (count(*) filter (where s.fresh))::int as jobs
      from staged s join due d on d.job = s.parked_job_id group by d.policy
    ) d
  ),
  left_behind as materialized (
    select :DISPATCH_POLICY_SCHEMA._head_changed(
      array(select s.left_partition_id from staged s where s.left_partition_id <> s.partition_id), -1)
  )
  insert into :DISPATCH_POLICY_SCHEMA._private_arrivals overriding user value
  select a.* from staged s join due d on d.job = s.parked_job_id
  cross join lateral :DISPATCH_POLICY_SCHEMA._work_arrival(
    d.policy, s.partition_id, d.key, coalesce(((d.retry).move).shard, d.shard),
    -- If the job moves, its context and limits count only for a new partition: this version makes the arrival the oldest.
    case when ((d.retry).move).key is null then 0 else -2147483648 end, ((d.retry).move).context,
    ((d.retry).move).weight, ((d.retry).move).limits, s.run_at, s.cost, s.due, s.priority, s.run_at, s.id,
    p_jobs => (s.left_partition_id is distinct from s.partition_id)::int) a
  where (select count(*) from notified) + (select count(*) from left_behind) >= 0;
  perform :DISPATCH_POLICY_SCHEMA._give_back_attempts(p_jobs, v_parked);
  return v_locked || :DISPATCH_POLICY_SCHEMA._end_or_put_off(p_jobs, p_now);
end
$$;
