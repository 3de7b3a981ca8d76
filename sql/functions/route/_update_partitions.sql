-- Brings the partitions that exist (`p_known`) up to date with their arrivals. A partition that waits for tokens
-- is looked at again if its next job may be another, because that job may cost less.
create or replace function _update_partitions(
  p_policy policies, p_news news[],
  p_known known[],
  p_limiters limiter_ids[], p_now timestamptz
) returns void language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off set jit = off as $$   -- as _route_partitions
begin
  if exists (select from unnest(p_news) n where n.head_changed) then
    -- the partitions behind it in a shared throttle's line may need no more tokens than there are
    insert into freed (policy_id, limiter_id)
    select distinct (p_policy).id, l.id from unnest(p_news) n
    join unnest(p_known) k on k.id = n.partition_id
    cross join lateral (
      select x.id from limiters x
      where x.id = k.blocked_on and x.by_tokens and x.breadth > 0 limit 1
    ) l
    where n.head_changed;
  end if;
  update partitions p set
    -- one that a stop has made gets the shard of its first job
    shard = case when k.arrival_id = 0 then coalesce(n.shard, p.shard) else p.shard end,
    due_at = least(p.due_at, n.due_at), min_cost = least(p.min_cost, n.min_cost), staged = p.staged + n.jobs,
    head_priority = case when c.lower then n.head_priority else p.head_priority end,
    head_run_at = case when c.lower then n.head_run_at else p.head_run_at end,
    head_id = case when c.lower then n.head_id else p.head_id end,
    arrival_id = case when c.newer then (n.newest).id else p.arrival_id end,
    version = case when c.newer then (n.newest).version else p.version end,
    context = case when c.newer then coalesce((n.newest).context, p.context) else p.context end,
    weight = c.weight,
    -- one that is in line for its share keeps its place
    fair_key = case when k.due_at < 'infinity' and (k.weight = c.weight or (p_policy).half_life is null)
      then p.fair_key else _fair_key(p_policy, k.decayed, p.mean_work, c.weight, p_now) end,
    looked_at = case when k.ready or k.blocked_on is not null then p.looked_at else p_now end,
    in_line_since = case when k.ready or k.blocked_on is not null then p.in_line_since else p_now end,
    limits = case when c.newer then (n.newest).limits else p.limits end,
    limiter_ids = case when c.newer and (n.newest).limits is distinct from p.limits
      then coalesce(i.ids, '{}') || (p_policy).ahead_limiter_id else p.limiter_ids end,
    -- after the last admission by the limits before, whose pass may have read a later time
    limits_since = case when c.newer and (n.newest).limits is distinct from p.limits
      then greatest(p_now, p.admitted_at + interval '1 microsecond') else p.limits_since end,
    paused_until = coalesce(n.paused_until, p.paused_until),
    held_until = greatest(p.held_until, n.held_until),
    probing = p.probing or n.held_until is not null,
    stopped_by = case
      when n.pause is not null and _tells_of_stop(p.held_until, p.paused_until, (n.pause ->> 'held')::timestamptz, p_now)
      then n.pause ->> 'by' else p.stopped_by end,
    stop_reason = case
      when n.pause is not null and _tells_of_stop(p.held_until, p.paused_until, (n.pause ->> 'held')::timestamptz, p_now)
      then n.pause ->> 'reason' else p.stop_reason end,
    denied_until = case when n.pause is null and not m.looks_now
      then least(p.denied_until, m.looks_at) else '-infinity' end,
    blocked_on = case when n.pause is null and not m.looks_now then p.blocked_on end,
    denied_reason = case when n.pause is null and not m.looks_now then p.denied_reason end
  from unnest(p_news) n
  join unnest(p_known) k on k.id = n.partition_id
  left join unnest(p_limiters) i on i.partition_id = n.partition_id
  cross join lateral (
    -- an arrival says nothing of deadlines
    select x.lower, x.lower or (p_policy).job_order is not null as may_be_next,
      x.newer, case when x.newer then coalesce((n.newest).weight, k.weight) else k.weight end as weight
    from (select (n.newest).limits is not null
      and ((n.newest).version, (n.newest).id) > (k.version, k.arrival_id) as newer,
      (n.head_priority, n.head_run_at, n.head_id) <= (k.head_priority, k.head_run_at, k.head_id) as lower) x
  ) c
  cross join lateral (
    select (c.may_be_next or n.head_changed or n.later_at < k.denied_until) and exists (
      select from limiters l where l.id = k.blocked_on and l.by_tokens) as for_tokens
  ) t
  -- It waits for a limiter that it no longer uses, or for more tokens than its new next job may need. A job that is
  -- not due yet may become its next one.
  cross join lateral (
    select coalesce(c.newer and (n.newest).limits is distinct from k.limits
        and k.blocked_on <> all (coalesce(i.ids, '{}') || (p_policy).ahead_limiter_id), false)
      or (t.for_tokens and (c.may_be_next or n.head_changed))
      -- the job that it waits for in strict order may be gone, or what came is the next job of its key
      or (k.blocked_on is null and k.denied_reason is not distinct from 'strict_order' and (n.head_changed
        or not exists (select from _waiting_heads(array[k.id])))) as looks_now,
      case when t.for_tokens then n.later_at end as looks_at
  ) m
  where p.id = n.partition_id and p.id = any(array(select x.partition_id from unnest(p_news) x));
end
$$;
