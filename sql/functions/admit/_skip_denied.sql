-- Drops due jobs of partitions whose gates deny them, except for parked jobs (`whenBusy: "skip"`). These are some 1,000 in all,
-- and as many of each such partition, because the pass has limiters locked. Their partitions stay eligible, and the next pass
-- goes on with them. Returns whether it has dropped any.
create or replace function _skip_denied(p_policy text, p_partition_ids uuid[])
returns boolean language plpgsql as $$
declare
  v_ids bigint[] := _lock_denied(p_partition_ids);
begin
  if v_ids = '{}' then
    return false;
  end if;
  perform _record_removed(v_ids, 'dropped');
  with skipped as (
    delete from staged_jobs s where s.id = any(v_ids) returning s.partition_id
  ),
  tally as materialized (
    select s.partition_id as id, count(*)::int as jobs from skipped s group by s.partition_id
  ),
  recorded as (
    insert into drops (policy, partition_id, key, reason, jobs)
    select p_policy, q.id, q.key, 'busy', t.jobs from tally t
    join partitions q on q.id = t.id and q.id = any(p_partition_ids)
  )
  -- The partition waits no longer. Jobs that stay (locked, parked, or too many) are found when it is looked at again.
  update partitions q set denied_until = '-infinity', blocked_on = null,
    denied_reason = null, staged = q.staged - t.jobs
  from tally t where q.id = t.id;
  perform _count_pending(p_policy, -cardinality(v_ids));
  return true;
end
$$;
