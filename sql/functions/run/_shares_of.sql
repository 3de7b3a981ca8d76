-- What an in-flight job needs of the share of its worker pool, at each of its gates with `perWorker`, by the numbers in force.
--
-- A pool that runs none of a scope key has room for one, also at a limit of 0. The job was admitted, and nothing else would
-- let it end.
--
--   key      what the gate counts over; null: the policy
--   forced   it was admitted past its gates: it runs all the same, and counts
create or replace function _shares_of(p_job_id bigint)
returns table (gate text, key text, max int, forced boolean) language sql stable
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  select l.gate, case when l.breadth < 2 then l.scope_key end, greatest((n.numbers).max, 1), coalesce(f.paid ? 'forced' or f.paid ->> 'cost' = '0', false)
  from in_flight_jobs f
  join policies p on p.id = f.policy_id and p.enabled
  join limiters l on l.id = any(f.limiter_ids) and (l.numbers).per_worker
  cross join lateral _override_now(p.id, l, clock_timestamp()) o
  cross join lateral (select jsonb_populate_record(l.numbers, o.set) as numbers) n
  where f.job_id = p_job_id and (n.numbers).shadow is not true
  order by l.id;
$$;
