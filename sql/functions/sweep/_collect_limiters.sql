-- Deletes limiters that no partition uses any more: the key's partitions are deleted or have other keys, or the policy has
-- dropped the gate. A limiter over the whole policy stays as long as the policy has its gate, because code outside jobs may
-- take from it. It deletes at most 1,000 a call.
--
-- Only routing gives partitions their limiters. So limiters of a policy that is being routed stay for the next sweep.
create or replace function _collect_limiters(p_now timestamptz, p_inactive_after interval)
returns int language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '5s'
set enable_nestloop = off   -- by statistics of an empty table, it compared each limiter with each partition
as $$
declare
  v_ids bigint[];
  v_policy_ids int[];
  v_overridden_ids int[] := array(select o.policy_id from overrides o);
begin
  -- this looks at every partition, and no router should wait for it
  v_ids := array(
    select l.id from limiters l
    where _is_unused(l, p_now, p_inactive_after, l.policy_id = any(v_overridden_ids))
      and (l.breadth < 2 or (l.breadth = 2 and not exists (
        select from policies p
        cross join jsonb_array_elements(p.definition -> 'gates') g
        where p.id = l.policy_id and g ->> 'name' = l.gate)))
      and not exists (
        select from partitions q cross join unnest(q.limiter_ids) u (id)
        where u.id = l.id)
    limit 1000);
  if v_ids = '{}' then
    return 0;
  end if;
  v_policy_ids := array(
    select c.policy_id from (
      select distinct l.policy_id from limiters l where l.id = any(v_ids)
    ) c
    where _try_lock_turn(c.policy_id, 'route'));
  v_ids := array(
    select l.id from limiters l
    where l.id = any(v_ids) and l.policy_id = any(v_policy_ids) order by l.id for update skip locked);
  delete from limiters l
  where l.id = any(v_ids)
    and _is_unused(l, p_now, p_inactive_after, l.policy_id = any(v_overridden_ids))
    and not exists (select from partitions q where q.blocked_on = l.id)
    and l.id not in (
      select u.id from partitions q cross join unnest(q.limiter_ids) u (id)
      where u.id = any(v_ids));
  -- the freed row of a deleted limiter would be read for ever
  delete from freed f
  where f.limiter_id = any(v_ids)
    and not exists (select from limiters l where l.id = f.limiter_id);
  return cardinality(v_ids)
    - (select count(*) from limiters l where l.id = any(v_ids));
end
$$;
