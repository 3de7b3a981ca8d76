-- Locks up to `p_claim` eligible partitions of the shard (null: of each shard), in fair order. Of equals, those that have
-- been eligible for longest go first.
--
-- In the order in which they became eligible, a partition of weight 100 waited for all of 50,000 others. Fair order needs an
-- index, and an index knows nothing of now. So partitions that were eligible when somebody looked at them are `ready`, and
-- have that index. The others are found by their time. Those that a pass finds and does not claim, it makes ready.
--
-- So many may become due at one time that a pass does not find all. Then it also looks at some of the lowest fair keys
-- among those that wait for a time. Without that, a heavy partition among 50,000 was found 48 passes later.
--
-- Beside them it locks a tenth as many that have been in line for longest. They may never be among the first in fair
-- order. The pass decides as for all others whether they go.
--
-- `p_now` must be a parameter: compared with clock_timestamp(), the index is not used (10.4 ms instead of 0.02).
create or replace function _claim(
  p_policy policies, p_shard text, p_claim int, p_now timestamptz
) returns uuid[] language plpgsql as $$
declare
  v_shards text[] := case when p_shard is null
    then _shards((p_policy).id) else array[p_shard] end;
  v_long_since timestamptz := _long_since(p_now);
  v_oldest int := case when (p_policy).half_life is null then 0 else (p_claim + 9) / 10 end;
  v_ids uuid[];
  v_lined_up uuid[];
begin
  perform _refresh_keys(p_policy, null, v_shards, p_now);
  with timed as materialized (
    select c.* from unnest(v_shards) s (shard)
    cross join lateral (
      select p.id, p.fair_key, p.eligible_at from partitions p
      where p.policy_id = (p_policy).id and p.shard = s.shard and not p.ready
        and p.eligible_at < 'infinity' and p.eligible_at <= p_now
      order by p.eligible_at, p.visited limit p_claim + 1000
      for no key update skip locked
    ) c
  ),
  among_many as materialized (
    select p.id, p.fair_key, p.eligible_at from partitions p
    where p.id = any(array(
        select x.id from unnest(v_shards) s (shard)
        cross join lateral (
          select q.id, q.eligible_at from partitions q
          where q.policy_id = (p_policy).id and q.shard = s.shard and not q.ready and q.eligible_at < 'infinity'
          order by q.fair_key limit p_claim + 50
        ) x
        where x.eligible_at <= p_now and (select count(*) from timed) >= p_claim + 1000))
      and not p.ready and p.eligible_at <= p_now
    for no key update skip locked
  ),
  ready as materialized (
    select c.* from unnest(v_shards) s (shard)
    cross join lateral (
      select p.id, p.fair_key, p.eligible_at from partitions p
      where p.policy_id = (p_policy).id and p.shard = s.shard and p.ready and p.eligible_at <= p_now
      order by p.fair_key, p.eligible_at limit p_claim
      for no key update skip locked
    ) c
  ),
  oldest as materialized (
    select c.* from unnest(v_shards) s (shard)
    cross join lateral (
      select p.id from partitions p
      where p.policy_id = (p_policy).id and p.shard = s.shard and p.ready and p.in_line_since <= v_long_since
        and p.eligible_at <= p_now
      order by p.in_line_since limit v_oldest
      for no key update skip locked
    ) c
  ),
  chosen as materialized (
    (select c.id from (select * from timed union select * from among_many union all select * from ready) c
    order by c.fair_key, c.eligible_at limit p_claim * cardinality(v_shards))
    union
    select o.id from oldest o
  )
  select (select array_agg(c.id) from chosen c), array(select t.id from timed t where t.id not in (select c.id from chosen c))
  into v_ids, v_lined_up;
  if v_lined_up <> '{}' then
    update partitions p set looked_at = p_now, in_line_since = p_now where p.id = any(v_lined_up);
  end if;
  return v_ids;
end
$$;
