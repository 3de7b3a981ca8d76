-- What a policy, or all of them together, did in steps of minutes, for charts: the columns as in the view `minutes`. Jobs
-- are counted together before their quantiles are taken. Those of several policies or minutes cannot be averaged.
--
--   policy   null: all policies
--   since    the first step has this time in it
--   step     how long each step is, in whole minutes. Steps begin at whole multiples of it since 2000
--
--   select * from dispatch_policy.minutes_in_steps('fetch_endpoint', now() - interval '1 day', '20 minutes');
create or replace function :DISPATCH_POLICY_SCHEMA.minutes_in_steps(policy text, since timestamptz, step interval)
returns table (
  minute timestamptz, staged bigint, admitted bigint, dropped bigint, succeeded bigint, failed bigint,
  denied jsonb, shadow_denied jsonb, wait_p50_seconds float8, wait_p95_seconds float8, lag_p50_seconds float8,
  lag_p95_seconds float8)
language sql stable
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp set jit = off as $$
  with minute as not materialized (
    select date_bin(minutes_in_steps.step, m.minute, '2000-01-01Z') as at, m.*
    from minutes m
    where m.minute >= date_bin(minutes_in_steps.step, minutes_in_steps.since, '2000-01-01Z')
      and m.policy_id = any(array(
        select p.id from policies p
        where minutes_in_steps.policy is null or p.name = minutes_in_steps.policy))
  ),
  summed as materialized (
    select m.at, sum(m.staged)::bigint as staged, sum(m.admitted)::bigint as admitted,
      sum(m.dropped)::bigint as dropped, sum(m.succeeded)::bigint as succeeded, sum(m.failed)::bigint as failed
    from minute m group by m.at
  ),
  -- one after the other: together PostgreSQL sorts them all by their texts, which takes five times as long
  counted as materialized (
    select m.at, 'waits' as kind, e.key, sum(e.value::bigint) as jobs
    from minute m cross join lateral jsonb_each_text(m.waits) e group by m.at, e.key
    union all
    select m.at, 'lags', e.key, sum(e.value::bigint)
    from minute m cross join lateral jsonb_each_text(m.lags) e group by m.at, e.key
    union all
    select m.at, 'denied', e.key, sum(e.value::bigint)
    from minute m cross join lateral jsonb_each_text(m.denied) e group by m.at, e.key
    union all
    select m.at, 'shadow_denied', e.key, sum(e.value::bigint)
    from minute m cross join lateral jsonb_each_text(m.shadow_denied) e group by m.at, e.key
  ),
  listed as materialized (
    select c.at, jsonb_object_agg(c.key, c.jobs) filter (where c.kind = 'waits') as waits,
      jsonb_object_agg(c.key, c.jobs) filter (where c.kind = 'lags') as lags,
      jsonb_object_agg(c.key, c.jobs) filter (where c.kind = 'denied') as denied,
      jsonb_object_agg(c.key, c.jobs) filter (where c.kind = 'shadow_denied') as shadow_denied
    from counted c group by c.at
  )
  select s.at, s.staged, s.admitted, s.dropped, s.succeeded, s.failed,
    coalesce(c.denied, '{}'), coalesce(c.shadow_denied, '{}'),
    _quantile(0.5, c.waits), _quantile(0.95, c.waits),
    _quantile(0.5, c.lags), _quantile(0.95, c.lags)
  from summed s left join listed c on c.at = s.at
  order by s.at;
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.minutes_in_steps from public;
