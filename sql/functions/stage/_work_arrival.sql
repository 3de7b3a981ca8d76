-- The arrival of work for a partition: of one staged job, or of the first that is due of several. A job that is not due yet
-- is no head, so its place is that of _no_head. The time is cut to whole milliseconds, because a JavaScript Date has no
-- microseconds: a `now` read right after would be before the job's time.
--
--   p_run_at, p_cost   the first time at which a job is due, and the least cost
--   p_due              whether a job is due now; its place follows: p_priority, p_head_run_at, p_id
--   p_jobs             how many more jobs are staged in the partition
--
-- It is a query over its parameters, so that PostgreSQL inlines it. No argument may be a sub-select: then 10,000 calls take
-- 0.2 s.
create or replace function _work_arrival(
  p_policy text, p_partition_id uuid, p_key text, p_shard text, p_version int, p_context jsonb, p_weight float8,
  p_limits jsonb, p_run_at timestamptz, p_cost float8, p_due boolean, p_priority smallint, p_head_run_at timestamptz,
  p_id bigint, p_head_changed boolean default false, p_jobs int default 1
) returns setof arrivals language sql stable rows 1 as $$
  select null::bigint, p_policy, p_partition_id, p_key, p_shard, coalesce(p_version, 0), p_context, p_weight, p_limits,
    date_trunc('milliseconds', p_run_at),
    case when p_due then p_priority else h.priority end, case when p_due then p_head_run_at else h.run_at end,
    case when p_due then p_id else h.id end, p_cost, null::jsonb, null::jsonb, p_head_changed, p_jobs
  from _no_head() h;
$$;
