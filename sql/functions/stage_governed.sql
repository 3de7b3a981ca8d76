-- One policy's part of a staging call, with the rights of the schema's owner: who may call this may stage jobs, and
-- needs no right on a table. What it is told of task, partition and limits is believed, since only JavaScript can work
-- them out; add_job and add_jobs work them out themselves.
--
-- A policy that is switched off stages nothing: its jobs are passed on.
create or replace function :DISPATCH_POLICY_SCHEMA._stage_governed(
  p_policy text, p_version int, p_partitions json, p_jobs json, p_mode text
) returns setof :DISPATCH_POLICY_SCHEMA._private_staging language plpgsql
security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  if exists (
    select from :DISPATCH_POLICY_SCHEMA._private_policies p where p.name = p_policy and not p.enabled
  ) then
    return query select s.* from :DISPATCH_POLICY_SCHEMA._stage_plain(p_jobs, p_mode) s;
  elsif length(p_jobs::text) < 10000 and json_array_length(p_jobs) = 1 and p_jobs -> 0 ->> 'jobKey' is null then
    return query select s.* from :DISPATCH_POLICY_SCHEMA._stage_one(p_policy, p_version, p_partitions, p_jobs) s;
  else
    return query select s.* from :DISPATCH_POLICY_SCHEMA._stage_batch(
      p_policy, p_version, p_partitions, p_jobs, p_mode) s;
  end if;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA._stage_governed from public;
