-- Stages a row for each job that _retry has parked, due at its back-off time.
--
--   p_jobs        what is known of their ends
--   p_revisions   those that the parked jobs were read in, in the order of `p_parked`
--
-- A flush may bring thousands of failed jobs. By nested loops, for which the planner takes the ten rows it expects of an
-- array, each would be compared with each. So joins are by hash, and each table's ids stand beside the join, as in _charge.
create or replace function _stage_retries(
  p_jobs finished_job[], p_parked bigint[], p_revisions int[], p_now timestamptz
) returns void language plpgsql
set enable_nestloop = off as $$
begin
  with due as materialized (
    select f.job, k.revision, i.policy_id,
      -- a copy of the job, with its flags, may be staged under its id
      case when exists (
          select from staged_jobs s
          where s.id = i.staged_id and s.parked_job_id is distinct from f.job)
        then nextval(pg_get_serial_sequence('staged_jobs', 'id'))
        else i.staged_id end as staged_id, i.cost, p.name as policy, f.retry,
      _sort_at_again(p.job_order, i.sort_at) as sort_at,
      p_now + _wait((f.retry).after) as run_at,
      coalesce((f.retry).priority, 0::smallint) as priority,
      coalesce(((f.retry).move).key, q.key) as key, q.shard
    from unnest(p_parked, p_revisions) k (id, revision)
    join unnest(p_jobs) f on f.job = k.id
    join in_flight_jobs i on i.job_id = k.id and i.job_id = any(p_parked)
    join policies p on p.id = i.policy_id
    join partitions q on q.id = i.partition_id and q.id = any(array(
      select h.partition_id from in_flight_jobs h where h.job_id = any(p_parked)))
  ),
  staged as (
    insert into staged_jobs as s (id, partition_id, task_identifier, payload, run_at,
      max_attempts, priority, cost, due, parked_job_id, parked_revision, sort_at)
    overriding system value
    select d.staged_id, _partition_id(d.policy, d.key), (d.retry).task, '{}',
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
    select _notify(d.policy), _count_pending(d.policy, d.jobs)
    from (
      select d.policy, (count(*) filter (where s.fresh))::int as jobs
      from staged s join due d on d.job = s.parked_job_id group by d.policy
    ) d
  ),
  left_behind as materialized (
    select _head_changed(
      array(select s.left_partition_id from staged s where s.left_partition_id <> s.partition_id), -1)
  )
  insert into arrivals overriding user value
  select a.* from staged s join due d on d.job = s.parked_job_id
  cross join lateral _work_arrival(
    d.policy, s.partition_id, d.key, coalesce(((d.retry).move).shard, d.shard),
    -- If the job moves, its context and limits count only for a new partition: this version makes the arrival the oldest.
    case when ((d.retry).move).key is null then 0 else -2147483648 end, ((d.retry).move).context,
    ((d.retry).move).weight, ((d.retry).move).limits, s.run_at, s.cost, s.due, s.priority, s.run_at, s.id,
    p_jobs => (s.left_partition_id is distinct from s.partition_id)::int) a
  where (select count(*) from notified) + (select count(*) from left_behind) >= 0;
end
$$;
