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
