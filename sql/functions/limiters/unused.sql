-- Limiters that nobody uses go, and counters that drifted are put right.

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
    where _try_lock_turn(c.policy_id, 'route') and not exists (   -- nor those that share it
      select from policies p where p.shared_ids @> array[c.policy_id] and not _try_lock_turn(p.id, 'route')));
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

-- Deletes these limiters, which the caller has locked, with their freed rows: those would be read for ever.
create or replace function _drop_limiters(p_ids bigint[]) returns void language plpgsql as $$
begin
  delete from limiters l where l.id = any(p_ids);
  delete from freed f where f.limiter_id = any(p_ids);
end
$$;

-- Whether a limiter may be deleted: if it is made again, it has no more than if it had stayed. A limiter that has learnt,
-- and a bucket that code outside jobs may take from, stay as long as an unused partition.
create or replace function _is_unused(
  limiter limiters, p_now timestamptz, p_inactive_after interval,
  p_overridden boolean
) returns boolean language sql stable as $$
  select limiter.in_flight = 0 and case
      when limiter.by_tokens then limiter.refilled_at < p_now - p_inactive_after
        and _lets_through(
          _throttle_left(limiter, p_now, p_overridden, _context_of(limiter)), 'Infinity',
          case when p_overridden then _first_tokens(limiter.policy_id, limiter.gate,
              limiter.scope_key, limiter.numbers, _context_of(limiter), p_now)
            else _throttle_capacity(limiter.numbers) end)
        and (limiter.longest_until > p_now) is not true
      else (limiter.decreased_at >= p_now - p_inactive_after) is not true end;
$$;

-- Corrects limiters whose counter differs from the in-flight rows that name them, by a new count under their locks.
create or replace function _sweep_counters() returns int language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '5s'
as $$
declare
  v_ids bigint[];
  v_repaired int;
begin
  v_ids := array(
    select l.id from limiters l
    left join (
      select u.id, count(*) as jobs from in_flight_jobs f
      cross join unnest(f.limiter_ids) u (id) group by u.id
    ) n on n.id = l.id
    where l.in_flight <> coalesce(n.jobs, 0));
  perform from limiters l
  where l.id = any(v_ids) order by l.id for no key update;
  with truth as (
    select v.id, (
      select coalesce(sum(_takes(f.limiter_ids, v.id)), 0)::int from in_flight_jobs f where f.limiter_ids @> array[v.id]
    ) as jobs from unnest(v_ids) v (id)
  ),
  repaired as (
    update limiters l set in_flight = t.jobs
    from truth t where l.id = t.id and l.in_flight <> t.jobs returning l.policy_id, l.id
  ),
  announced as (
    insert into freed (policy_id, limiter_id) select r.policy_id, r.id from repaired r
  )
  select count(*) into v_repaired from repaired;
  return v_repaired;
end
$$;
