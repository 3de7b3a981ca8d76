-- A failed job that is parked lost its place to a newer one of its key, and that one left staging without being admitted:
-- a full backlog dropped it, say. Nothing would ever run or end the parked one, so it fails for good. If others hold its
-- row, it waits for the next sweep. Returns how many failed for good.
create or replace function :DISPATCH_POLICY_SCHEMA._sweep_replaced() returns int language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '250ms'
as $$
declare
  v_key text;
  v_jobs int := 0;
begin
  for v_key in
    select j.key from :DISPATCH_POLICY_SCHEMA._private_replaced_jobs r
    join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = r.job_id where j.key is not null
  loop
    begin
      v_jobs := v_jobs + :DISPATCH_POLICY_SCHEMA._give_up_replaced(array[v_key]);
    exception when lock_not_available then null;
    end;
  end loop;
  delete from :DISPATCH_POLICY_SCHEMA._private_replaced_jobs r
  where not exists (
    select from :GRAPHILE_WORKER_SCHEMA.jobs j
    where j.id = r.job_id and j.run_at = 'infinity' and j.attempts < j.max_attempts);
  return v_jobs;
end
$$;
