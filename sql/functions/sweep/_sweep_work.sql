-- Charges jobs up to now that have run for more than twice the time their partitions were charged. Returns how many.
create or replace function _sweep_work() returns int language sql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '5s'
as $$
  with running as materialized (
    select f.job_id, f.partition_id, f.work, p.name as policy,
      extract(epoch from clock_timestamp() - j.locked_at - coalesce(w.clock_behind, '0'))::float8 as seconds
    from policies p
    join in_flight_jobs f on f.policy_id = p.id
    join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = f.job_id
    left join workers w on w.pool_id = j.locked_by
    where p.fair_by_work
    order by f.job_id for update of f skip locked
  ),
  overrun as (
    update in_flight_jobs f set work = r.seconds
    from running r where f.job_id = r.job_id and r.seconds > 2 * r.work
    returning r.policy, r.partition_id, r.seconds - r.work as work
  ),
  arrived as (
    insert into arrivals (policy, partition_id, key, outcome)
    select o.policy, o.partition_id, q.key, jsonb_build_object('work', sum(o.work), 'ended', 0)
    from overrun o join partitions q on q.id = o.partition_id
    group by o.policy, o.partition_id, q.key
  )
  select count(*)::int from overrun;
$$;
