-- Ranks candidates. A candidate's virtual time is (decayed admits + its position in its partition) / weight. It goes if its
-- rank by virtual time is within what is left of every limiter it uses. For a throttle the rank is the running sum of
-- costs.
--
-- Narrow scopes come first, so that a job which a narrow scope refuses takes nothing from a broad one. The budget then
-- takes the smallest virtual times. Over all candidates this is max-min fair, and uses the whole budget.
--
--   p_most       what all partitions together may have
--   wants_more   a partition got all it was offered, and could have more
--
-- The next job of a partition that goes first has the least virtual time of all, see _longest_first.
--
-- If fairness is by work, the batch may take only the first jobs of a partition. Then the jobs of all others that come
-- behind its next job wait, because the next pass follows at once. Otherwise long jobs took the room that its short jobs
-- left, a batch at a time.
--
-- It is longer than others, because its steps narrow one set of candidates, breadth by breadth. Each step reads all of
-- it.
create or replace function _rank(
  p_policy policies, p_uses use[],
  p_offers offer[], p_most float8,
  out candidates candidate[], out wants_more boolean
) language plpgsql stable as $$   -- planned as _allocate
begin
  with cand as materialized (
    select s.*, p.partition_id, p.goes_on, p.is_new, p.offer, p.bucket, p.unfilled_bucket,
      case when (p_policy).half_life is null then 0
        when p.goes_first and s.pos = 1 then '-Infinity'
        else (p.decayed + s.pos) / p.weight end as vt
    from unnest(p_offers) p
    cross join lateral (
      -- numbered within each partition, in the index's order, without a sort
      select s.*, row_number() over in_order as pos, sum(s.cost) over in_order as used
      from (
        select s.ctid as ct, s.id, s.priority, s.run_at, s.cost,
          s.job_key is null and s.parked_job_id is null as is_plain
        from staged_jobs s
        where s.partition_id = p.partition_id and s.due
          and (s.priority, s.run_at, s.id) >= (p.head_priority, p.head_run_at, p.head_id)
          and (p_policy).job_order is null
        order by s.priority, s.run_at, s.id
        limit p.offer + 1
      ) s
      window in_order as (order by s.priority, s.run_at, s.id rows unbounded preceding)
      union all
      -- Without the head: it is a place in the usual order. So is that of an arrival which is not routed yet.
      select s.*, row_number() over in_order, sum(s.cost) over in_order
      from _next_in_order(p.partition_id, p.offer + 1) s
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
        from narrow c2 join unnest(p_uses) u on u.partition_id = c2.partition_id and u.breadth = 1
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
        from keyed c2 join unnest(p_uses) u on u.partition_id = c2.partition_id and u.breadth >= 2
          and (u.slots < (select d.jobs from demand d) or u.tokens < (select d.cost from demand d))
        window ranked as (partition by u.limiter_id order by c2.vt, c2.priority, c2.run_at, c2.id rows unbounded preceding)
      ) r where r.rank > r.slots
        or not _lets_through(
          r.tokens, case when r.rank = 1 then r.capacity else 'Infinity' end, r.used)
    )
  ),
  chosen as materialized (
    select b.id from broad b where (p_policy).admission_budget is null
    union all
    (select b.id from broad b where (p_policy).admission_budget is not null
      order by b.vt, b.priority, b.run_at, b.id limit (p_policy).admission_budget)
  ),
  last as materialized (
    select c.vt, c.priority, c.run_at, c.id from cand c where c.id in (select chosen.id from chosen)
    order by c.vt desc, c.priority desc, c.run_at desc, c.id desc limit 1
  ),
  -- partitions that got all they were offered, and whose next job might have gone: there is room, or it ranks before the last
  eager as (
    select from cand n
    join unnest(p_offers) p on p.partition_id = n.partition_id and p.offer < p.allow and n.pos = p.offer + 1
    join (
      select c.partition_id, count(*) as jobs from cand c where c.id in (select chosen.id from chosen)
      group by c.partition_id
    ) g on g.partition_id = n.partition_id and g.jobs = p.offer
    where (select count(*) from chosen) < p_most
      or (n.vt, n.priority, n.run_at, n.id) < (select l.vt, l.priority, l.run_at, l.id from last l)
  )
  select array_agg(row(c.ct, c.id, c.partition_id, c.pos::int, c.priority, c.run_at, c.cost, c.vt, c.is_new and c.pos = 1,
      c.id in (select chosen.id from chosen), c.is_plain)::candidate),
    exists (select from eager)
  into candidates, wants_more
  from cand c;
end
$$;
