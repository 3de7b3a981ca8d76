-- The caps of a policy's adaptive gates over time: a row for each step since a time and each limiter whose cap has changed.
-- Of these it returns the six with the lowest caps. A step without a change has the cap of the one before.
--
--   gate, key     the limiter. The key is empty if the gate counts over the policy
--   minute        when the step begins
--   lowest, last  the lowest cap in the step, and the one at its end. Null: not known, because it has not changed before
--
--   select * from dispatch_policy.adaptive_caps('fetch_endpoint', now() - interval '1 hour', '1 minute');
create or replace function :DISPATCH_POLICY_SCHEMA.adaptive_caps(policy text, since timestamptz, step interval)
returns table (gate text, key text, minute timestamptz, lowest int, last int)
language sql stable
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp set jit = off as $$
  with it as materialized (
    select (p).id, date_bin(adaptive_caps.step, adaptive_caps.since, '2000-01-01Z') as since
    from _policy(adaptive_caps.policy) p
  ),
  stored as materialized (
    select c.gate, c.scope_key, date_bin(adaptive_caps.step, c.minute, '2000-01-01Z') as at, c.minute, c.lowest, c.last
    from it i join caps c on c.policy_id = i.id and c.minute >= i.since
  ),
  limiter as materialized (
    select s.gate, s.scope_key from stored s group by s.gate, s.scope_key order by min(s.lowest), s.gate, s.scope_key limit 6
  ),
  stepped as materialized (
    select s.gate, s.scope_key, s.at, min(s.lowest) as lowest, (array_agg(s.last order by s.minute desc))[1] as last
    from stored s group by s.gate, s.scope_key, s.at
  ),
  -- the cap before the first step
  before as materialized (
    select l.gate, l.scope_key, (
        select c.last from caps c
        where (c.policy_id, c.gate, c.scope_key) = (i.id, l.gate, l.scope_key) and c.minute < i.since
        order by c.minute desc limit 1) as last
    from limiter l cross join it i
  )
  select l.gate, l.scope_key, g.at, coalesce(s.lowest, k.last), coalesce(s.last, k.last)
  from it i
  cross join generate_series(i.since, statement_timestamp(), adaptive_caps.step) g (at)
  cross join limiter l
  left join stepped s on (s.gate, s.scope_key, s.at) = (l.gate, l.scope_key, g.at)
  left join lateral (
    select x.last from (
      select p.at, p.last from stepped p where (p.gate, p.scope_key) = (l.gate, l.scope_key) and p.at < g.at
      union all
      select '-infinity', b.last from before b where (b.gate, b.scope_key) = (l.gate, l.scope_key)
    ) x order by x.at desc limit 1) k on true
  order by l.gate, l.scope_key, g.at;
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.adaptive_caps from public;
