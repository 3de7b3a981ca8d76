-- Room that is offered to a shard that nobody ticks stays unused, while others wait for it. So this wakes the partitions of
-- such shards beside the others, up to `p_rooms` of each limiter, and they take no room from them. Returns a row for each
-- that it woke: its shard.
create or replace function _wake_unticked(
  p_limiter_ids bigint[], p_rooms int[], p_ticked text[]
) returns setof text language plpgsql as $$
begin
  return query
  update partitions p set denied_until = '-infinity', blocked_on = null, denied_reason = null
  where p.id = any(array(
    select q.id from unnest(p_limiter_ids, p_rooms) r (limiter_id, room)
    cross join lateral (
      select x.id, x.shard from partitions x
      where x.blocked_on = r.limiter_id order by x.fair_key, x.due_at limit r.room
      for no key update skip locked
    ) q
    where q.shard <> all (p_ticked)))
  returning p.shard;
end
$$;
