-- How many jobs of each claimed partition are ranked.
--
--   p_all   all that may go; else only as many as the partition's share could be
--
-- The share: let there be room for n jobs over k partitions. The n smallest virtual times are below the level at which n +
-- k jobs would be, if every partition had enough. That level is the least of (n + k + admits) / weight, summed over the
-- partitions with the smallest admits / weight.
--
-- If fairness is by work, a partition's admits and weight are in its own jobs. Both are divided by what one of them counts
-- for, which leaves admits / weight as it is.
create or replace function _offers(
  p_policy policies, p_claimed claimed[],
  p_uses use[], p_now timestamptz, p_all boolean,
  out offers offer[],
  out most float8   -- what all of them together may have
) language plpgsql stable as $$   -- planned as _allocate
begin
  with room as materialized (
    select u.partition_id, count(u.limiter_id) as known, min(u.jobs) as jobs,
      min(u.jobs) filter (where u.breadth >= 2) as broad_jobs,
      coalesce(min(u.tokens) filter (where u.breadth = 0), 'Infinity') as bucket,
      coalesce(min(u.tokens) filter (
        where u.breadth = 0 and not _is_full(u.tokens, u.capacity)), 'Infinity') as unfilled_bucket
    from unnest(p_uses) u group by u.partition_id
  ),
  part as materialized (
    select p.id, p.head_priority, p.head_run_at, p.head_id, p.weight / e.work as weight,
      case when d.decayed < e.work / 1000 then 0 else d.decayed / e.work end as decayed,   -- as _fair_key
      greatest(0, least((p_policy).batch_size,
        case when r.known < cardinality(p.limiter_ids) then 0 else r.jobs end,
        case when p.probing then case when p.probe_job_id is null then 1 else 0 end end))::int as allow,
      (p_policy).fair_by_work and r.jobs > (p_policy).batch_size and not p.probing as goes_on,
      _is_new(p_policy, p.admitted_at, p_now) as is_new,
      p.goes_first,
      coalesce(r.broad_jobs, 1e6) as broad_jobs,
      coalesce(r.bucket, 'Infinity') as bucket, coalesce(r.unfilled_bucket, 'Infinity') as unfilled_bucket
    from unnest(p_claimed) p
    left join room r on r.partition_id = p.id
    cross join lateral (select coalesce(_work_of(p_policy, p.mean_work), 1) as work) e
    cross join lateral (
      select _decayed(p.decayed_admits, p.decayed_at, (p_policy).half_life, p_now) as decayed) d
  ),
  total as materialized (
    select least(max(p.broad_jobs), (p_policy).admission_budget) as jobs, count(*) as partitions, sum(p.allow) as allow
    from part p where p.allow > 0
  ),
  level as materialized (
    select min(x.level) as vt from (
      select (t.jobs + t.partitions + sum(p.decayed) over w) / sum(p.weight) over w as level
      from part p cross join total t
      where p.allow > 0 and not p_all and t.jobs < t.allow and (p_policy).half_life is not null
      window w as (order by p.decayed / p.weight, p.id rows unbounded preceding)
    ) x
  )
  select array_agg(row(
      p.id, p.head_priority, p.head_run_at, p.head_id, p.weight, p.decayed, p.allow,
      case when p.allow = 0 then 0 else greatest(1, least(p.allow::float8,
        case when not p_all and (p_policy).half_life is null then t.jobs end,
        floor(v.vt * p.weight - p.decayed + 1e-6)))::int end,
      p.bucket, p.unfilled_bucket, p.goes_on, p.is_new, p.goes_first)::offer),
    min(t.jobs)
  into offers, most
  from part p cross join total t cross join level v;
end
$$;
