-- Works out again the fair keys of partitions that are in line and that nobody has looked at for a half-life, the oldest
-- first. It does so for a few of each limiter's line, or of each shard's if `p_limiter_ids` is null. It skips locked
-- ones.
create or replace function _refresh_keys(
  p_policy policies, p_limiter_ids bigint[], p_shards text[], p_now timestamptz
) returns void language plpgsql as $$
declare
  v_long_since timestamptz := p_now - make_interval(secs => (p_policy).half_life);
  v_ids uuid[];
begin
  if p_limiter_ids is not null then
    v_ids := array(
      select x.id from unnest(p_limiter_ids) l (id)
      cross join lateral (
        select q.id from partitions q
        where q.blocked_on = l.id and q.looked_at < v_long_since order by q.looked_at limit 10
        for no key update skip locked
      ) x);
  else
    v_ids := array(
      select x.id from unnest(p_shards) s (shard)
      cross join lateral (
        select q.id from partitions q
        where q.policy_id = (p_policy).id and q.shard = s.shard and q.ready and q.looked_at < v_long_since
        order by q.looked_at limit 10
        for no key update skip locked
      ) x);
  end if;
  if v_ids <> '{}' then
    update partitions p set
      looked_at = p_now,
      fair_key = _fair_key(
        p_policy, _decayed(p.decayed_admits, p.decayed_at, (p_policy).half_life, p_now), p.mean_work,
        p.weight, p_now)
    where p.id = any(v_ids);
  end if;
end
$$;
