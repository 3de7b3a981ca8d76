-- For pages, and nothing else calls it: the figures of one policy, now and over time.

-- The figures of one policy, as metrics has them. With many policies it reads a fraction of what metrics reads.
--
--   names   only these, as in metrics
--
--   select * from dispatch_policy.policy_metrics('fetch_endpoint', '{admissible_jobs}');
create or replace function :DISPATCH_POLICY_SCHEMA.policy_metrics(policy text, names text[] default null)
returns table (name text, labels jsonb, value float8) language plpgsql stable
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set jit = off as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
begin
  return query select * from _figures(v_now, (_policy(policy_metrics.policy)).id, policy_metrics.names);
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.policy_metrics from public;

-- What a policy, or all of them together, did in steps of minutes, for charts: the columns as in the view `minutes`. Jobs are
-- counted together before their quantiles are taken: those of several policies or minutes cannot be averaged. The last row,
-- whose minute is null, is that of all steps together.
--
--   policy   null: all policies
--   since    the first step has this time in it
--   step     how long each step is, in whole minutes. Steps begin at whole multiples of it since 2000
--
--   select * from dispatch_policy.minutes_in_steps('fetch_endpoint', now() - interval '1 day', '20 minutes');
create or replace function :DISPATCH_POLICY_SCHEMA.minutes_in_steps(policy text, since timestamptz, step interval)
returns table (
  minute timestamptz, staged bigint, admitted bigint, dropped bigint, succeeded bigint, failed bigint,
  denied jsonb, shadow_denied jsonb, wait_p50_seconds float8, wait_p95_seconds float8, wait_max_seconds float8,
  lag_p50_seconds float8, lag_p95_seconds float8, lag_max_seconds float8,
  run_p50_seconds float8, run_p95_seconds float8, run_max_seconds float8, passes bigint, pass_seconds float8)
language sql stable
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp set jit = off as $$
  with minute as not materialized (
    select date_bin(minutes_in_steps.step, m.minute, '2000-01-01Z') as at, m.*
    from minutes m
    where m.minute >= date_bin(minutes_in_steps.step, minutes_in_steps.since, '2000-01-01Z')
      and m.policy_id = any(array(
        select p.id from policies p where minutes_in_steps.policy is null or p.name = minutes_in_steps.policy))
  ),
  summed as materialized (
    select m.at, sum(m.staged)::bigint as staged, sum(m.admitted)::bigint as admitted,
      sum(m.dropped)::bigint as dropped, sum(m.succeeded)::bigint as succeeded, sum(m.failed)::bigint as failed,
      max(m.wait_max) as wait_max, max(m.lag_max) as lag_max, max(m.run_max) as run_max,
      sum(m.passes)::bigint as passes, sum(m.pass_seconds) as pass_seconds
    from minute m group by grouping sets ((m.at), ()) having count(*) > 0
  ),
  -- one after the other: together PostgreSQL sorts them all by their texts, which takes five times as long
  counted as materialized (
    select m.at, 'waits' as kind, e.key, sum(e.value::bigint) as jobs
    from minute m cross join lateral jsonb_each_text(m.waits) e group by m.at, e.key
    union all
    select m.at, 'lags', e.key, sum(e.value::bigint)
    from minute m cross join lateral jsonb_each_text(m.lags) e group by m.at, e.key
    union all
    select m.at, 'runs', e.key, sum(e.value::bigint)
    from minute m cross join lateral jsonb_each_text(m.runs) e group by m.at, e.key
    union all
    select m.at, 'denied', e.key, sum(e.value::bigint)
    from minute m cross join lateral jsonb_each_text(m.denied) e group by m.at, e.key
    union all
    select m.at, 'shadow_denied', e.key, sum(e.value::bigint)
    from minute m cross join lateral jsonb_each_text(m.shadow_denied) e group by m.at, e.key
  ),
  each as (
    select c.at, c.kind, c.key, c.jobs from counted c
    union all
    select null, c.kind, c.key, sum(c.jobs) from counted c group by c.kind, c.key
  ),
  listed as materialized (
    select c.at, jsonb_object_agg(c.key, c.jobs) filter (where c.kind = 'waits') as waits,
      jsonb_object_agg(c.key, c.jobs) filter (where c.kind = 'lags') as lags,
      jsonb_object_agg(c.key, c.jobs) filter (where c.kind = 'runs') as runs,
      jsonb_object_agg(c.key, c.jobs) filter (where c.kind = 'denied') as denied,
      jsonb_object_agg(c.key, c.jobs) filter (where c.kind = 'shadow_denied') as shadow_denied
    from each c group by c.at
  )
  select s.at, s.staged, s.admitted, s.dropped, s.succeeded, s.failed,
    coalesce(c.denied, '{}'), coalesce(c.shadow_denied, '{}'),
    _quantile(0.5, c.waits, s.wait_max), _quantile(0.95, c.waits, s.wait_max), s.wait_max,
    _quantile(0.5, c.lags, s.lag_max), _quantile(0.95, c.lags, s.lag_max), s.lag_max,
    _quantile(0.5, c.runs, s.run_max), _quantile(0.95, c.runs, s.run_max), s.run_max, s.passes, s.pass_seconds
  from summed s left join listed c on c.at is not distinct from s.at
  order by s.at;
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.minutes_in_steps from public;

-- The caps of a policy's adaptive gates over time: a row for each step since a time and each limiter whose cap has changed.
-- Of these it returns the six with the lowest caps. A step without a change has the cap of the one before.
--
--   gate, key     the limiter. The key is empty if the gate counts over the policy
--   minute        when the step begins
--   lowest, last  the lowest cap in the step, and the one at its end. Null: not known, because it has not changed before
--
--   select * from dispatch_policy.adaptive_caps('fetch_endpoint', now() - interval '1 hour', '1 minute');
create or replace function :DISPATCH_POLICY_SCHEMA.adaptive_caps(policy text, since timestamptz, step interval)
returns table (gate text, key text, minute timestamptz, lowest int, last int) language sql stable
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp set jit = off as $$
  with it as materialized (
    select (p).id, date_bin(adaptive_caps.step, adaptive_caps.since, '2000-01-01Z') as since
    from _policy(adaptive_caps.policy) p
  ),
  stored as materialized (
    select c.gate, c.key, date_bin(adaptive_caps.step, m.minute, '2000-01-01Z') as at, m.minute, c.lowest, c.last
    from it i
    join minutes m on m.policy_id = i.id and m.minute >= i.since
    cross join jsonb_to_recordset(m.caps) c (gate text, key text, lowest int, last int)
  ),
  limiter as materialized (
    select s.gate, s.key from stored s group by s.gate, s.key order by min(s.lowest), s.gate, s.key limit 6
  ),
  stepped as materialized (
    select s.gate, s.key, s.at, min(s.lowest) as lowest, (array_agg(s.last order by s.minute desc))[1] as last
    from stored s group by s.gate, s.key, s.at
    union all
    -- the cap before the first step
    select l.gate, l.key, '-infinity', null, (
      select c.last from minutes m
      cross join jsonb_to_recordset(m.caps) c (gate text, key text, last int)
      where m.policy_id = i.id and m.minute < i.since and (c.gate, c.key) = (l.gate, l.key)
      order by m.minute desc limit 1)
    from limiter l cross join it i
  )
  select l.gate, l.key, g.at, coalesce(s.lowest, k.last), coalesce(s.last, k.last)
  from it i
  cross join generate_series(i.since, statement_timestamp(), adaptive_caps.step) g (at)
  cross join limiter l
  left join stepped s on (s.gate, s.key, s.at) = (l.gate, l.key, g.at)
  left join lateral (
    select p.last from stepped p
    where (p.gate, p.key) = (l.gate, l.key) and p.at < g.at order by p.at desc limit 1) k on true
  order by l.gate, l.key, g.at;
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.adaptive_caps from public;
