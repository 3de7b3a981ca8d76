-- Reports ends to the router: how a probe ended, failures for a breaker, how long jobs ran. It locks no partition. It leaves
-- an arrival, and the router changes the partition. Returns whether a breaker or a probe waits for it.
--
-- A failure that says nothing of the partner counts as an end that nobody saw: its probe is followed by another one.
create or replace function _report_ends(
  p_gone in_flight_jobs[], p_jobs finished_job[]
) returns boolean language plpgsql volatile as $$
declare
  v_policies text[];
begin
  with reported as (
    insert into arrivals (policy, partition_id, key, outcome)
    select e.policy, e.partition_id, e.key,
      case when e.counts then jsonb_build_object('failures', e.failures, 'probe', e.probe, 'passed', e.passed) else '{}' end
        || case when e.ended > 0
          then jsonb_build_object('ended', e.ended, 'worked', e.worked, 'work', e.worked - e.charged) else '{}' end
    from (
      select x.*, x.probe is not null or (x.failures > 0 and x.breaks) as counts
      from (
        select p.name as policy, p.breaker_failures is not null as breaks, g.partition_id, x.key,
          count(*) filter (where not f.ok and not f.says_nothing) as failures,
          max(g.job_id) filter (where g.job_id = x.probe_job_id) as probe,
          bool_and(f.ok) filter (where g.job_id = x.probe_job_id and not f.says_nothing) as passed,
          count(f.duration_ms) filter (where p.fair_by_work) as ended,
          sum(f.duration_ms) / 1000 as worked, coalesce(sum(g.work) filter (where f.duration_ms is not null), 0) as charged
        from unnest(p_gone) g
        join unnest(p_jobs) f on f.job = g.job_id
          and _is_end_of(f.admission, f.attempt, g.admission, g.attempt)
        join partitions x
          on x.id = g.partition_id and x.id = any(array(select y.partition_id from unnest(p_gone) y))
        join policies p on p.id = g.policy_id
        group by p.id, g.partition_id, x.key
      ) x
    ) e
    where e.counts or e.ended > 0
    returning policy, outcome ? 'failures' as counts
  )
  select array_agg(distinct r.policy) into v_policies from reported r where r.counts;
  perform _notify(u.policy) from unnest(v_policies) u (policy);
  return v_policies is not null;
end
$$;
