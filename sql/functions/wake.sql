-- Lets waiting partitions be claimed again, as many per limiter as it has room for, in fair order. A note that a
-- limiter has room is a fact: it is removed only when the limiter is full or nobody waits for it, so that a wake-up
-- spent on a partition that turns out drained, paused or blocked elsewhere is not lost for the next one.
-- Runs under the router's lock. Returns how many partitions it woke.
create or replace function :DISPATCH_POLICY_SCHEMA._wake(
  p_policy :DISPATCH_POLICY_SCHEMA._private_policies, p_now timestamptz, p_max int, p_bounded boolean
) returns int language plpgsql as $$
declare
  v_woken int;
  v_limiter_ids bigint[];
begin
  if not (p_policy).enabled then
    return :DISPATCH_POLICY_SCHEMA._wake_all((p_policy).id, p_max);
  end if;
  if exists (select from :DISPATCH_POLICY_SCHEMA._private_overrides o where o.policy_id = (p_policy).id) then
    perform :DISPATCH_POLICY_SCHEMA._announce_overrides(p_policy, p_now);
  end if;
  v_limiter_ids := array(
    select f.limiter_id from (
      select f.limiter_id from :DISPATCH_POLICY_SCHEMA._private_freed f
      where f.policy_id = (p_policy).id order by f.id limit p_max
    ) f
    union
    select l.id from :DISPATCH_POLICY_SCHEMA._private_limiters l
    where l.policy_id = (p_policy).id and l.wake_at is not null and l.wake_at <= p_now
    union
    -- an explicit tick is not held to the ahead bound
    select (p_policy).ahead_limiter_id where not p_bounded);
  if v_limiter_ids = '{}' then
    return 0;
  end if;
  with note as materialized (
    select f.limiter_id, array_agg(f.id) as ids from :DISPATCH_POLICY_SCHEMA._private_freed f
    where f.policy_id = (p_policy).id and f.limiter_id = any(v_limiter_ids) group by f.limiter_id
  ),
  lim as materialized (
    select l.*, greatest(least(case
        when l.slots is not null then l.slots - case when l.reserved_for is not null then 1 else 0 end
        when l.breadth = 0 then 1   -- its numbers changed: its partition works out its time anew
        when l.tokens >= l.capacity - 1e-9 then greatest(floor(l.tokens + 1e-9), 1)
        else floor(l.tokens + 1e-9) end, 1000), 0)::int as room
    from :DISPATCH_POLICY_SCHEMA._limiters_now((p_policy).id, v_limiter_ids, p_now, p_bounded) l
  ),
  waiter as materialized (
    select w.id, l.id as limiter_id from lim l
    cross join lateral (
      select q.id from :DISPATCH_POLICY_SCHEMA._private_partitions q
      where q.blocked_on = l.id order by q.fair_key limit l.room
      for no key update skip locked
    ) w
  ),
  outcome as materialized (
    select l.*, (select count(*) from waiter w where w.limiter_id = l.id) as woken,
      (select count(*) from (
        select from :DISPATCH_POLICY_SCHEMA._private_partitions q where q.blocked_on = l.id limit l.room + 1) z) as waiting
    from lim l
  ),
  spent as (
    delete from :DISPATCH_POLICY_SCHEMA._private_freed f
    where f.policy_id = (p_policy).id and f.id = any(array(
      select unnest(n.ids) from outcome o join note n on n.limiter_id = o.id
      where o.room = 0 or o.waiting <= o.woken))
  ),
  timed as (
    update :DISPATCH_POLICY_SCHEMA._private_limiters l set wake_at = o.next_wake_at
    from (
      select o.id, case
          when o.kind = 'throttle' then case when o.waiting > o.woken then greatest(
            p_now + interval '1 millisecond',
            :DISPATCH_POLICY_SCHEMA._throttle_ready_at(o.tokens, o.rate, o.per, o.capacity, o.room + 1, p_now)) end
          when o.woken < least(o.waiting, o.room) then p_now + interval '1 millisecond'
          when o.reserved_for is not null then o.reserved_until end as next_wake_at
      from outcome o
      where o.id = any(array(
          select x.id from :DISPATCH_POLICY_SCHEMA._private_limiters x
          where x.id = any(v_limiter_ids) and x.wake_at is not null for no key update skip locked))
    ) o
    where l.id = o.id
  ),
  woken as (
    update :DISPATCH_POLICY_SCHEMA._private_partitions p set denied_until = '-infinity', blocked_on = null
    where p.id = any(array(select w.id from waiter w))
    returning 1
  )
  select count(*) into v_woken from woken;
  return v_woken;
end
$$;

-- The start or the end of an override may make room: a note for every limiter of its gate that is waited for.
create or replace function :DISPATCH_POLICY_SCHEMA._announce_overrides(
  p_policy :DISPATCH_POLICY_SCHEMA._private_policies, p_now timestamptz
) returns void language sql volatile as $$
  with passed as (
    update :DISPATCH_POLICY_SCHEMA._private_overrides o set announced_at = p_now
    where o.id = any(array(
      select x.id from :DISPATCH_POLICY_SCHEMA._private_overrides x
      where x.policy_id = (p_policy).id
        and ((x.from_at <= p_now and x.announced_at < x.from_at)
          or (x.until_at <= p_now and x.announced_at < x.until_at))
      for update skip locked))
    returning o.gate, o.scope_key
  )
  insert into :DISPATCH_POLICY_SCHEMA._private_freed (policy_id, limiter_id)
  select (p_policy).id, l.id from passed o
  join :DISPATCH_POLICY_SCHEMA._private_limiters l
    on l.policy_id = (p_policy).id and l.gate = o.gate and (o.scope_key is null or l.scope_key = o.scope_key)
  where exists (select from :DISPATCH_POLICY_SCHEMA._private_partitions q where q.blocked_on = l.id);
$$;

-- A policy that is switched off has no limits to wait for: full limiters have no room to announce.
create or replace function :DISPATCH_POLICY_SCHEMA._wake_all(p_policy_id int, p_max int) returns int
language sql volatile as $$
  delete from :DISPATCH_POLICY_SCHEMA._private_freed f where f.policy_id = p_policy_id;
  update :DISPATCH_POLICY_SCHEMA._private_limiters l set wake_at = null
  where l.id = any(array(
    select x.id from :DISPATCH_POLICY_SCHEMA._private_limiters x
    where x.policy_id = p_policy_id and x.wake_at is not null for no key update skip locked));
  with woken as (
    update :DISPATCH_POLICY_SCHEMA._private_partitions p set denied_until = '-infinity', blocked_on = null
    where p.id = any(array(
      select q.id from :DISPATCH_POLICY_SCHEMA._private_partitions q
      where q.policy_id = p_policy_id and q.denied_until > '-infinity' and q.due_at < 'infinity'
      order by q.id limit p_max for no key update skip locked))
    returning 1
  )
  select count(*)::int from woken;
$$;
