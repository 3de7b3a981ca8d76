-- The jobs of a staging call that go to Graphile Worker as they are, typed, each with its payload (see _stage_plain).
create or replace function _plain_records(p_jobs json, p_payloads text[])
returns table (
  n int, task text, payload json, "queueName" text, "runAt" timestamptz, "maxAttempts" int, "jobKey" text, priority int,
  flags text[], wait float8, "maxWait" float8
) language sql stable as $$
  select j.n, j.task, coalesce(y.payload::json, j.payload), j."queueName", j."runAt", j."maxAttempts", j."jobKey",
    j.priority, j.flags, j.wait, j."maxWait"
  from _job_records(p_jobs) j
  left join unnest(p_payloads) with ordinality y (payload, place) on y.place = j.p;
$$;
