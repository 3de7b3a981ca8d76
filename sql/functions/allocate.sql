-- Which due jobs of the claimed partitions go now, in one ranking. A candidate's virtual time is
-- (decayed admits + its position in its partition) / weight. It goes when its rank by virtual time is within what is
-- left of every limiter it uses (for a throttle the rank is the running sum of costs), narrow scopes first, so that
-- what a narrow scope refuses takes nothing from a broad one; the budget then takes the smallest virtual times.
-- That is max-min fair, uses the whole budget and needs no second pass.
--
-- Returns the candidates, one more per partition than it may admit: what is left of them tells whether it drains.
create or replace function :DISPATCH_POLICY_SCHEMA._allocate(
  p_policy :DISPATCH_POLICY_SCHEMA._private_policies, p_partition_ids uuid[], p_limiter_ids bigint[],
  p_now timestamptz, p_bounded boolean
) returns setof :DISPATCH_POLICY_SCHEMA._private_candidate language sql stable as $$
  with lim as materialized (
    select l.id, l.breadth, l.tokens, l.capacity, l.reserved_for,
      l.slots,
      -- for the claimed: a slot reserved for a partition outside the claim is not there
      l.slots - case when l.reserved_for <> all (p_partition_ids) then 1 else 0 end as slots_here
    from :DISPATCH_POLICY_SCHEMA._limiters_now((p_policy).id, p_limiter_ids, p_now, p_bounded) l
  ),
  part as materialized (
    select p.id, p.weight, p.limiter_ids, p.head_priority, p.head_run_at, p.head_id,
      :DISPATCH_POLICY_SCHEMA._decayed(p.decayed_admits, p.decayed_at, (p_policy).half_life, p_now) as decayed,
      greatest(0, least((p_policy).batch_size, room.jobs))::int as allow, room.bucket, room.unfilled_bucket
    from :DISPATCH_POLICY_SCHEMA._private_partitions p
    -- the most jobs that could pass every limiter; none when one is unknown
    cross join lateral (
      select case when count(l.id) < cardinality(p.limiter_ids) then 0 else min(case
          when l.slots is not null then
            l.slots - case when l.reserved_for is not null and l.reserved_for <> p.id then 1 else 0 end
          when l.tokens >= l.capacity - 1e-9 then
            greatest(least(floor((l.tokens + 1e-9) / greatest(p.min_cost, 1e-9)), 1e6), 1)
          else least(floor((l.tokens + 1e-9) / greatest(p.min_cost, 1e-9)), 1e6)
        end) end as jobs,
        coalesce(min(l.tokens) filter (where l.breadth = 0), 'Infinity') as bucket,
        coalesce(min(l.tokens) filter (where l.breadth = 0 and l.tokens < l.capacity - 1e-9), 'Infinity')
          as unfilled_bucket
      from unnest(p.limiter_ids) u (id) left join lim l on l.id = u.id
    ) room
    where p.id = any(p_partition_ids)
  ),
  cand as materialized (
    select s.*, p.id as partition_id, p.limiter_ids, p.allow, p.bucket, p.unfilled_bucket,
      row_number() over in_order as pos,
      sum(s.cost) over (in_order rows unbounded preceding) as used,
      case when (p_policy).half_life is null then 0
           else (p.decayed + row_number() over in_order) / p.weight end as vt
    from part p
    cross join lateral (
      select s.ctid as ct, s.id, s.priority, s.run_at, s.cost
      from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s
      where s.partition_id = p.id and s.due
        and (s.priority, s.run_at, s.id) >= (p.head_priority, p.head_run_at, p.head_id)
      order by s.priority, s.run_at, s.id
      limit p.allow + 1
    ) s
    window in_order as (partition by p.id order by s.priority, s.run_at, s.id)
  ),
  -- each pass drops what one breadth of scopes refuses
  narrow as materialized (
    select c.* from cand c
    where c.pos <= c.allow and (
      c.used <= c.bucket + 1e-9
      or (c.pos = 1 and c.cost <= c.unfilled_bucket + 1e-9)   -- dearer than its full bucket: goes, and leaves it negative
    )
  ),
  keyed as materialized (
    select c.* from narrow c where c.id not in (
      select r.id from (
        select c2.id, l.slots_here as slots, l.tokens, l.capacity,
          row_number() over ranked as rank, sum(c2.cost) over ranked as used
        from narrow c2 cross join unnest(c2.limiter_ids) u (id) join lim l on l.id = u.id and l.breadth = 1
        window ranked as (partition by l.id order by
          (l.reserved_for is not distinct from c2.partition_id and c2.pos = 1) desc, c2.vt, c2.priority, c2.run_at, c2.id
          rows unbounded preceding)
      ) r where r.rank > r.slots
        or (r.used > r.tokens + 1e-9 and not (r.rank = 1 and r.tokens >= r.capacity - 1e-9))
    )
  ),
  broad as materialized (
    select c.* from keyed c where c.id not in (
      select r.id from (
        select c2.id, l.slots_here as slots, l.tokens, l.capacity,
          row_number() over ranked as rank, sum(c2.cost) over ranked as used
        from keyed c2 cross join unnest(c2.limiter_ids) u (id) join lim l on l.id = u.id and l.breadth >= 2
        window ranked as (partition by l.id order by c2.vt, c2.priority, c2.run_at, c2.id rows unbounded preceding)
      ) r where r.rank > r.slots
        or (r.used > r.tokens + 1e-9 and not (r.rank = 1 and r.tokens >= r.capacity - 1e-9))
    )
  ),
  chosen as materialized (
    select b.id from broad b order by b.vt, b.priority, b.run_at, b.id limit (p_policy).admission_budget
  )
  select c.ct, c.id, c.partition_id, c.pos::int, c.priority, c.run_at, c.cost,
    c.id in (select chosen.id from chosen)
  from cand c;
$$;
