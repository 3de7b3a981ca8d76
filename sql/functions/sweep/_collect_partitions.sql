-- Deletes partitions that nobody used for `p_inactive_after`, with their own limiters, if nothing is staged or in flight
-- and their buckets are full again. So a partition that comes back never starts with more than if it had stayed. It deletes
-- at most 1,000 a call.
create or replace function _collect_partitions(p_now timestamptz, p_inactive_after interval)
returns int language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '5s'
set enable_seqscan = off   -- by statistics of an empty table, it read all staged jobs for each partition
as $$
declare
  v_ids uuid[];
  v_limiter_ids bigint[];
  v_overridden_ids int[] := array(select o.policy_id from overrides o);
begin
  -- The others by hash, because they have no index by partition: it would cost each job that is added or starts.
  with unused as materialized (
    select q.id from partitions q
    where q.due_at = 'infinity' and q.decayed_at < p_now - p_inactive_after
      and q.created_at < p_now - p_inactive_after
      and q.stopped_until = '-infinity'
      -- each half has an index
      and not exists (select from staged_jobs s where s.partition_id = q.id and s.due)
      and not exists (select from staged_jobs s where s.partition_id = q.id and not s.due)
    limit 1000 for update skip locked
  ),
  busy as materialized (
    select f.partition_id as id from in_flight_jobs f
    where (f.partition_id in (select n.id from unused n)) is true
    union all
    select a.partition_id from arrivals a
    where (a.partition_id in (select n.id from unused n)) is true
  )
  select coalesce(array_agg(n.id), '{}') into v_ids from unused n
  where (n.id in (select b.id from busy b)) is not true;
  v_limiter_ids := array(
    select l.id from limiters l
    where l.id = any(array(
        select unnest(q.limiter_ids) from partitions q where q.id = any(v_ids)))
      and l.breadth = 0
    order by l.id for update);
  v_ids := array(
    select q.id from partitions q
    where q.id = any(v_ids) and not exists (
      select from limiters l
      where l.id = any(q.limiter_ids) and l.breadth = 0
        and not _is_unused(l, p_now, p_inactive_after, l.policy_id = any(v_overridden_ids))));
  delete from limiters l
  where l.breadth = 0 and l.id = any(array(
    select unnest(q.limiter_ids) from partitions q where q.id = any(v_ids)));
  delete from partitions q where q.id = any(v_ids);
  if v_ids <> '{}' then
    perform _forget_shards();
  end if;
  return cardinality(v_ids);
end
$$;
