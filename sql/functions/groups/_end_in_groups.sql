-- Counts jobs that have ended for good in their groups, and adds the callbacks of groups in which they were the last.
--
--   p_staged_ids, p_job_ids   of each job the id in staging and that in Graphile Worker; null: it has none
--   p_outcomes                how it ended, as in the history
--
-- Each job counts once in a group, because its row in group_jobs goes.
create or replace function _end_in_groups(p_staged_ids bigint[], p_job_ids bigint[], p_outcomes text[])
returns void language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off set jit = off as $$   -- as _free_slots
declare
  v_group_ids bigint[];
  -- Those that went on past their policy, and were admitted again under another staged id. Somebody may end such a job as well,
  -- where it is staged, in a transaction that stays open. A sweep finds it if that one rolls back.
  v_others bigint[] := array(
    select m.staged_id from group_jobs m
    where m.job_id = any(p_job_ids) and m.staged_id <> all (p_staged_ids) for update skip locked);
begin
  with ended as materialized (
    select * from unnest(p_staged_ids, p_job_ids, p_outcomes) e (staged_id, job_id, outcome)
  ),
  by_staged_id as (
    delete from group_jobs m using ended e
    where m.staged_id = any(p_staged_ids) and e.staged_id = m.staged_id
    returning m.group_id, e.outcome
  ),
  by_job_id as (
    delete from group_jobs m using ended e
    where m.staged_id = any(v_others) and e.job_id = m.job_id
    returning m.group_id, e.outcome
  ),
  appended as (
    insert into group_ends (group_id, outcome, jobs)
    select d.group_id, d.outcome, count(*)
    from (select * from by_staged_id union all select * from by_job_id) d group by d.group_id, d.outcome
    returning group_id
  )
  select array_agg(distinct a.group_id) into v_group_ids from appended a;
  if v_group_ids is not null then
    perform _fold_groups(v_group_ids);
  end if;
end
$$;
