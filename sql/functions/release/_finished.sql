-- The jobs of a release, typed; _release says what each name means.
create or replace function :DISPATCH_POLICY_SCHEMA._finished(p_jobs json)
returns setof :DISPATCH_POLICY_SCHEMA._private_finished_job language sql stable as $$
  select j.job, j.task, j.admission, j.ok, j."lagMs", j."durationMs", j.attempt, j.ends,
    json_typeof(j.retry) is not distinct from 'object',
    case when json_typeof(j.retry) = 'object'
      then json_populate_record(null:::DISPATCH_POLICY_SCHEMA._private_retry, j.retry) end,
    j.ordinality
  from rows from (json_to_recordset(p_jobs) as (
      job bigint, task text, admission bigint, ok boolean, "lagMs" float8, "durationMs" float8, attempt int, ends boolean, retry json))
    with ordinality j (job, task, admission, ok, "lagMs", "durationMs", attempt, ends, retry, ordinality);
$$;
