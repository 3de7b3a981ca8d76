-- Adds to Graphile Worker the jobs of a staging call that have no policy, or one that is switched off.
--
--   p_payloads   a job's payload stands here at place "p", counted from 1, unless it is its own "payload". Graphile Worker
--                takes what PostgreSQL takes as json. Within another json text, NUL and half a surrogate pair are refused.
create or replace function _stage_plain(p_jobs json, p_mode text, p_payloads text[] default null)
returns setof staging language plpgsql as $$
#variable_conflict use_column
declare
  v_job record;
  v_keys text[] := array(
    select j."jobKey" from _job_records(p_jobs) j where j."jobKey" is not null order by 1);
begin
  -- a caller who may only add jobs to Graphile Worker replaces no staged job
  if v_keys <> '{}' and p_mode <> 'unsafe_dedupe' and has_function_privilege(
    '_drop_replaced(text[])', 'execute') then
    perform _drop_replaced(v_keys);
  end if;
  if p_mode = 'unsafe_dedupe' then
    -- Each call locks its key. In the order in which they were given, two calls with the same keys would deadlock.
    for v_job in
      select j.* from _plain_records(p_jobs, p_payloads) j order by j."jobKey" nulls first, j.n
    loop
      return query select v_job.n, false, a.id, v_job.task, v_job."queueName", a.run_at, a.max_attempts::int, a.key,
          a.priority::int, v_job.flags, a.created_at, null::text, null::text, null::text, row_to_json(a), false
        from :GRAPHILE_WORKER_SCHEMA.add_job(
          v_job.task, v_job.payload, v_job."queueName", v_job."runAt", v_job."maxAttempts", v_job."jobKey",
          v_job.priority, v_job.flags, p_mode) a;
    end loop;
    return;
  end if;
  return query
  with spec as materialized (
    select row_number() over () as place, j.* from _plain_records(p_jobs, p_payloads) j
  )
  select j.n, false, a.id, j.task, j."queueName", a.run_at, a.max_attempts::int, a.key, a.priority::int, j.flags,
    a.created_at, null::text, null::text, null::text, row_to_json(a.job), false
  from (
    select x.*, x as job, row_number() over () as place from :GRAPHILE_WORKER_SCHEMA.add_jobs(
      array(select row(j.task, j.payload, j."queueName", j."runAt", j."maxAttempts"::smallint, j."jobKey",
          j.priority::smallint, j.flags):::GRAPHILE_WORKER_SCHEMA.job_spec from spec j order by j.place),
      p_mode = 'preserve_run_at') x
  ) a
  join spec j on j.place = a.place;
end
$$;
