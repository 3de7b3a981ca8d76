-- Marks jobs as done without running them.
create or replace function :DISPATCH_POLICY_SCHEMA.complete_jobs(job_ids bigint[])
returns setof :DISPATCH_POLICY_SCHEMA.db_job language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
declare
  v_ids bigint[];
  v_keys text[] := array(
    select s.job_key from staged_jobs s
    where s.id = any(job_ids) and s.parked_job_id is null and s.job_key is not null);
begin
  perform _before_change(job_ids);
  perform _record_removed(array(
    select s.id from staged_jobs s where s.id = any(job_ids) and s.parked_job_id is null), 'removed');
  return query
  with completed as (
    delete from staged_jobs s
    where s.id = any(job_ids) and s.parked_job_id is null returning s.*
  ),
  counted as materialized (
    select _count_removed(
      array(select c.task_identifier from completed c), array(select c.partition_id from completed c))
  )
  select j.* from completed c cross join lateral _staged_as_job(c) j
  where (select count(*) from counted) >= 0;
  v_ids := _graphile_ids(job_ids);   -- looked up now, because this may have waited for a job's admission
  return query
  select x.* from :GRAPHILE_WORKER_SCHEMA.complete_jobs(v_ids) j
  cross join lateral _as_job(j) x;
  perform _job_gone(v_ids);
  perform _give_up_replaced(v_keys) where v_keys <> '{}';
  v_ids := _adopted_ids(job_ids);
  if v_ids <> '{}' then
    return query select j.* from :DISPATCH_POLICY_SCHEMA.complete_jobs(v_ids) j;
  end if;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.complete_jobs from public;
