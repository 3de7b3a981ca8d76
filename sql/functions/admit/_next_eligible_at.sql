-- When something may be admitted next. The first partition is eligible then, or a shared bucket that somebody waits for
-- gets its next token. Or an override starts or ends that concerns waiters, or the pause of the whole policy ends. -infinity:
-- at once, because a limiter has room that others may use. Null: not before something happens.
--
--   p_saturated   no partition may go, however eligible, until a job ends. Who waits for another limiter with room has to be looked
--     at all the same: it waits in the wrong line
--   p_bounded     false: of limiters with room only those count for which partitions of this shard wait
--   p_now         the time that the caller gives, which may be ahead of the clock. Then an override that only has to be
--     announced again, by the clock, is nothing to tick for. Null: the caller goes by the clock
create or replace function _next_eligible_at(
  p_policy text, p_shard text, p_saturated boolean default false, p_now timestamptz default null, p_bounded boolean default true
)
returns timestamptz language plpgsql stable as $$
begin
  return (
  select nullif(case when e.at is not null then greatest(p.paused_until, e.at) end, 'infinity')
  from policies p
  cross join lateral (select least(
    (select min(x.eligible_at) from unnest(
        case when p_saturated then '{}' when p_shard is null then _shards(p.id) else array[p_shard] end) s (shard)
      cross join lateral (
        (select q.eligible_at from partitions q
          where q.policy_id = p.id and q.shard = s.shard and q.eligible_at < 'infinity' and not q.ready
          order by q.eligible_at, q.visited limit 1)
        union all
        (select q.eligible_at from partitions q
          where q.policy_id = p.id and q.shard = s.shard and q.ready order by q.fair_key limit 1)
      ) x),
    case when exists (
        select from freed f
        where f.policy_id = p.id and (p_bounded or p_shard is null or exists (
          select from partitions q where q.blocked_on = f.limiter_id and q.shard = p_shard)))
      or (p.enabled and _with_new_shares(p.id, 1) <> '{}') then timestamptz '-infinity' end,
    (select l.wake_at from limiters l
      where l.policy_id = p.id and l.wake_at is not null order by l.wake_at limit 1),
    case when not p.enabled then null when exists (
        select from overrides o where o.policy_id = p.id and o.to_announce <> '{}')
      then '-infinity' when p_now is not null then (
        select min(case when o.announce_again_at <= p_now then o.announce_at else least(o.announce_at, o.announce_again_at) end)
        from overrides o where o.policy_id = p.id)
      else (
        select least(o.announce_at, o.announce_again_at) from overrides o
        where o.policy_id = p.id order by least(o.announce_at, o.announce_again_at) limit 1) end
  ) as at) e
  where p.name = p_policy);
end
$$;
