-- Decides about each claimed partition: why due jobs stay, which limiter it waits for, and when it is looked at again if
-- nobody wakes it. It waits for the first limiter, narrow scopes first, that has no room for its next job. Of several
-- buckets of its own, it waits for the one that is ready last. The reason is that limiter's. The others' may show later.
create or replace function _verdicts(
  p_policy policies, p_leftovers leftover[],
  p_lacks lack[], p_now timestamptz
) returns verdict[] language plpgsql stable as $$   -- planned as _charge
begin
  return array(
    select row(
        p, k,
        case when p.head_id is null then null
          when p.probe_job_id is not null then 'probing'
          when k.partition_id is not null then k.reason
          when p.head_chosen is true then null
          when p.admitted >= (p_policy).batch_size then 'batch'
          else 'tick_budget' end,
        case when p.head_id is null then null
          when p.probe_job_id is not null then 'infinity'   -- until the release of the probe is routed
          -- it was chosen, but another session has its row locked
          when k.partition_id is null and p.head_chosen is true then p_now + interval '50 milliseconds'
          when k.partition_id is null then null
          when k.limiter_id is null then p_now + interval '1 second'
          when k.by_tokens then least(
            case when k.breadth = 0 then k.ready_at else 'infinity' end,
            _earlier_at(p.partition_id, p.head_priority, p.head_run_at, p.head_id, (p_policy).job_order is not null, p_now))
          else 'infinity' end,
        -- also on a bucket of its own, whose time is known, because other numbers change that time
        case when p.head_id is not null and p.probe_job_id is null then k.limiter_id end)::verdict
    from unnest(p_leftovers) p
    left join (
      select distinct on (x.partition_id) x.partition_id, x as first,
        first_value(x) over (
          partition by x.partition_id order by x.breadth, x.by_tokens desc, x.ready_at desc nulls last, x.ord) as own
      from unnest(p_lacks) x order by x.partition_id, x.ord
    ) w on w.partition_id = p.partition_id
    cross join lateral (
      select (case when (w.first).breadth = 0 and (w.first).by_tokens then w.own else w.first end).*) k);
end
$$;
