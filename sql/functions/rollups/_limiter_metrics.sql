-- How full the caps of each gate are. A shadow gate is never over its limit, because it has none. Only limiters that jobs occupy count, at most 10,000 of a policy.
create or replace function _limiter_metrics(p_now timestamptz, p_policy_id int)
returns table (name text, labels jsonb, value float8) language plpgsql stable as $$
begin
  return query
  with gate as materialized (
    select p.name as policy, l.gate, max(l.in_flight::float8 / nullif(l.cap, 0)) as used,
      count(*) filter (where l.in_flight >= l.cap) as full, count(*) filter (where l.in_flight > l.cap and l.shadow_slots is null) as over,
      min(l.cap) filter (where l.kind = 'adaptive_concurrency') as least,
      count(*) filter (where case when l.kind = 'adaptive_concurrency' then l.cap <= (   -- only of these: else it joins them all
        select (o.numbers).min from limiters o where o.id = l.id) end) as lowest
    from policies p
    cross join lateral _rooms_of(p.id, array(
      select x.id from limiters x
      where x.policy_id = p.id and x.in_flight > 0 and x.kind <> 'ahead' and not x.by_tokens limit 10000), p_now, false) l
    where p_policy_id is null or p.id = p_policy_id
    group by p.name, l.gate
  )
  select m.name, jsonb_build_object('policy', g.policy, 'gate', g.gate), m.value::float8
  from gate g
  cross join lateral (
    values ('limiter_utilization_ratio', g.used), ('full_limiters', g.full), ('limiters_over_limit', g.over),
      ('adaptive_limit', g.least), ('limiters_at_minimum', case when g.least is not null then g.lowest end)
  ) m (name, value)
  where m.value is not null;
end
$$;
