-- Applies what ended jobs say about a partition that is probing, or whose policy has a breaker.
--
-- The end of a probe lets the next job go: all of them if it succeeded, else the next probe. That is so as well if nobody
-- saw its end, because its slot was freed. A breaker opens at `breaker_failures` failures within `breaker_within`,
-- counted from the first of them, and if a probe fails. It stops the partition for `breaker_cooldown`, beside any hold;
-- then the partition is probed. If the policy has a history, that has the breaker's time.
create or replace function _route_outcomes(
  p_policy policies, p_arrivals arrivals[],
  p_now timestamptz
) returns void language sql volatile as $$
  with outcome as materialized (
    select a.partition_id, sum((a.outcome ->> 'failures')::int) as failures,
      max((a.outcome ->> 'probe')::bigint) as probe, bool_or((a.outcome ->> 'passed')::boolean) as passed
    from unnest(p_arrivals) a where a.outcome ? 'failures' group by a.partition_id
  ),
  verdict as materialized (
    select q.id, e.ended, coalesce(e.ended and o.passed, false) as passed, c.since, c.failures,
      coalesce((p_policy).breaker_failures <= c.failures or (e.ended and not o.passed), false)
        and (p_policy).breaker_failures is not null as opens
    from outcome o
    join partitions q on q.id = o.partition_id
    cross join lateral (select coalesce(q.probe_job_id = o.probe, false) as ended) e
    cross join lateral (
      select case when s.fresh then p_now else q.failures_since end as since,
        case when s.fresh then o.failures else q.failures + o.failures end as failures
      from (select (q.failures_since between p_now - make_interval(secs => (p_policy).breaker_within)
        and p_now + interval '1 second') is not true as fresh) s   -- a time further ahead comes from a wrong clock
    ) c
  ),
  updated as (
    update partitions q set
      probe_job_id = case when not v.ended then q.probe_job_id end,
      probing = v.opens or (q.probing and not v.passed),
      failures = case when v.opens then 0 else v.failures end,
      failures_since = case when not v.opens then v.since end,
      breaker_until = case when v.opens
        then greatest(q.breaker_until, p_now + make_interval(secs => (p_policy).breaker_cooldown)) else q.breaker_until end,
      denied_until = case when v.opens or v.ended then '-infinity' else q.denied_until end,
      blocked_on = case when not v.opens then q.blocked_on end,
      waiting_since = case when not v.opens then q.waiting_since end,
      denied_reason = case when not v.opens and not v.ended then q.denied_reason end,
      breaker_reason = case when v.opens then case when v.ended then 'a probe failed'
        else format('%s failures within %s s', v.failures, (p_policy).breaker_within) end else q.breaker_reason end
    from verdict v where q.id = v.id
    returning q.id, q.limiter_ids, q.breaker_until, v.opens
  )
  select _leave_lines((p_policy).id, u.id, u.limiter_ids),
    case when (p_policy).history_kept_for is not null then
      _record_stop((p_policy).id, u.id, 'breaker_open', u.breaker_until, p_now) end
  from updated u where u.opens;
$$;
