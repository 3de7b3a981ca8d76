-- Drops that many jobs of a partition, or of a policy: those staged first. It leaves parked jobs, jobs that another session
-- has locked, and jobs with `p_keys`, which are about to be replaced. Returns how many it dropped.
--
-- It drops no other job in the place of a locked one, because that could lose a job for which there is room. If a tick has
-- it locked to admit it, the tick makes the room. If another producer drops it, both overshoot together, and the next
-- call drops one more.
--
-- Adoption moves more jobs into staging than the bound allows. A new job that made up for all of them would drop a whole
-- backlog at once, although no job of it was refused. So of adopted jobs, whose ids tell, it drops at most `p_adopted`.
create or replace function _drop_oldest(
  p_policy text, p_partition_id uuid, p_jobs int, p_keys text[], p_adopted int
) returns int language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off   -- as _route
as $$
declare
  v_ids bigint[];
  v_dropped int;
  v_partition_ids uuid[];
begin
  if p_jobs <= 0 then
    return 0;
  elsif p_partition_id is not null then
    v_ids := array(select s.id from (
      select d.id from staged_jobs d
      where d.partition_id = p_partition_id and d.due and d.parked_job_id is null
        and (d.job_key = any(p_keys)) is not true
      union all
      select l.id from staged_jobs l
      where l.partition_id = p_partition_id and not l.due and l.parked_job_id is null
        and (l.job_key = any(p_keys)) is not true
    ) s order by s.id limit p_jobs);
  else
    v_ids := array(
      select s.id
      from policies p
      join policy_tasks t on t.policy_id = p.id
      cross join lateral (
        select x.id from staged_jobs x
        where x.task_identifier = t.task_identifier and x.droppable and x.parked_job_id is null
          and (x.job_key = any(p_keys)) is not true
        order by x.id limit p_jobs
      ) s
      where p.name = p_policy order by s.id limit p_jobs);
  end if;
  v_ids := array(
    select u.id from unnest(v_ids) with ordinality u (id, n) where u.id >= 1000000000000000 or u.n <= p_adopted);
  v_ids := array(
    select x.id from staged_jobs x where x.id = any(v_ids) for update skip locked);
  perform _record_removed(v_ids, 'dropped');
  with dropped as (
    delete from staged_jobs s where s.id = any(v_ids)
    returning s.id, s.partition_id
  ),
  keyless as (
    delete from keyless_jobs k where k.staged_id in (select d.id from dropped d)
  ),
  recorded as (
    insert into drops (policy, partition_id, reason, jobs)
    select p_policy, d.partition_id, 'max_pending', count(*) from dropped d group by d.partition_id
  )
  select count(*), array_agg(d.partition_id) into v_dropped, v_partition_ids from dropped d;
  perform _head_changed(v_partition_ids, -1);
  perform _count_pending(p_policy, -v_dropped);
  return v_dropped;
end
$$;
