-- A pass writes what it decided about each partition.

-- Writes to each claimed partition what was admitted, the place of its next job, and when it is looked at again.
--
-- A partition is in line while only others stand before it. What it waits for its own gates does not count, and none of a later
-- class is: it would pass lower ones. Of those that
-- the budget left, the ones that have been in line for longest may go first in the next pass.
create or replace function _mark_partitions(
  p_policy policies, p_verdicts verdict[], p_now timestamptz, p_tick bigint
) returns void language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_nestloop = on set enable_hashjoin = off set enable_mergejoin = off
set enable_seqscan = off set enable_bitmapscan = off as $$   -- both ways share its plan: one look at the index for each
declare
  v_first uuid[];
begin
  if (p_policy).admission_budget is not null then
    v_first := array(
      select p.id from partitions p
      where p.id = any(array(
          select v.partition_id from unnest(p_verdicts) v where v.reason = 'tick_budget' and v.admitted = 0))
        and p.ready and p.in_line_since <= _long_since(p_now)
      order by p.in_line_since, p.id
      limit (select _longest_first(p_policy, l.admitted, (p_policy).admission_budget)
        from limiters l where l.id = (p_policy).ahead_limiter_id));
  end if;
  update partitions p set
    decayed_admits = s.decayed,
    decayed_at = _throttle_filled_at(p.decayed_at, p_now),
    fair_key = _fair_key(p_policy, s.decayed, p.mean_work, s.weight, p_now),
    looked_at = p_now,
    admitted_total = p.admitted_total + s.admitted,
    staged = p.staged - s.gone,
    admitted_at = case when s.admitted > 0 then p_now else p.admitted_at end,
    due_at = case
      -- it is due, but another session has its row locked
      when s.head_id is null and s.admitted = 0 and s.next_run_at <= p_now then p_now + interval '50 milliseconds'
      when s.head_id is null then coalesce(s.next_run_at, 'infinity')
      when s.reason = 'tick_budget' then s.due_at
      -- one that takes more slots than are free is looked at again and again: it keeps its place among its equals
      when (p_policy).by_cost and s.admitted = 0 then least(s.due_at, p_now, clock_timestamp())
      -- with a time ahead it would not be looked at before that time
      else least(p_now, clock_timestamp()) end,
    head_priority = coalesce(s.head_priority, n.priority),
    head_run_at = coalesce(s.head_run_at, n.run_at),
    head_id = coalesce(s.head_id, n.id),
    head_cost = coalesce(s.head_cost, 1),
    -- a partition that is stopped waits for no limiter
    denied_until = case when p.stopped_until <= p_now
      then coalesce(s.denied_until, '-infinity') else '-infinity' end,
    blocked_on = case when p.stopped_until <= p_now then s.blocked_on end,
    held_until = case when p.held_until <= p_now then '-infinity' else p.held_until end,
    breaker_until = case when p.breaker_until <= p_now then '-infinity' else p.breaker_until end,
    paused_until = case when p.paused_until <= p_now then '-infinity' else p.paused_until end,
    denied_reason = case when p.stopped_until <= p_now then s.reason end,
    waiting_since = case when s.head_id is null then null when s.admitted > 0 then p_now
      else least(s.waiting_since, p_now) end,
    in_line_since = case
      when s.head_id is null or s.probe_job_id is not null or s.breadth = 0 or _class_of(1 / s.weight) > 0 then null
      when s.admitted > 0 then p_now
      else least(case when p.ready or p.blocked_on is not null then p.in_line_since end, p_now) end,
    goes_first = coalesce(p.id = any(v_first), false),
    probe_job_id = s.probe_job_id,
    visited = p_tick
  from unnest(p_verdicts) s cross join _no_head() n
  where p.id = s.partition_id;
end
$$;

-- When a job that is not due yet may come before a partition's next one, which waits for tokens: it may cost less. So the
-- partition is looked at when it is due, and in 50 ms at the soonest. Of the first twenty; after them the partition is looked
-- at again. Null: there is none.
create or replace function _earlier_at(
  p_partition_id uuid, p_priority smallint, p_run_at timestamptz, p_id bigint, p_in_order boolean, p_now timestamptz
) returns timestamptz language plpgsql stable as $$
begin
  return (
    select min(greatest(x.at, p_now + interval '50 milliseconds')) from (
      select y.*, row_number() over () as place from (
        select coalesce(s.retry_at, s.run_at) as at, s.priority, s.run_at, s.id
        from staged_jobs s
        where s.partition_id = p_partition_id and not s.due order by coalesce(s.retry_at, s.run_at) limit 20
      ) y
    ) x
    where (x.priority, x.run_at, x.id) < (p_priority, p_run_at, p_id) or x.place = 20 or p_in_order);
end
$$;

-- Adds dropped jobs to a partition's count.
create or replace function _count_dropped(p_partition_id uuid, p_jobs int) returns void language sql volatile as $$
  update partitions q set dropped_total = q.dropped_total + p_jobs where q.id = p_partition_id;
$$;

-- The heads of partitions that the caller has locked move down to these places, if they are before them.
create or replace function _lower_heads(p_ids uuid[], p_priorities smallint[], p_run_ats timestamptz[], p_job_ids bigint[])
returns void language plpgsql as $$
begin
  update partitions p set head_priority = f.priority, head_run_at = f.run_at, head_id = f.job_id
  from unnest(p_ids, p_priorities, p_run_ats, p_job_ids) f (id, priority, run_at, job_id)
  where p.id = f.id and p.id = any(p_ids) and (f.priority, f.run_at, f.job_id) < (p.head_priority, p.head_run_at, p.head_id);
end
$$;

-- Jobs have left partitions that a pass has locked, without an admission. Those that lost so many, `p_most`, are looked at again:
-- they wait no longer.
create or replace function _lost_staged(p_ids uuid[], p_jobs int[], p_most int) returns void language plpgsql as $$
begin
  update partitions q set
    staged = q.staged - t.jobs,
    denied_until = case when t.jobs >= p_most then '-infinity' else q.denied_until end,
    blocked_on = case when t.jobs < p_most then q.blocked_on end,
    denied_reason = case when t.jobs < p_most then q.denied_reason end
  from unnest(p_ids, p_jobs) t (id, jobs) where q.id = t.id and q.id = any(p_ids);
end
$$;
