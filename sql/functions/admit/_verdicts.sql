-- Decides about each claimed partition: why due jobs stay, which limiter it waits for, and when it is looked at again if
-- nobody wakes it. It waits for the first limiter, narrow scopes first, that has no room for its next job. Of several
-- buckets of its own, it waits for the one that is ready last.
--
-- The reason is that of the limiter that lets go last; one whose time nobody knows counts as the last. So the reason may be
-- another gate's than the limiter that it waits for.
create or replace function :DISPATCH_POLICY_SCHEMA._verdicts(
  p_policy :DISPATCH_POLICY_SCHEMA._private_policies, p_leftovers :DISPATCH_POLICY_SCHEMA._private_leftover[],
  p_lacks :DISPATCH_POLICY_SCHEMA._private_lack[], p_now timestamptz
) returns :DISPATCH_POLICY_SCHEMA._private_verdict[] language plpgsql stable as $$   -- planned as _charge
begin
  return array(
    select row(
        p, k,
        case when p.head_id is null then null
          when p.probe_job_id is not null then 'probing'
          when k.partition_id is not null then w.last_reason
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
            case when k.breadth = 0 then w.own_ready_at else 'infinity' end, (
              -- A job that is not due yet may come before its next one, and cost less. So the partition is looked at when
              -- it is due. Of the first twenty; after them the partition is looked at again.
              select min(greatest(x.at, p_now + interval '50 milliseconds')) from (
                select y.*, row_number() over () as place from (
                  select coalesce(s.retry_at, s.run_at) as at, s.priority, s.run_at, s.id
                  from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s
                  where s.partition_id = p.partition_id and not s.due order by coalesce(s.retry_at, s.run_at) limit 20
                ) y
              ) x
              where (x.priority, x.run_at, x.id) < (p.head_priority, p.head_run_at, p.head_id) or x.place = 20
                or (p_policy).job_order is not null))
          else 'infinity' end,
        -- also on a bucket of its own, whose time is known, because other numbers change that time
        case when p.head_id is null or p.probe_job_id is not null then null
          when k.breadth = 0 and k.by_tokens then w.own_id
          else k.limiter_id end):::DISPATCH_POLICY_SCHEMA._private_verdict
    from unnest(p_leftovers) p
    left join (
      -- of its own buckets, the one that is ready last; of all limiters without room, the reason of the last
      select distinct on (x.partition_id) x.partition_id, x as lack,
        first_value(x.ready_at) over own as own_ready_at,
        first_value(x.limiter_id) over own as own_id,
        first_value(x.reason) over (
          partition by x.partition_id order by x.lets_go_at desc, x.ord) as last_reason
      from unnest(p_lacks) x
      window own as (partition by x.partition_id order by x.breadth, x.ready_at desc nulls last, x.ord)
      order by x.partition_id, x.ord
    ) w on w.partition_id = p.partition_id
    cross join lateral (select (w.lack).*) k);
end
$$;
