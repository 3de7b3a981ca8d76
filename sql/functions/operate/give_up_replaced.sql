-- A failed job that waited parked for its retry lost its place to a newer one of its key, and keeps its row for that one.
-- When the newer one leaves staging without running, nothing would ever run or end the parked one: it fails for good.
-- Returns how many did.
create or replace function :DISPATCH_POLICY_SCHEMA._give_up_replaced(p_job_keys text[]) returns int
language sql volatile as $$
  select count(x)::int from (
    select array_agg(j.id) as ids
    from unnest(p_job_keys) u (key)
    cross join lateral (
      select x.id from :GRAPHILE_WORKER_SCHEMA.jobs x
      where x.key = u.key and x.run_at = 'infinity' and x.locked_at is null and x.attempts < x.max_attempts
        and :DISPATCH_POLICY_SCHEMA._staged_id_of(x.flags) is not null
      limit 1) j
    where not exists (
        select from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s where s.parked_job_id = j.id or s.job_key = u.key)
      and not exists (select from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f where f.job_id = j.id)
    having count(*) > 0
  ) g
  cross join lateral :GRAPHILE_WORKER_SCHEMA.permanently_fail_jobs(g.ids, 'replaced under its job key') x;
$$;

-- The same for those whose newer one left staging in any other way: a full backlog dropped it, or a busy partition skipped
-- it. Those of which others hold a row wait for the next sweep. Returns how many failed for good.
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
