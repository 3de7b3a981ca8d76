-- Locks the due jobs that `whenBusy` is about, and returns their ids. They are those of partitions whose own gates deny them,
-- by the verdict of the pass that has these partitions locked. Parked jobs are none of them. A partition that only waits for
-- a worker, for its turn or for the end of a stop has none.
--
-- They are some 1,000 in all, and as many of each such partition, first those that would go next. The danger: a pass that
-- writes a whole backlog has limiters locked meanwhile. The cure: the next passes go on with the rest.
create or replace function _lock_denied(p_partition_ids uuid[]) returns bigint[]
language plpgsql as $$
declare
  v_denied uuid[] := array(
    select q.id from partitions q
    where q.id = any(p_partition_ids) and (q.denied_reason in ('throttle_empty', 'rate_zero', 'max_zero')
      or (q.denied_reason like '%\_full' and q.denied_reason <> 'ahead_full')));
begin
  return array(
    select x.id from unnest(v_denied) u (id)
    cross join lateral (
      select s.id from staged_jobs s
      where s.partition_id = u.id and s.due and s.parked_job_id is null
      order by s.priority, s.run_at, s.id limit ceil(1000.0 / greatest(cardinality(v_denied), 1))
      for update skip locked
    ) x);
end
$$;
