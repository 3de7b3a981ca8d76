-- How long jobs waited until their admission, how long they then waited to start, and how long they ran. As in
-- Prometheus's histograms, each row says how many took at most so many seconds.
create or replace function :DISPATCH_POLICY_SCHEMA._histogram_metrics()
returns table (name text, labels jsonb, value float8) language plpgsql stable as $$
begin
  return query
  with kind as materialized (
    select p.name as policy, k.name, k.seconds,
      coalesce(nullif(k.counts, '{}'), array_fill(0::bigint, array[cardinality(:DISPATCH_POLICY_SCHEMA._buckets()) + 1])) as counts
    from :DISPATCH_POLICY_SCHEMA._private_policies p
    join :DISPATCH_POLICY_SCHEMA._private_minutes t on t.policy_id = p.id and t.minute = '-infinity'
    cross join lateral (
      values ('wait_seconds', t.waits, t.wait_seconds), ('queue_lag_seconds', t.lags, t.lag_seconds),
        ('run_seconds', t.runs, t.run_seconds)
    ) k (name, counts, seconds)
  )
  select k.name || '_bucket', jsonb_build_object('policy', k.policy, 'le', coalesce(b.le::text, '+Inf')),
    (sum(c.jobs) over (partition by k.policy, k.name order by c.n))::float8
  from kind k
  cross join lateral unnest(k.counts) with ordinality c (jobs, n)
  left join lateral (select (:DISPATCH_POLICY_SCHEMA._buckets())[c.n] as le) b on true
  union all
  select k.name || '_sum', jsonb_build_object('policy', k.policy), k.seconds from kind k
  union all
  select k.name || '_count', jsonb_build_object('policy', k.policy),
    (select sum(u.jobs) from unnest(k.counts) u (jobs))::float8
  from kind k;
end
$$;
