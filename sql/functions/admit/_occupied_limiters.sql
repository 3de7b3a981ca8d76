-- The limiters in which each admitted job occupies a slot: none of its throttles, whose tokens do not come back. With them,
-- each release would lock and write them for nothing.
create or replace function _occupied_limiters(
  p_policy policies, p_claimed claimed[],
  p_limiters room_before[],
  p_candidates candidate[],
  p_admissions admission[]
) returns table (
  job_id bigint, staged_id bigint, policy_id int, partition_id uuid, limiter_ids bigint[], cost float8, work float8,
  counted boolean, revision int, anew boolean, sort_at timestamptz
) language sql stable as $$
  with of_partition as materialized (
    select p.id, _work_of(p_policy, p.mean_work) as work, array(
        select u.id from unnest(p.limiter_ids) u (id)
        where u.id not in (select l.id from unnest(p_limiters) l where l.tokens is not null or l.shadow_tokens is not null)) as limiter_ids
    from unnest(p_claimed) p
  )
  select a.job_id, a.staged_id, (p_policy).id, h.id, h.limiter_ids, c.cost, h.work, a.counted, a.revision, a.anew,
    case when (p_policy).job_order = 'deadline' and c.priority = -32768 then c.run_at end   -- as _next_in_order has it
  from unnest(p_admissions) a
  join unnest(p_candidates) c on c.staged_id = a.staged_id
  join of_partition h on h.id = c.partition_id
  where a.admitted;
$$;
