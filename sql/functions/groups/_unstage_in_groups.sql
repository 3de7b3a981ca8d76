-- Keeps jobs that are unstaged in their groups, under Graphile Worker's ids. Those that left without a trace have ended, as
-- _outcome_of_staged has it. Called before the staged rows are deleted.
--
--   p_ids        all staged jobs that are unstaged
--   p_added      those of them that were new to Graphile Worker
--   p_job_ids    of each of these Graphile Worker's id
create or replace function _unstage_in_groups(p_ids bigint[], p_added bigint[], p_job_ids bigint[])
returns void language plpgsql volatile as $$
declare
  v_others record;
begin
  if not exists (select from groups) then
    return;
  end if;
  select array_agg(o.id) filter (where o.outcome is not null) as ended_ids,
    array_agg(o.outcome) filter (where o.outcome is not null) as outcomes,
    coalesce(array_agg(o.id) filter (where o.outcome is null and o.is_there), '{}') as kept_ids,
    coalesce(array_agg(o.parked_job_id) filter (where o.outcome is null and o.is_there), '{}') as kept_job_ids
  into v_others
  from (
    select s.id, s.parked_job_id,
      _outcome_of_staged(s.id, s.parked_job_id, s.parked_revision) as outcome,
      exists (select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = s.parked_job_id) as is_there
    from staged_jobs s
    where s.id = any(array(
      select m.staged_id from group_jobs m where m.staged_id = any(p_ids)
      except select unnest(p_added)))
  ) o;
  update group_jobs m set staged_id = k.job_id, job_id = k.job_id
  from unnest(p_added || v_others.kept_ids, p_job_ids || v_others.kept_job_ids) k (staged_id, job_id)
  where m.staged_id = any(p_ids) and m.staged_id = k.staged_id;
  perform _end_in_groups(v_others.ended_ids, null, v_others.outcomes)
  where v_others.ended_ids is not null;
end
$$;
