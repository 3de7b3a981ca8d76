-- Lets a job of a long task go only if one of the policy's worker slots is free for it. Hundreds of short jobs may be
-- ahead of the worker slots. A tenth as many long ones would keep others waiting for minutes. A task is long if its jobs
-- run for longer than the time that the policy is ahead by. A task of which no job has ended yet may be long.
--
-- If the long job stays, so do the jobs that rank behind it. Otherwise short jobs would keep the slots busy, and it would
-- never go. The ahead bound then has only as many slots as jobs go, so the partitions of the jobs that stay wait for it.
-- `long_waits_until` keeps the passes of other claims and shards from admitting ahead for a moment.
create or replace function _stop_at_long_jobs(
  p_policy policies, p_now timestamptz,
  inout candidates candidate[],
  inout limiters room_before[]
) language plpgsql volatile as $$
declare
  v_short_tasks text[];
  v_free int;
  v_long bigint[];
  v_going bigint[];
begin
  select l.short_tasks, l.free into v_short_tasks, v_free
  from _slots_for_long_jobs(p_policy, p_now) l;
  if not found then
    return;
  end if;
  v_long := array(   -- by ctid, as _add_admitted
    select s.id from staged_jobs s
    where s.ctid = any(array(select c.ct from unnest(candidates) c where c.chosen))
      and s.task_identifier <> all (v_short_tasks));
  if v_long = '{}' then
    return;
  end if;
  v_going := array(
    with ranked as materialized (
      select c.staged_id, c.staged_id in (select unnest(v_long)) as is_long,
        row_number() over (order by c.vt, c.priority, c.run_at, c.staged_id) as rank
      from unnest(candidates) c where c.chosen
    )
    select r.staged_id from ranked r
    where r.rank < all (select s.rank from ranked s where s.is_long and s.rank > v_free));
  if cardinality(v_going) = (select count(*) from unnest(candidates) c where c.chosen) then
    return;
  end if;
  candidates := array(
    select row(c.ct, c.staged_id, c.partition_id, c.pos, c.priority, c.run_at, c.cost, c.vt, c.overtakes,
      c.chosen and c.staged_id in (select unnest(v_going)), c.is_plain)::candidate
    from unnest(candidates) c);
  for v_n in 1..cardinality(limiters) loop
    if limiters[v_n].id = (p_policy).ahead_limiter_id then
      limiters[v_n].slots := cardinality(v_going);
    end if;
  end loop;
  update limiters l set long_waits_until = p_now + interval '300 milliseconds'
  where l.id = (p_policy).ahead_limiter_id;
end
$$;
