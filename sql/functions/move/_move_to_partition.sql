-- Moves these staged jobs, which the caller has locked, to the partition of this arrival, of the same policy. Routing looks
-- at the partition that they leave, whose next job may be another.
create or replace function _move_to_partition(
  p_state arrivals, p_ids bigint[]
) returns void language plpgsql volatile as $$
begin
  with moved as materialized (
    update staged_jobs s
    set partition_id = (p_state).partition_id, left_partition_id = s.partition_id
    where s.id = any(p_ids)
    returning s.id, s.priority, s.run_at, s.cost, s.due, s.left_partition_id
  ),
  left_behind as materialized (
    select _head_changed(array(select m.left_partition_id from moved m), -1)
  )
  insert into arrivals overriding user value
  select a.*
  from (
    select min(m.run_at) as due_at, min(m.cost) as min_cost, bool_or(not m.due) as later, count(*)::int as jobs from moved m
  ) w
  left join (
    select m.priority, m.run_at, m.id from moved m where m.due order by m.priority, m.run_at, m.id limit 1
  ) f on true
  cross join lateral _work_arrival(
    (p_state).policy, (p_state).partition_id, (p_state).key, (p_state).shard, (p_state).version, (p_state).context,
    (p_state).weight, (p_state).limits, w.due_at, w.min_cost, f.id is not null, f.priority, f.run_at, f.id,
    f.id is not null and w.later,   -- as _stage_batch: the arrival has only the due ones
    w.jobs) a
  -- PostgreSQL skips a SELECT that nobody reads, and this one has an effect
  where (select count(*) from left_behind) > 0;
end
$$;
