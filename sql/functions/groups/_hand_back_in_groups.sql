-- Keeps jobs that are handed back in their groups, under Graphile Worker's ids. Those that leave without a trace count as
-- replaced. Called before the staged rows are deleted.
--
--   p_ids        all staged jobs that are handed back
--   p_added      those of them that were new to Graphile Worker
--   p_job_ids    of each of these Graphile Worker's id
create or replace function :DISPATCH_POLICY_SCHEMA._hand_back_in_groups(p_ids bigint[], p_added bigint[], p_job_ids bigint[])
returns void language plpgsql volatile as $$
begin
  if not exists (select from :DISPATCH_POLICY_SCHEMA._private_groups) then
    return;
  end if;
  with kept as materialized (
    select u.staged_id, u.job_id from unnest(p_added, p_job_ids) u (staged_id, job_id)
    union all
    select s.id, s.parked_job_id from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s
    join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = s.parked_job_id
    where s.id = any(p_ids) and s.parked_job_id is not null
  ),
  moved as (
    update :DISPATCH_POLICY_SCHEMA._private_group_jobs m set staged_id = k.job_id, job_id = k.job_id
    from kept k where m.staged_id = any(p_ids) and m.staged_id = k.staged_id
  )
  select array(select unnest(p_ids) except select k.staged_id from kept k) into p_ids;
  perform :DISPATCH_POLICY_SCHEMA._end_in_groups(p_ids, null, array_fill('replaced'::text, array[cardinality(p_ids)]))
  where p_ids <> '{}';
end
$$;
