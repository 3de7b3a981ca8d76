-- Corrects limiters whose counter differs from the in-flight rows that name them, by a new count under their locks.
create or replace function _sweep_counters() returns int language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '5s'
as $$
declare
  v_ids bigint[];
  v_repaired int;
begin
  v_ids := array(
    select l.id from limiters l
    left join (
      select u.id, count(*) as jobs from in_flight_jobs f
      cross join unnest(f.limiter_ids) u (id) group by u.id
    ) n on n.id = l.id
    where l.in_flight <> coalesce(n.jobs, 0));
  perform from limiters l
  where l.id = any(v_ids) order by l.id for no key update;
  with truth as (
    select v.id, (
      select count(*)::int from in_flight_jobs f where f.limiter_ids @> array[v.id]
    ) as jobs from unnest(v_ids) v (id)
  ),
  repaired as (
    update limiters l set in_flight = t.jobs
    from truth t where l.id = t.id and l.in_flight <> t.jobs returning l.policy_id, l.id
  ),
  announced as (
    insert into freed (policy_id, limiter_id) select r.policy_id, r.id from repaired r
  )
  select count(*) into v_repaired from repaired;
  return v_repaired;
end
$$;
