-- Gives back what an in-flight job holds, though it has not ended: for one that hangs, or that is known to be lost. It is
-- not stopped; should it run on, it counts no longer, and its end gives nothing back. By Graphile Worker's id or the
-- staged one.
--
--   select * from dispatch_policy.release(1234, reason => 'hangs since the deploy');
create or replace function :DISPATCH_POLICY_SCHEMA.release(
  job_id bigint, reason text default null, by text default null
) returns table (matched int, changed int) language plpgsql
security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_policy text;
  v_partition text;
  v_id bigint;
begin
  if release.job_id is null then
    raise exception 'dispatch_policy: release: job_id is null, expected the id of a job' using errcode = 'DPARG';
  end if;
  select f.job_id, p.name, q.key into v_id, v_policy, v_partition
  from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f
  join :DISPATCH_POLICY_SCHEMA._private_policies p on p.id = f.policy_id
  join :DISPATCH_POLICY_SCHEMA._private_partitions q on q.id = f.partition_id
  where f.job_id = release.job_id or f.staged_id = release.job_id;
  matched := case when v_id is null then 0 else 1 end;
  perform :DISPATCH_POLICY_SCHEMA._release(json_build_array(json_build_object('job', v_id)), null) where matched > 0;
  changed := matched - (
    select count(*) from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f where f.job_id = v_id);
  perform :DISPATCH_POLICY_SCHEMA._audit('release', v_policy, v_partition, null, null,
    jsonb_build_object('job_id', release.job_id), release.reason, release.by, matched, changed);
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.release from public;
