-- Who occupies a limiter's slots: the five jobs that have done so for longest, as json, oldest first.
create or replace function _holders(p_limiter_id bigint)
returns jsonb language sql stable as $$
  select coalesce(jsonb_agg(jsonb_build_object(
    'job_id', f.job_id::text, 'partition', q.key, 'admitted_at', f.admitted_at, 'started_at', j.locked_at,
    'worker_id', j.locked_by) order by f.admitted_at, f.job_id), '[]')
  from (
    select x.* from in_flight_jobs x
    where p_limiter_id = any(x.limiter_ids) order by x.admitted_at, x.job_id limit 5
  ) f
  join partitions q on q.id = f.partition_id
  left join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = f.job_id;
$$;
