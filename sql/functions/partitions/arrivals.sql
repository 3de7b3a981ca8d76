-- What arrivals change in partitions.

-- Merges the arrivals of each partition whose arrivals had to be left, because it is locked. Otherwise each router would read
-- them all again. Routing the merged one has the same effect. Stops and outcomes are not merged. Returns how many arrivals it
-- saved.
create or replace function _merge_arrivals(p_policy text, p_ids bigint[]) returns int
language plpgsql as $$
declare
  v_consumed int;
begin
  with arrived as materialized (
    select a.* from arrivals a
    where a.policy = p_policy and a.id = any(p_ids) and a.pause is null and a.outcome is null
  ),
  newest as materialized (
    select distinct on (n.partition_id) n.partition_id, n.id from arrived n
    order by n.partition_id, (n.limits is not null) desc, n.version desc, n.id desc
  ),
  first as materialized (
    select distinct on (n.partition_id) n.partition_id, n.head_priority, n.head_run_at, n.head_id from arrived n
    order by n.partition_id, n.head_priority, n.head_run_at, n.head_id
  ),
  work as materialized (
    select n.partition_id, min(n.due_at) as due_at, min(n.min_cost) as min_cost, sum(n.jobs)::int as jobs,
      (array_agg(n.shard order by n.id) filter (where n.shard is not null))[1] as shard,
      -- a due job and a later one: the merged place is the due one's, and the later one may cost less
      bool_or(n.head_changed) or (bool_or(n.head_id = h.id) and bool_or(n.head_id < h.id)) as head_changed
    from arrived n cross join _no_head() h group by n.partition_id having count(*) > 1
  ),
  consumed as (
    delete from arrivals a
    where a.policy = p_policy and a.id = any(p_ids)
      and (a.id in (
        select n.id from arrived n join work w on w.partition_id = n.partition_id
        where n.id not in (select k.id from newest k))) is true
    returning 1
  ),
  kept as (
    update arrivals a set
      due_at = w.due_at, min_cost = w.min_cost, shard = w.shard, head_priority = f.head_priority,
      head_run_at = f.head_run_at, head_id = f.head_id, head_changed = w.head_changed, jobs = w.jobs
    from newest k join work w on w.partition_id = k.partition_id join first f on f.partition_id = k.partition_id
    where a.policy = p_policy and a.id = k.id and a.id = any(p_ids)
  )
  select count(*) into v_consumed from consumed;
  return v_consumed;
end
$$;

-- Locks those of these partitions that are there and that nobody else has locked. Returns what the steps of routing read of
-- them, all together: see _claimed.
create or replace function _lock_known(
  p_policy policies, p_partition_ids uuid[], p_now timestamptz
) returns known[] language plpgsql as $$
begin
  return array(
    select row(p.id, p.limits, p.arrival_id, p.version, p.weight, p.head_priority, p.head_run_at, p.head_id, p.due_at,
      p.ready, p.blocked_on, p.denied_until, p.denied_reason,
      -- of lanes, the one that has the most is right: see _share_lanes
      case when p.laned then (
          select max(_decayed(s.decayed_admits, s.decayed_at, (p_policy).half_life, p_now)) from _lanes_beside(p) s
          where _class_of(1 / s.weight) = _class_of(1 / p.weight))
        else _decayed(p.decayed_admits, p.decayed_at, (p_policy).half_life, p_now) end
    )::known
    from partitions p
    where p.id = any(p_partition_ids) order by p.id for no key update skip locked);
end
$$;

-- Brings the partitions that are known up to date with these arrivals: work lowers `due_at` and the head, and a later arrival
-- or a higher version replaces context and limits. One that waits for tokens is looked at again if its next job may be another,
-- because that job may cost less. Creates the partitions and limiters that do not exist yet, and tells how many jobs came.
--
--   p_is_work   these partitions are all known, and have more work and nothing else
--   made_*      the limiters that were made, as gate and scope key
create or replace function _route_partitions(
  p_policy policies, p_arrivals arrivals[], p_known known[], p_is_work boolean, p_now timestamptz,
  out made_gates text[], out made_keys text[]
) language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off set jit = off
as $$                                       -- as _allocate: 1,000 arrivals were joined by nested loops
declare
  v_changed arrivals[] := '{}';   -- those that bring limits to a partition that has none, or others
  v_limiters jsonb;   -- of each of their partitions the ids
  v_lanes uuid[];
begin
  if not p_is_work then
    v_changed := array(
      select n.newest from (
        select distinct on (a.partition_id) a.partition_id, a as newest from unnest(p_arrivals) a
        where a.limits is not null order by a.partition_id, a.version desc, a.id desc
      ) n
      left join unnest(p_known) k on k.id = n.partition_id
      where k.id is null
        or (((n.newest).version, (n.newest).id) > (k.version, k.arrival_id) and (n.newest).limits is distinct from k.limits));
  end if;
  if v_changed <> '{}' then
    select m.limiters, m.made_gates, m.made_keys into v_limiters, made_gates, made_keys
    from _make_limiters((p_policy).id, v_changed, p_now) m;
  end if;
  with news as materialized (
    select w.*, n.newest, f.head_priority, f.head_run_at, f.head_id
    from (
      select a.partition_id, min(a.due_at) as due_at, min(a.min_cost) as min_cost,
        -- a stop has no shard
        (array_agg(a.shard order by a.id) filter (where a.shard is not null))[1] as shard,
        bool_or(a.head_changed) as head_changed, sum(a.jobs)::int as jobs,
        min(a.due_at) filter (where a.head_id = h.id) as later_at,
        -- the words of the stop that counts: the last pause, or the hold that ends last
        (array_agg(a.pause order by a.pause -> 'held' <> 'null', (a.pause ->> 'held')::timestamptz desc, a.id desc)
          filter (where a.pause is not null))[1] as pause,
        max((a.pause ->> 'until')::timestamptz) as paused_until, max((a.pause ->> 'held')::timestamptz) as held_until
      from unnest(p_arrivals) a cross join _no_head() h group by a.partition_id
    ) w
    join (
      select distinct on (a.partition_id) a.partition_id, a as newest from unnest(p_arrivals) a
      order by a.partition_id, (a.limits is not null) desc, a.version desc, a.id desc
    ) n on n.partition_id = w.partition_id
    join (
      select distinct on (a.partition_id) a.partition_id, a.head_priority, a.head_run_at, a.head_id
      from unnest(p_arrivals) a order by a.partition_id, a.head_priority, a.head_run_at, a.head_id
    ) f on f.partition_id = w.partition_id
  ),
  behind as (
    -- the partitions behind it in a shared throttle's line may need no more tokens than there are, or no more slots
    insert into freed (policy_id, limiter_id)
    select distinct (p_policy).id, l.id from news n
    join unnest(p_known) k on k.id = n.partition_id
    cross join lateral (
      select x.id from limiters x
      where x.id = k.blocked_on and _has_line(x) and (x.by_tokens or (p_policy).by_cost) limit 1
    ) l
    where n.head_changed or ((p_policy).by_cost and (n.newest).limits <> k.limits)
  ),
  made as (
    insert into partitions (
      id, policy_id, key, shard, context, limits, weight, min_cost, limiter_ids, arrival_id, version, due_at,
      head_priority, head_run_at, head_id, paused_until, held_until, probing, stopped_at, stopped_by, stop_reason,
      decayed_at, looked_at, in_line_since, staged, fair_key)
    select n.partition_id, (p_policy).id, (n.newest).key, coalesce(n.shard, 'default'),
      coalesce((n.newest).context, '{}'), coalesce((n.newest).limits, '[]'), coalesce((n.newest).weight, 1), least(1, n.min_cost),
      array(select x::bigint from jsonb_array_elements_text(l.value) x) || (p_policy).ahead_limiter_id,
      case when (n.newest).limits is null then 0 else (n.newest).id end,
      -- one that a stop has made takes the first limits that come, also those of a job that moves there
      case when (n.newest).limits is null then -2147483648 else (n.newest).version end,
      n.due_at, n.head_priority, n.head_run_at, n.head_id,
      coalesce(n.paused_until, '-infinity'), coalesce(n.held_until, '-infinity'), n.held_until is not null,
      (n.pause ->> 'at')::timestamptz, n.pause ->> 'by', n.pause ->> 'reason', p_now, p_now,
      case when _class_of(1 / coalesce((n.newest).weight, 1)) = 0 then p_now end, n.jobs,
      _fair_key(p_policy, 0, null, coalesce((n.newest).weight, 1), p_now)
    from news n
    left join jsonb_each(v_limiters) l on l.key = n.partition_id::text
    where not p_is_work and (n.partition_id in (select k.id from unnest(p_known) k)) is not true
  )
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
    in_line_since = case when _class_of(1 / c.weight) > 0 then null when k.ready or k.blocked_on is not null then p.in_line_since else p_now end,
    limits = case when c.newer then (n.newest).limits else p.limits end,
    limiter_ids = case when c.newer and (n.newest).limits is distinct from p.limits
      then i.ids else p.limiter_ids end,
    -- after the last admission by the limits before, whose pass may have read a later time
    limits_since = case when c.newer and (n.newest).limits is distinct from p.limits
      then greatest(p_now, p.admitted_at + interval '1 microsecond') else p.limits_since end,
    paused_until = coalesce(n.paused_until, p.paused_until),
    held_until = greatest(p.held_until, n.held_until),
    probing = p.probing or n.held_until is not null,
    stopped_at = case
      when n.pause is not null and _tells_of_stop(p.held_until, p.paused_until, (n.pause ->> 'held')::timestamptz, p_now)
      then (n.pause ->> 'at')::timestamptz else p.stopped_at end,
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
  from news n
  join unnest(p_known) k on k.id = n.partition_id
  left join jsonb_each(v_limiters) l on l.key = n.partition_id::text
  cross join lateral (
    select array(select x::bigint from jsonb_array_elements_text(l.value) x) || (p_policy).ahead_limiter_id as ids) i
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
  -- It waits for a limiter that it no longer uses, or of which its jobs take more or fewer slots now, or for more tokens than its new next job may need. A job that is
  -- not due yet may become its next one.
  cross join lateral (
    select coalesce(c.newer and (n.newest).limits is distinct from k.limits
        and (k.blocked_on <> all (i.ids) or (p_policy).by_cost), false)
      or (t.for_tokens and (c.may_be_next or n.head_changed))
      -- the job that it waits for in strict order may be gone, or what came is the next job of its key
      or (k.blocked_on is null and k.denied_reason is not distinct from 'strict_order' and (n.head_changed
        or not exists (select from _waiting_heads(array[k.id])))) as looks_now,
      case when t.for_tokens then n.later_at end as looks_at
  ) m
  where p.id = n.partition_id and p.id = any(array(select x.partition_id from news x));
  insert into activity (policy_id, at, staged)
  select (p_policy).id, p_now, sum(a.jobs) from unnest(p_arrivals) a where a.jobs > 0 having count(*) > 0;
  if (p_policy).recorded then
    -- Jobs come when they are due. If nobody ticked for a minute, or somebody gave them a time that has passed long ago, they
    -- come now.
    insert into events (policy_id, at, kind, partition_id, facts)
    select (p_policy).id, s.at, 'came', a.partition_id, jsonb_build_object('jobs', sum(a.jobs), 'cost', sum(a.jobs * a.min_cost))
    from unnest(p_arrivals) a
    cross join lateral (select date_trunc('second',
      case when a.due_at > p_now - interval '1 minute' then a.due_at else p_now end) as at) s
    where a.jobs > 0 and s.at < 'infinity' group by a.partition_id, s.at;
  end if;
  if (p_policy).keyed_scopes and not p_is_work then
    v_lanes := array(
      select distinct a.partition_id from unnest(p_arrivals) a
      where (a.partition_id in (select k.id from unnest(p_known) k)) is not true or a.pause is not null);
    if v_lanes <> '{}' then
      perform _join_lanes(p_policy, v_lanes, p_now);
    end if;
  end if;
end
$$;

-- Applies what ended jobs say about a partition that is probing, or whose policy has a breaker, and about how long they ran.
--
-- The end of a probe lets the next job go: all of them if it succeeded, else the next probe. That is so as well if nobody
-- saw its end, because its slot was freed. A breaker opens at `breaker_failures` failures within `breaker_within`,
-- counted from the first of them, and if a probe fails. It stops the partition for `breaker_cooldown`, beside any hold;
-- then the partition is probed.
create or replace function _route_outcomes(
  p_policy policies, p_arrivals arrivals[],
  p_now timestamptz
) returns void language sql volatile as $$
  with outcome as materialized (
    select l.ids, sum((a.outcome ->> 'failures')::int) as failures,
      max((a.outcome ->> 'probe')::bigint) as probe, bool_or((a.outcome ->> 'passed')::boolean) as passed
    from unnest(p_arrivals) a
    cross join lateral (
      select case when (p_policy).keyed_scopes then _siblings(a.partition_id) else array[a.partition_id] end as ids) l
    where a.outcome ? 'failures' group by l.ids
  ),
  verdict as materialized (
    select q.id, e.ended, coalesce(e.ended and o.passed, false) as passed, c.since, c.failures,
      coalesce((p_policy).breaker_failures <= c.failures or (e.ended and not o.passed), false)
        and (p_policy).breaker_failures is not null as opens
    from outcome o
    join partitions q on q.id = any(o.ids)
    cross join lateral (
      select coalesce(bool_or(s.probe_job_id = o.probe), false) as ended from partitions s where s.id = any(o.ids)) e
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
      breaker_at = case when v.opens then p_now else q.breaker_at end,
      breaker_reason = case when v.opens then case when v.ended then 'a probe failed'
        else format('%s failures within %s s', v.failures, (p_policy).breaker_within) end else q.breaker_reason end
    from verdict v where q.id = v.id
    returning q.id, q.limiter_ids, q.breaker_until, v.opens
  )
  select _leave_lines((p_policy).id, u.id, u.limiter_ids),
    case when (p_policy).recorded then _tell_stop((p_policy).id, u.id, 'breaker_open', u.breaker_until, p_now) end
  from updated u where u.opens;
  -- If fairness is by work: an admission charges what the partition's jobs of the class took lately, an end settles the difference. The mean
  -- moves a fifth of the way with each end.
  with outcome as materialized (
    select l.ids, sum((a.outcome ->> 'work')::float8) as work, sum((a.outcome ->> 'ended')::int) as ended,
      sum((a.outcome ->> 'worked')::float8) as worked
    from unnest(p_arrivals) a
    cross join lateral (
      select case when (p_policy).keyed_scopes then _siblings(a.partition_id, true) else array[a.partition_id] end as ids) l
    where a.outcome ? 'work' group by l.ids
  ),
  settled as materialized (
    select q.id, greatest(0, o.work
        + _decayed(q.decayed_admits, q.decayed_at, (p_policy).half_life, p_now)) as decayed,
      case when o.ended > 0 then
        o.worked / o.ended + coalesce(q.mean_work - o.worked / o.ended, 0) * power(0.8, least(o.ended, 100))
      else q.mean_work end as mean_work
    from outcome o join partitions q on q.id = any(o.ids)
  )
  update partitions q set
    decayed_admits = s.decayed,
    decayed_at = _throttle_filled_at(q.decayed_at, p_now),
    fair_key = _fair_key(p_policy, s.decayed, s.mean_work, q.weight, p_now),
    mean_work = s.mean_work
  from settled s where q.id = s.id;
$$;
