-- Lets waiting partitions be claimed again, as many of each limiter as it has room for, in fair order. Returns how many it
-- woke, and one more if overrides are still to be announced. It runs under the router's lock.
--
-- A woken partition may turn out to be drained, paused or blocked elsewhere, and the room would be lost for the next one.
-- So a freed row stays until its limiter is full or nobody waits for it. A limiter that got room without a release, because
-- its cap rose at a time or with a worker pool, gets such a row. So does one that is full only because a worker pool went.
--
-- Every tenth place of a limiter goes to the partition that has waited for it longest (_longest_first). That one is the
-- first in line, and its next job goes before others in its pass.
--
-- It is longer than others, because one loop decides about a limiter all that the end writes for all of them.
--
-- The loops of other shards whose partitions it woke are notified, or those that may lead such a shard.
create or replace function _wake(
  p_policy policies, p_now timestamptz, p_max int, p_bounded boolean, p_times boolean,
  p_shard text
) returns int language plpgsql as $$
declare
  v_limiter_ids bigint[];
  v_ticked text[];
  v_timed_ids bigint[];
  v_freed bigint[];
  v_limiter room_before;
  v_line record;
  v_woken uuid[] := '{}';
  v_first uuid[] := '{}';
  v_served bigint[] := '{}'; v_unsure bigint[] := '{}';   -- see _keep_freed
  v_with_room bigint[] := '{}';
  v_rooms int[] := '{}';
  v_shards text[] := '{}';
  v_others text[];
  v_announces boolean := false;
begin
  if not (p_policy).enabled then
    return _wake_all(p_policy, p_max, p_shard);
  end if;
  -- two looks, each by its index: there may be an override for each of 10,000 accounts
  if exists (
    select from overrides o
    where o.policy_id = (p_policy).id and least(o.announce_at, o.announce_again_at) <= p_now
  ) or exists (
    select from overrides o where o.policy_id = (p_policy).id and o.to_announce <> '{}'
  ) then
    v_announces := _announce_overrides(p_policy, p_now);
  end if;
  v_limiter_ids := _limiters_to_wake(p_policy, p_now, p_max, p_bounded);
  if v_limiter_ids = '{}' then
    return v_announces::int;
  end if;
  perform _refresh_keys(p_policy, v_limiter_ids, null, p_now);
  v_ticked := _ticked_shards(p_policy, p_shard);
  -- A tick may add a waiter and set wake_at after the waiters were counted, and the update below would overwrite it. So
  -- these limiters are locked before.
  v_timed_ids := array(
    select x.id from limiters x
    where p_times and x.id = any(v_limiter_ids)
      and (x.wake_at is not null or (x.by_tokens and x.breadth > 0) or x.ending <> '{}' or (x.numbers).per_worker)
    for no key update skip locked);
  -- Read before the room is: a slot that is freed later keeps its row.
  v_freed := array(select f.id from freed f
    where f.policy_id = (p_policy).id and f.limiter_id = any(v_limiter_ids));
  foreach v_limiter in array _limiters_of_pass((p_policy).id, array(
    select l from limiters l where l.id = any(v_limiter_ids)), p_now, p_bounded)
  loop
    v_line := _next_in_line(p_policy, v_limiter, v_ticked, p_now);
    v_woken := v_woken || v_line.woken;
    v_first := v_first || v_line.by_wait;
    if v_line.room > 0 then
      v_with_room := v_with_room || v_limiter.id;
      v_rooms := v_rooms || v_line.room;
    end if;
    if v_limiter.id = any(v_timed_ids) then
      update limiters l set wake_at = v_line.wake_at, fewest_pools = v_limiter.pools
      where l.id = v_limiter.id;
    end if;
    if v_line.waiting <= cardinality(v_line.woken) or (v_line.room = 0 and v_limiter.ending = 0)
      or (v_limiter.id = any(v_timed_ids) and (v_line.room = 0 or v_limiter.tokens is not null)) then   -- its wake_at is set
      v_served := v_served || v_limiter.id;
      -- It is full with as many worker pools as there are now, and that could not be written: see _with_new_shares.
      if v_limiter.share is not null and v_line.waiting > cardinality(v_line.woken) and v_limiter.id <> all (v_timed_ids) then
        v_unsure := v_unsure || v_limiter.id;
      end if;
    elsif v_limiter.id = any(v_timed_ids) and v_limiter.id <> (p_policy).ahead_limiter_id then   -- that one is checked
      v_unsure := v_unsure || v_limiter.id;
    end if;
  end loop;
  if v_woken <> '{}' then
    with woken as (
      update partitions p set
        denied_until = '-infinity', blocked_on = null, denied_reason = null, goes_first = p.id = any(v_first)
      where p.id = any(v_woken)
      returning p.shard
    )
    select array_agg(w.shard) into v_shards from woken w;
  end if;
  perform _keep_freed((p_policy).id, v_freed, v_served, v_unsure)
  where v_freed <> '{}' or v_unsure <> '{}';
  if v_ticked is not null and v_with_room <> '{}' then
    v_shards := v_shards || array(select w from _wake_unticked(v_with_room, v_rooms, v_ticked) w);
  end if;
  v_others := array(select distinct s from unnest(v_shards) s where s <> p_shard);
  if v_others <> '{}' then
    perform _notify_shards((p_policy).name, v_others);
  end if;
  return cardinality(v_shards) + v_announces::int;
end
$$;
