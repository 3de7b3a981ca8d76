-- The time below which a share of the counted jobs were, in seconds. Within a bucket they count as spread evenly, as
-- Prometheus's histogram_quantile does. Null: none was counted. Above the last bound: that bound.
--
-- Its body is parsed once, when it is made, and so names the same operators under any search_path.
create or replace function :DISPATCH_POLICY_SCHEMA._quantile(p_share float8, p_counts bigint[]) returns float8
language sql immutable return (
  select case when b.upper is null then b.lower
    else b.lower + (b.upper - b.lower) * (p_share * b.all_jobs - (b.up_to - b.jobs))::float8 / b.jobs end
  from (
    select c.jobs, sum(c.jobs) over (order by c.n) as up_to, sum(c.jobs) over () as all_jobs,
      coalesce((:DISPATCH_POLICY_SCHEMA._buckets())[c.n - 1], 0) as lower, (:DISPATCH_POLICY_SCHEMA._buckets())[c.n] as upper
    from unnest(p_counts) with ordinality c (jobs, n)
  ) b
  where b.jobs > 0 and b.up_to >= p_share * b.all_jobs
  order by b.up_to limit 1);
