-- The jobs of a release, typed; _release says what each name means. Reading 1,000 objects takes 2.2 ms, and reading one
-- with lists of 1,000 takes 0.4.
create or replace function _finished(p_jobs json)
returns setof finished_job language sql stable as $$
  select coalesce(u.job, s.job), s.task, s.admission, s.ok,
    case when s.jobs is null then s.lag_ms else u.lag_ms end, case when s.jobs is null then s.duration_ms else u.duration_ms end,
    s.attempt, s.ends, json_typeof(s.retry) is not distinct from 'object',
    case when json_typeof(s.retry) = 'object' then json_populate_record(null::retry, s.retry) end,
    (s.ordinality << 32) + coalesce(u.ordinality, 0), s.error, case when s.jobs is null then s.settled end,
    coalesce(u.staged_id, s.staged_id), coalesce(s.says_nothing, false)
  from rows from (json_to_recordset(p_jobs) as (
      job bigint, task text, admission bigint, ok boolean, "lagMs" float8, "durationMs" float8, attempt int, ends boolean,
      retry json, jobs text, "lagsMs" text, "durationsMs" text, error text, settled jsonb,
      "stagedId" bigint, "stagedIds" text, "saysNothing" boolean))
    with ordinality s (
      job, task, admission, ok, lag_ms, duration_ms, attempt, ends, retry, jobs, lags_ms, durations_ms, error, settled,
      staged_id, staged_ids, says_nothing, ordinality)
  left join lateral unnest(s.jobs::bigint[], s.lags_ms::float8[], s.durations_ms::float8[], s.staged_ids::bigint[])
    with ordinality u (job, lag_ms, duration_ms, staged_id, ordinality) on s.jobs is not null;
$$;
