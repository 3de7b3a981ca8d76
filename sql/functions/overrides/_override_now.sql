-- The numbers that overrides give a limiter now (`set`, null: none is in force) and until when, and when they last gave it
-- others (`turned_at`, null: never). It takes the override that _override_id_at takes.
--
-- It is a query without plpgsql, so that PostgreSQL puts it into that of _rooms_of. Each look-up goes by an index, because
-- there may be an override for each of 10,000 accounts. A policy that has none of a kind pays for one look at each kind.
create or replace function _override_now(
  p_policy_id int, limiter limiters, p_now timestamptz
) returns table (set jsonb, until_at timestamptz, turned_at timestamptz) language sql stable as $$
  select (array_agg(o.set order by o.rank, o.id desc) filter (where p_now < o.until_at))[1],
    (array_agg(o.until_at order by o.rank, o.id desc) filter (where p_now < o.until_at))[1],
    max(greatest(o.began_at, case when p_now >= o.until_at then o.until_at end))
  from (
    select x.*, 1 as rank from _overrides_by(p_policy_id, p_now) x
    where x.gate = limiter.gate and x.scope_key = limiter.scope_key and exists (
      select from overrides y
      where y.policy_id = p_policy_id and y.scope_key is not null)
    union all
    select x.*, 2 from partitions q
    cross join unnest(_pairs_of(q.context)) u (pair)
    cross join lateral (
      select y.* from _overrides_by(p_policy_id, p_now) y
      where y.context_pair = u.pair offset 0   -- planned by itself: else it read all of them for each limiter
    ) x
    where limiter.breadth = 0 and x.gate = limiter.gate and q.context @> x.context
      and q.id = _partition_id(
        (select p.name from policies p where p.id = p_policy_id), limiter.scope_key)
      and exists (
        select from overrides y
        where y.policy_id = p_policy_id and y.context_pair is not null)
    union all
    select x.*, 3 from _overrides_by(p_policy_id, p_now) x
    where x.gate = limiter.gate and x.scope_key is null and x.context_pair is null
  ) o;
$$;
