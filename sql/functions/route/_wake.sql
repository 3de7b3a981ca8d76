-- Lets waiting partitions be claimed again, as many per limiter as it has room for, in fair order. A note that a
-- limiter has room is a fact: it is removed only when the limiter is full or nobody waits for it, so that a wake-up
-- spent on a partition that turns out drained, paused or blocked elsewhere is not lost for the next one.
-- Runs under the router's lock. Returns how many partitions it woke.
--
-- Room that is offered to a shard that nobody ticks is left unused, while others wait for it. So such a shard's partitions
-- are woken beside the others, and take no room. A shard is ticked by whoever holds its lease, or by the caller
-- (`p_shard`, null: all). The loops of other shards, or those that may lead one without a leader, are notified.
create or replace function :DISPATCH_POLICY_SCHEMA._wake(
  p_policy :DISPATCH_POLICY_SCHEMA._private_policies, p_now timestamptz, p_max int, p_bounded boolean, p_times boolean,
  p_shard text
) returns int language plpgsql as $$
declare
  v_woken int;
  v_shards text[];
  v_ticked text[];
  v_rooms jsonb;
  v_limiter_ids bigint[];
  v_timed_ids bigint[];
begin
  if not (p_policy).enabled then
    return :DISPATCH_POLICY_SCHEMA._wake_all(p_policy, p_max, p_shard);
  end if;
  if exists (
    select from :DISPATCH_POLICY_SCHEMA._private_overrides o
    where o.policy_id = (p_policy).id and (o.announce_at <= p_now or o.to_announce <> '{}')
  ) then
    perform :DISPATCH_POLICY_SCHEMA._announce_overrides(p_policy, p_now);
  end if;
  v_limiter_ids := array(
    select f.limiter_id from (
      select f.limiter_id from :DISPATCH_POLICY_SCHEMA._private_freed f
      where f.policy_id = (p_policy).id order by f.id limit p_max
    ) f
    union
    select l.id from :DISPATCH_POLICY_SCHEMA._private_limiters l
    where l.policy_id = (p_policy).id and l.wake_at is not null and l.wake_at <= p_now);
  -- an explicit tick is not held to the ahead bound
  if (p_policy).ahead_limiter_id <> all (v_limiter_ids)
    and (not p_bounded or :DISPATCH_POLICY_SCHEMA._waits_in_vain((p_policy).id, (p_policy).ahead_limiter_id)) then
    v_limiter_ids := v_limiter_ids || (p_policy).ahead_limiter_id;
  end if;
  if v_limiter_ids = '{}' then
    return 0;
  end if;
  -- null: all, and so where the policy has one shard
  if p_shard is not null and (p_policy).definition ->> 'shard' is null then
    v_ticked := p_shard || array(
      select e.shard from :DISPATCH_POLICY_SCHEMA._private_leases e
      where e.policy = (p_policy).name and e.expires_at > clock_timestamp());
  end if;
  -- locked before anybody who waits is counted: whom a tick makes wait meanwhile would lose the time it sets
  v_timed_ids := array(
    select x.id from :DISPATCH_POLICY_SCHEMA._private_limiters x
    where p_times and x.id = any(v_limiter_ids)
      and (x.wake_at is not null or (x.by_tokens and x.breadth > 0) or x.ending <> '{}')
    for no key update skip locked);
  with note as materialized (
    select f.limiter_id, array_agg(f.id) as ids from :DISPATCH_POLICY_SCHEMA._private_freed f
    where f.policy_id = (p_policy).id and f.limiter_id = any(v_limiter_ids) group by f.limiter_id
  ),
  -- how many waiters it may have room for; of a throttle, how many to look at: their costs decide. Where jobs differ in what
  -- they count for, some more: one that is woken alone is ranked alone, and takes all the room there is by then.
  lim as materialized (
    select l.*, greatest(least(case
        when l.slots is not null then least(l.slots, 1000) - case when l.reserved_for is not null then 1 else 0 end
          + case when (p_policy).fair_by_work and l.slots > 0 then 10 else 0 end
        when l.breadth = 0 then 1   -- its numbers changed: its partition works out its time anew
        when l.rate <= 0 then 0
        else floor(l.tokens + 1e-9) + 1 end, 1000), 0)::int as room
    from :DISPATCH_POLICY_SCHEMA._limiters_now((p_policy).id, v_limiter_ids, p_now, p_bounded) l
  ),
  line as materialized (
    select w.id, l.id as limiter_id, w.nth, w.head_cost, w.cost,
      l.slots is not null or l.breadth = 0 or :DISPATCH_POLICY_SCHEMA._lets_through(
        l.tokens, case when w.nth = 1 then l.capacity else 'Infinity' end, w.cost) as goes
    from lim l
    cross join lateral (
      select q.id, q.head_cost, row_number() over (order by q.fair_key, q.id) as nth,
        sum(q.head_cost) over (order by q.fair_key, q.id) as cost
      from (
        select x.id, x.fair_key, x.head_cost from :DISPATCH_POLICY_SCHEMA._private_partitions x
        where x.blocked_on = l.id and (v_ticked is null or x.shard = any(v_ticked)) order by x.fair_key limit l.room
        for no key update skip locked
      ) q
    ) w
  ),
  outcome as materialized (
    select l.*, w.*, (select count(*) from (
        select from :DISPATCH_POLICY_SCHEMA._private_partitions q where q.blocked_on = l.id limit l.room + 1) z) as waiting
    from lim l
    cross join lateral (
      select count(*) filter (where n.goes) as woken, coalesce(max(n.cost) filter (where n.goes), 0) as cost,
        (array_agg(n.head_cost order by n.nth) filter (where not n.goes))[1] as next_cost
      from line n where n.limiter_id = l.id
    ) w
  ),
  -- A shared throttle's line is in fair order, so that cheap jobs do not take each token a dear one waits for. The next
  -- is told when there is enough for it, and soon where those told before may turn out to need nothing.
  timed as (
    update :DISPATCH_POLICY_SCHEMA._private_limiters l set wake_at = o.next_wake_at
    from (
      select o.id, case
          when o.tokens is not null then case when o.waiting > o.woken then greatest(
            p_now + interval '1 millisecond',
            least(case when o.woken > 0 then p_now + interval '50 milliseconds' end,
              :DISPATCH_POLICY_SCHEMA._throttle_ready_at(
                o.tokens - o.cost, o.rate, o.per, o.capacity,
                case when o.spent is not null
                  then :DISPATCH_POLICY_SCHEMA._window_spend(o.spent, o.per, o.remembered, o.cost, p_now) end,
                coalesce(o.next_cost, 0), p_now))) end
          when o.woken < least(o.waiting, o.room) then p_now + interval '1 millisecond'
          when o.ending > 0 and o.waiting > o.woken then p_now + interval '10 milliseconds'
          when o.reserved_for is not null then o.reserved_until end as next_wake_at
      from outcome o where o.id = any(v_timed_ids)
    ) o
    where l.id = o.id
    returning l.id, l.by_tokens
  ),
  spent as (
    delete from :DISPATCH_POLICY_SCHEMA._private_freed f
    where f.policy_id = (p_policy).id and f.id = any(array(
      select unnest(n.ids) from outcome o join note n on n.limiter_id = o.id
      where (o.room = 0 and (o.ending = 0 or o.id in (select t.id from timed t))) or o.waiting <= o.woken
        or o.id in (select t.id from timed t where t.by_tokens)))   -- its time is set
  ),
  woken as (
    update :DISPATCH_POLICY_SCHEMA._private_partitions p set denied_until = '-infinity', blocked_on = null, denied_reason = null
    where p.id = any(array(select n.id from line n where n.goes))
    returning p.shard
  )
  select count(*), array_agg(distinct w.shard) filter (where w.shard <> p_shard),
    case when v_ticked is not null then (select jsonb_object_agg(l.id, l.room) from lim l where l.room > 0) end
  into v_woken, v_shards, v_rooms from woken w;
  if v_rooms is not null then
    with beside as (
      update :DISPATCH_POLICY_SCHEMA._private_partitions p set denied_until = '-infinity', blocked_on = null
      where p.id = any(array(
        select q.id from jsonb_each_text(v_rooms) r
        cross join lateral (
          select x.id, x.shard from :DISPATCH_POLICY_SCHEMA._private_partitions x
          where x.blocked_on = r.key::bigint order by x.fair_key limit r.value::int
          for no key update skip locked
        ) q
        where q.shard <> all (v_ticked)))
      returning p.shard
    )
    select v_woken + count(*), v_shards || array_agg(distinct b.shard) into v_woken, v_shards from beside b;
  end if;
  if v_shards is not null then
    perform :DISPATCH_POLICY_SCHEMA._notify_shards((p_policy).name, v_shards);
  end if;
  return v_woken;
end
$$;
