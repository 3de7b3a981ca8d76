-- A partition whose jobs name different keys, or are of different classes, has lanes: rows with the same key, each with limiters
-- and a head of its own. What belongs to the partition, its stops, probe and breaker, is the same in all of them, and its share
-- in those of one class.

-- Locks all rows of the partitions of these rows, and returns them. If another session has one locked, it raises
-- lock_not_available, and the detail names those of `p_ids` that have to wait (see _route_batch).
create or replace function _lock_lanes(p_ids uuid[]) returns uuid[] language plpgsql
set enable_nestloop = on as $$   -- the router's plans have none: by hash, all partitions would be read
declare
  v_locked uuid[];
  v_waiting uuid[];
begin
  v_locked := array(
    select l.id from partitions l
    where l.id = any(array(select distinct s.id from partitions q cross join lateral _lanes_beside(q) s where q.id = any(p_ids)))
    order by l.id for no key update skip locked);
  v_waiting := array(
    select q.id from partitions q
    where q.id = any(p_ids) and exists (select from _lanes_beside(q) s where s.id <> all (v_locked)));
  if v_waiting <> '{}' then
    raise exception 'dispatch_policy: other lanes of a partition are locked'
      using errcode = 'lock_not_available', detail = 'partitions ' || v_waiting::text;
  end if;
  return v_locked;
end
$$;

-- Of rows that the router has just made or stopped: those that share a partition with others become its lanes. Each gets the
-- partition's stops, probe, breaker and share. One that is stopped by that waits for no limiter. A row that only a stop has made
-- goes, once a lane has that stop.
create or replace function _join_lanes(p_policy policies, p_ids uuid[], p_now timestamptz) returns void language plpgsql
set enable_nestloop = on as $$   -- as _lock_lanes
declare
  v_ids uuid[] := array(
    select q.id from partitions q
    where q.id = any(p_ids) and exists (select from _lanes_beside(q) s where s.id <> q.id));
begin
  if v_ids = '{}' then
    return;
  end if;
  v_ids := _lock_lanes(v_ids);
  perform _leave_lines(q.policy_id, q.id, q.limiter_ids),
    case when (p_policy).recorded then _tell_stop(q.policy_id, q.id, case when s.paused_until = s.stopped_until then 'paused'
      when s.held_until = s.stopped_until then 'held' else 'breaker_open' end, s.stopped_until, p_now) end
  from partitions q
  cross join lateral (select x.* from _lanes_beside(q) x order by x.stopped_until desc limit 1) s
  where q.id = any(v_ids) and s.stopped_until > q.stopped_until and s.stopped_until > p_now;
  with whole as materialized (
    select q.key, count(*) filter (where q.arrival_id > 0) > 1 as several,
      max(q.paused_until) as paused_until, max(q.held_until) as held_until, max(q.breaker_until) as breaker_until,
      max(q.stopped_until) as stopped_until,
      bool_or(q.probing) as probing, max(q.probe_job_id) as probe_job_id, max(q.failures) as failures,
      max(q.failures_since) as failures_since,
      (array_agg(q.stopped_at order by q.stopped_until desc, q.id))[1] as stopped_at,
      (array_agg(q.stopped_by order by q.stopped_until desc, q.id))[1] as stopped_by,
      (array_agg(q.stop_reason order by q.stopped_until desc, q.id))[1] as stop_reason,
      (array_agg(q.breaker_at order by q.breaker_until desc, q.id))[1] as breaker_at,
      (array_agg(q.breaker_reason order by q.breaker_until desc, q.id))[1] as breaker_reason
    from partitions q where q.id = any(v_ids) group by q.key
  )
  update partitions q set
    laned = q.laned or w.several, paused_until = w.paused_until, held_until = w.held_until, breaker_until = w.breaker_until,
    probing = w.probing, probe_job_id = w.probe_job_id, failures = w.failures, failures_since = w.failures_since,
    stopped_at = w.stopped_at, stopped_by = w.stopped_by, stop_reason = w.stop_reason,
    breaker_at = w.breaker_at, breaker_reason = w.breaker_reason,
    denied_until = case when w.stopped_until > q.stopped_until then '-infinity' else q.denied_until end,
    blocked_on = case when w.stopped_until > q.stopped_until then null else q.blocked_on end,
    denied_reason = case when w.stopped_until > q.stopped_until then null else q.denied_reason end,
    waiting_since = case when w.stopped_until > q.stopped_until then null else q.waiting_since end,
    mean_work = case when q.laned then q.mean_work else c.mean_work end,
    decayed_admits = case when q.laned then q.decayed_admits else c.decayed end,
    decayed_at = case when q.laned then q.decayed_at else _throttle_filled_at(q.decayed_at, p_now) end,
    fair_key = case when q.laned then q.fair_key else _fair_key(p_policy, c.decayed, c.mean_work, q.weight, p_now) end
  from whole w join partitions x on x.key = w.key
  cross join lateral (
    select max(_decayed(s.decayed_admits, s.decayed_at, (p_policy).half_life, p_now)) as decayed, max(s.mean_work) as mean_work
    from _lanes_beside(x) s
    where _class_of(1 / s.weight) = _class_of(1 / x.weight)) c
  where q.id = any(v_ids) and x.id = any(v_ids) and x.id = q.id;
  perform _drop_partitions(array(
    select q.id from partitions q
    where q.id = any(v_ids) and q.arrival_id = 0 and q.staged = 0
      and exists (select from _lanes_beside(q) s where s.arrival_id > 0)));
end
$$;

-- Claimed rows, in the order given, with what belongs to their partitions. Those of one partition and class take turns in the order
-- of their next jobs: `lane` of `lanes`. While its probe runs, each has the probe.
create or replace function _with_lanes(p_policy policies, p_claimed claimed[], p_now timestamptz)
returns claimed[] language plpgsql stable
set enable_nestloop = on as $$   -- as _lock_lanes
begin
  if not exists (select from unnest(p_claimed) c where c.key is not null) then
    return p_claimed;
  end if;
  return array(
    select case when w.decayed is null then p_claimed[c.ordinality] else row(
        c.id, c.shard, c.staged, c.limiter_ids, c.weight, c.min_cost, c.due_at, c.waiting_since, w.decayed, p_now, c.mean_work,
        c.admitted_at, c.first_jobs, c.probing, w.probe_job_id, c.head_priority, c.head_run_at, c.head_id, c.key,
        row_number() over (partition by c.key, t.class order by k.class, coalesce(n.priority, c.head_priority),
          coalesce(n.run_at, c.head_run_at), coalesce(n.id, c.head_id), c.id),
        count(*) over (partition by c.key, t.class))::claimed end
    from unnest(p_claimed) with ordinality c
    cross join lateral (select _class_of(1 / c.weight) as class) k
    cross join lateral (select case when not c.probing then k.class end as class) t   -- one probe is of all of them
    -- the head may be before the next job: that one has expired, or was removed. By deadlines and in strict order it is another
    left join lateral (
      select x.priority, x.run_at, x.id from _next_in_order(c.id, 1) x
      where c.key is not null and (p_policy).job_order is not null
      union all (
        select s.priority, s.run_at, s.id from staged_jobs s
        where s.partition_id = c.id and s.due and (s.priority, s.run_at, s.id) >= (c.head_priority, c.head_run_at, c.head_id)
          and c.key is not null and (p_policy).job_order is null
        order by s.priority, s.run_at, s.id limit 1)
    ) n on true
    left join (
      select q.key, x.class, max(_decayed(s.decayed_admits, s.decayed_at, (p_policy).half_life, p_now))
          filter (where _class_of(1 / s.weight) = x.class) as decayed,
        max(s.probe_job_id) as probe_job_id
      from (select distinct on (c.key, _class_of(1 / c.weight)) c.id, _class_of(1 / c.weight) as class
        from unnest(p_claimed) c where c.key is not null) x
      join partitions q on q.id = x.id
      cross join lateral _lanes_beside(q) s
      group by q.key, x.class
    ) w on w.key = c.key and w.class = k.class
    order by c.ordinality);
end
$$;

-- Charges what these claimed rows, which _mark_partitions has written, have admitted to their partitions: the lanes of the class
-- that wait get the new share. Their virtual times follow each other in the order of their next jobs, as in _rank: with equal ones,
-- cheap jobs of one lane would use the tokens that a dear one of another waits for. Under strict order they may go on.
--
-- A partition may have a thousand lanes. So it writes those with the least virtual times, a hundred at most, and skips locked
-- ones. The others get it when they are looked at, or are among these next time.
create or replace function _share_lanes(p_policy policies, p_claimed claimed[], p_now timestamptz) returns void language plpgsql
set enable_nestloop = on as $$   -- as _lock_lanes
begin
  if not exists (select from unnest(p_claimed) c where c.key is not null) then
    return;
  end if;
  with whole as materialized (
    select (array_agg(c.id))[1] as id, max(x.before) as before, sum(greatest(q.decayed_admits - x.before, 0)) as charged,
      bool_or(q.admitted_at >= p_now) as admitted
    from unnest(p_claimed) c
    join partitions q on q.id = c.id
    cross join lateral (select _decayed(c.decayed_admits, c.decayed_at, (p_policy).half_life, p_now) as before) x
    where c.key is not null group by c.key, _class_of(1 / c.weight)
  ),
  shared as materialized (
    select w.id, w.admitted, w.charged + greatest(w.before, (
        select max(_decayed(s.decayed_admits, s.decayed_at, (p_policy).half_life, p_now)) from _lanes_beside(q) s
        where s.id not in (select c.id from unnest(p_claimed) c) and _class_of(1 / s.weight) = _class_of(1 / q.weight))) as decayed
    from whole w join partitions q on q.id = w.id
  ),
  lane as materialized (
    select l.id, w.decayed, w.id as of, w.admitted, l.head
    from shared w
    join partitions q on q.id = w.id
    cross join lateral (
      select s.id, (coalesce(n.priority, s.head_priority), coalesce(n.run_at, s.head_run_at), coalesce(n.id, s.head_id)) as head
      from _lanes_beside(q) s
      left join lateral (select x.* from _next_in_order(s.id, 1) x where (p_policy).job_order is not null) n on true
      where (s.due_at < 'infinity' or s.id in (select c.id from unnest(p_claimed) c))
        and _class_of(1 / s.weight) = _class_of(1 / q.weight)
      order by s.id in (select c.id from unnest(p_claimed) c) desc, s.fair_key limit 100
    ) l
    join partitions p on p.id = l.id
    for no key update of p skip locked
  ),
  placed as (
    select l.*, row_number() over (partition by l.of order by l.head, l.id) - 1 as before from lane l
  )
  update partitions q set
    decayed_admits = l.decayed, decayed_at = _throttle_filled_at(q.decayed_at, p_now),
    fair_key = _fair_key(
      p_policy, l.decayed + l.before * coalesce(_work_of(p_policy, q.mean_work), 1), q.mean_work, q.weight, p_now),
    denied_until = case when l.admitted and q.denied_reason = 'strict_order' and q.blocked_on is null
      then '-infinity' else q.denied_until end
  from placed l where q.id = l.id;
end
$$;
