-- The large way: which of thousands of due jobs go, by sets.

-- Admits due jobs of these partitions. The caller has locked them and all of their limiters (`p_locked`), in earlier
-- statements.
--
--   p_began     when the pass began; null: it is none
--   claimed     with a breaker, how many partitions count as claimed: those in looked_at; null: without one, all do
--   looked_at   the partitions from which jobs were chosen: without those that _expire leaves out, those that wait in strict
--     order and, with a breaker, those whose failures are not all routed
create or replace function _admit_locked(
  p_policy policies, p_claimed claimed[],
  p_locked limiters[], p_now timestamptz, p_bounded boolean, p_began timestamptz,
  out claimed int, out looked_at uuid[], out admitted int, out denied jsonb, out quarantined int, out saturated text
) language plpgsql as $$
declare
  v_claimed claimed[] := p_claimed;
  v_limiters room_before[];
  v_candidates candidate[];
  v_stopped record;
  v_passed record;
begin
  admitted := 0; denied := '{}'; quarantined := 0;
  looked_at := _expire((p_policy).name, array(select c.id from unnest(p_claimed) c), p_now);
  if (p_policy).job_order = 'strict' and (p_policy).enabled then
    looked_at := _wait_in_order(p_policy, looked_at, p_now, p_began is not null);
  end if;
  if looked_at = '{}' then
    return;
  end if;
  v_limiters := _limiters_of_pass((p_policy).id, p_locked, p_now, p_bounded);
  if (p_policy).breaker_failures is not null then
    looked_at := _known_outcomes(p_policy, looked_at);
    claimed := cardinality(looked_at);
  end if;
  if cardinality(looked_at) < cardinality(p_claimed) then
    v_claimed := array(select c from unnest(p_claimed) c where (c.id in (select unnest(looked_at))) is true);
  end if;
  if (p_policy).keyed_scopes then
    v_claimed := _with_lanes(p_policy, v_claimed, p_now);
  end if;
  if (p_policy).shared_ids <> '{}' and (p_policy).enabled then
    v_limiters := _keep_for_others(p_policy, v_claimed, p_locked, v_limiters, p_now);
  end if;
  v_candidates := case when (p_policy).enabled
    then _allocate(p_policy, v_claimed, v_limiters, p_now)
    else array(select c from _first_due(looked_at, (p_policy).batch_size, null) c) end;
  if (p_policy).enabled and p_bounded then
    v_stopped := _stop_at_long_jobs(p_policy, p_now, v_candidates, v_limiters);
    v_candidates := v_stopped.candidates;
    v_limiters := v_stopped.limiters;
  end if;
  v_passed := _admit_claimed(
    p_policy, v_claimed, v_limiters, v_candidates, p_now, not (p_policy).enabled, p_began);
  admitted := v_passed.admitted; denied := v_passed.denied;
  quarantined := v_passed.quarantined; saturated := v_passed.saturated;
end
$$;

-- Chooses the due jobs of the claimed partitions that go now. It returns one job more of each partition than may go,
-- because that one tells whether the partition drains.
--
-- A first ranking reads only as many jobs of each partition as the fairest share of the broad limiters' room could give
-- it. With room for 100 jobs, 50 deep partitions have 200 candidates, not 5,000 (120 ms, now 15). Room may be left,
-- because others had fewer jobs than their share, or because of a narrow limit. If a partition that got all of its share
-- could have more then, all jobs are ranked.
--
-- The planner counts an array as ten rows. Left to choose, it joined 5,000 jobs by nested loops. Before PostgreSQL 18 a
-- function in SQL is planned at each call: that took 8 ms, where running it for one job takes 0.2.
create or replace function _allocate(
  p_policy policies, p_claimed claimed[],
  p_limiters room_before[], p_now timestamptz
) returns candidate[] language plpgsql stable
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off set jit = off as $$
declare
  v_ranked record := _rank(p_policy, p_claimed, p_limiters, p_now, false);
begin
  if v_ranked.wants_more then
    v_ranked := _rank(p_policy, p_claimed, p_limiters, p_now, true);
  end if;
  return coalesce(v_ranked.candidates, '{}');
end
$$;

-- Ranks candidates. A candidate's virtual time is (decayed admits + its position in its partition) / weight. It goes if its
-- rank by virtual time is within what is left of every limiter it uses. For a throttle the rank is the running sum of
-- costs.
--
-- Narrow scopes come first, so that a job which a narrow scope refuses takes nothing from a broad one. The budget then
-- takes the smallest virtual times. Over all candidates this is max-min fair, and uses the whole budget.
--
--   p_all        all jobs that may go are ranked; else only as many of each partition as its share could be
--   wants_more   a partition got all it was offered, and could have more
--
-- The share: let there be room for n jobs over k partitions. The n smallest virtual times are below the level at which n +
-- k jobs would be, if every partition had enough. That level is the least of (n + k + admits) / weight, summed over the
-- partitions with the smallest admits / weight.
--
-- If fairness is by work, a partition's admits and weight are in its own jobs: both are divided by what one of them counts
-- for, which leaves admits / weight as it is. The batch may then take only the first jobs of a partition, and the jobs of
-- all others that come behind its next job wait, because the next pass follows at once. Otherwise long jobs took the room
-- that its short jobs left, a batch at a time.
--
-- Jobs that go first (`first_jobs`) have the least virtual time of all, see _longest_first and _class_turns. A budget has places of
-- later classes as well: their number is that of the ahead bound.
create or replace function _rank(
  p_policy policies, p_claimed claimed[], p_limiters room_before[], p_now timestamptz, p_all boolean,
  out candidates candidate[], out wants_more boolean
) language plpgsql stable as $$   -- planned as _allocate
declare
  v_partition_ids uuid[] := array(select c.id from unnest(p_claimed) c);
begin
  -- The limiters of each partition, and how many of its jobs could pass each. One of which its jobs take several slots is there as
  -- often: then a rank in its line is a number of slots.
  with uses as materialized (
    select p.id as partition_id, l.id as limiter_id, l.breadth, l.tokens, l.capacity, l.reserved_for,
      -- a slot that is reserved for a partition outside the claim does not count
      l.slots - case when l.reserved_for <> all (v_partition_ids) then l.reserved else 0 end as slots,
      case
        when l.slots is not null then case when (p_policy).by_cost
          then _jobs_in_slots(l.slots - r.reserved, _takes(p.limiter_ids, l.id), l.cap, l.breadth) else l.slots - r.reserved end
        when l.rate <= 0 then 0
        else _jobs_through(l.tokens, l.capacity, p.min_cost)
      end as jobs
    from unnest(p_claimed) p
    cross join lateral unnest(p.limiter_ids) u (id)
    left join unnest(p_limiters) l on l.id = u.id
    cross join lateral (
      select case when l.reserved_for is not null and l.reserved_for <> p.id then l.reserved else 0 end as reserved) r
  ),
  room as materialized (
    select u.partition_id, count(u.limiter_id) as known, min(u.jobs) as jobs,
      min(u.jobs) filter (where u.breadth >= 2) as broad_jobs,
      coalesce(min(u.tokens) filter (where u.breadth = 0), 'Infinity') as bucket,
      coalesce(min(u.tokens) filter (
        where u.breadth = 0 and not _lets_through(u.tokens, u.capacity, u.capacity)), 'Infinity') as unfilled_bucket
    from uses u group by u.partition_id
  ),
  part as materialized (
    select p.id, p.head_priority, p.head_run_at, p.head_id, p.weight / e.work as weight,
      -- As _fair_key. Lanes of one partition take turns: the first job of the second has the virtual time of a second job.
      case when d.decayed < e.work / 1000 then 0 else d.decayed / e.work end + (p.lane - p.lanes) as decayed, p.lanes,
      greatest(0, least((p_policy).batch_size,
        case when r.known < cardinality(p.limiter_ids) then 0 else r.jobs end,
        case when p.probing then case when p.probe_job_id is null and p.lane = 1 then 1 else 0 end end,
        case when p.key is not null and (p_policy).job_order = 'strict' then 1 end))::int as allow,   -- the next may be of another lane
      (p_policy).fair_by_work and r.jobs > (p_policy).batch_size and not p.probing as goes_on,
      _is_new(p_policy, p.weight, p.admitted_at, p_now) as is_new,
      coalesce(p.first_jobs, 0) as first_jobs,
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
  ),
  kept as materialized (   -- the budget's places of later classes
    select case when (p_policy).admission_budget is not null and (p_policy).class_shares is not null then (
      select _class_places((p_policy).class_shares, l.admitted, (p_policy).admission_budget)
      from unnest(p_limiters) l where l.id = (p_policy).ahead_limiter_id) end as places
  ),
  offers as materialized (
    select p.*, case when p.allow = 0 then 0 else greatest(1, least(p.allow, greatest(
        p.first_jobs, k.places[_class_of(1 / p.weight)])), least(p.allow::float8,
        case when not p_all and (p_policy).half_life is null then t.jobs end,
        floor(v.vt * p.weight - p.decayed + 1e-6)))::int end as offer
    from part p cross join total t cross join level v cross join kept k
  ),
  cand as materialized (
    select s.*, p.id as partition_id, p.goes_on, p.is_new, p.offer, p.bucket, p.unfilled_bucket,
      case when (p_policy).half_life is null then 0
        when s.pos <= p.first_jobs then '-Infinity'
        else (p.decayed + s.pos * p.lanes) / p.weight end as vt
    from offers p
    cross join lateral (
      -- numbered within each partition, in the index's order, without a sort
      select s.*, row_number() over in_order as pos, sum(s.cost) over in_order as used
      from (
        select s.ctid as ct, s.id, s.priority, s.run_at, s.cost,
          s.job_key is null and s.parked_job_id is null as is_plain, greatest(s.run_at, s.created_at) as due_at
        from staged_jobs s
        where s.partition_id = p.id and s.due
          and (s.priority, s.run_at, s.id) >= (p.head_priority, p.head_run_at, p.head_id)
          and (p_policy).job_order is null
        order by s.priority, s.run_at, s.id
        limit p.offer + 1
      ) s
      window in_order as (order by s.priority, s.run_at, s.id rows unbounded preceding)
      union all
      -- Without the head: it is a place in the usual order. So is that of an arrival which is not routed yet.
      select s.*, row_number() over in_order, sum(s.cost) over in_order
      from _next_in_order(p.id, p.offer + 1) s
      where (p_policy).job_order is not null
      window in_order as (order by s.priority, s.run_at, s.id rows unbounded preceding)
    ) s
  ),
  -- each pass drops the candidates that one breadth of scopes refuses
  narrow as materialized (
    select c.id, c.partition_id, c.pos, c.cost, c.vt, c.priority, c.run_at from cand c
    where c.pos <= c.offer and (
      _lets_through(c.bucket, 'Infinity', c.used)
      or (c.pos = 1 and _lets_through(c.unfilled_bucket, 'Infinity', c.cost))
    ) and c.vt <= (
      select coalesce(min(n.vt), 'Infinity') from cand n where n.goes_on and n.pos > (p_policy).batch_size)
  ),
  keyed as materialized (
    select c.* from narrow c where c.id not in (
      select r.id from (
        select c2.id, u.slots, u.tokens, u.capacity,
          row_number() over ranked as rank, sum(c2.cost) over ranked as used
        from narrow c2 join uses u on u.partition_id = c2.partition_id and u.breadth = 1
        window ranked as (partition by u.limiter_id order by
          (u.reserved_for is not distinct from c2.partition_id and c2.pos = 1) desc, c2.vt, c2.priority, c2.run_at, c2.id
          rows unbounded preceding)
      ) r where r.rank > r.slots
        or not _lets_through(
          r.tokens, case when r.rank = 1 then r.capacity else 'Infinity' end, r.used)
    )
  ),
  -- A broad limiter that could take every candidate refuses none. So it is not ranked (a third of the time of 5,000 jobs).
  demand as materialized (select count(*) as jobs, sum(c.cost) as cost from keyed c),
  broad as materialized (
    select c.* from keyed c where c.id not in (
      select r.id from (
        select c2.id, u.slots, u.tokens, u.capacity,
          row_number() over ranked as rank, sum(c2.cost) over ranked as used
        from keyed c2 join uses u on u.partition_id = c2.partition_id and u.breadth >= 2
          and (u.slots < (select d.jobs from demand d) or u.tokens < (select d.cost from demand d) or (p_policy).by_cost)
        window ranked as (partition by u.limiter_id order by c2.vt, c2.priority, c2.run_at, c2.id rows unbounded preceding)
      ) r where r.rank > r.slots
        or not _lets_through(
          r.tokens, case when r.rank = 1 then r.capacity else 'Infinity' end, r.used)
    )
  ),
  chosen as materialized (
    select b.id from broad b where (p_policy).admission_budget is null
    union all
    (select b.id from broad b where (p_policy).admission_budget is not null and (p_policy).class_shares is null
      order by b.vt, b.priority, b.run_at, b.id limit (p_policy).admission_budget)
    union all
    (select b.id from (
        select x.*, row_number() over (partition by k.class order by x.vt, x.priority, x.run_at, x.id)
          <= (select a.places from kept a)[k.class] as is_its_place
        from broad x
        join part p on p.id = x.partition_id
        cross join lateral (select _class_of(1 / p.weight) as class) k
        where (p_policy).admission_budget is not null and (p_policy).class_shares is not null) b
      order by b.is_its_place is true desc, b.vt, b.priority, b.run_at, b.id limit (p_policy).admission_budget)
  ),
  last as materialized (
    select c.vt, c.priority, c.run_at, c.id from cand c where c.id in (select chosen.id from chosen)
    order by c.vt desc, c.priority desc, c.run_at desc, c.id desc limit 1
  ),
  -- partitions that got all they were offered, and whose next job might have gone: there is room, or it ranks before the last
  eager as (
    select from cand n
    join offers p on p.id = n.partition_id and p.offer < p.allow and n.pos = p.offer + 1
    join (
      select c.partition_id, count(*) as jobs from cand c where c.id in (select chosen.id from chosen)
      group by c.partition_id
    ) g on g.partition_id = n.partition_id and g.jobs = p.offer
    where (select count(*) from chosen) < (select t.jobs from total t)
      or (n.vt, n.priority, n.run_at, n.id) < (select l.vt, l.priority, l.run_at, l.id from last l)
  )
  select array_agg(row(c.ct, c.id, c.partition_id, c.pos::int, c.priority, c.run_at, c.cost, c.vt, c.is_new and c.pos = 1,
      c.id in (select chosen.id from chosen), c.is_plain, c.due_at)::candidate),
    exists (select from eager)
  into candidates, wants_more
  from cand c;
end
$$;

-- The first due jobs of each partition, all chosen, whatever its gates say: for admission by an operator, and for policies
-- that are switched off. One row more than `p_per_partition`, not chosen, tells whether the partition drains.
create or replace function _first_due(p_partition_ids uuid[], p_per_partition int, p_total int)
returns setof candidate language sql stable as $$
  select c.ct, c.id, c.partition_id, c.pos::int, c.priority, c.run_at, c.cost, 0, false,
    c.pos <= p_per_partition and (p_total is null or c.overall <= p_total), c.is_plain, c.due_at
  from (
    select s.*, u.id as partition_id,
      row_number() over (partition by u.id order by s.priority, s.run_at, s.id) as pos,
      row_number() over (order by s.priority, s.run_at, s.id) as overall
    from unnest(p_partition_ids) u (id)
    cross join lateral _next_in_order(u.id, p_per_partition::bigint + 1) s
  ) c;
$$;
