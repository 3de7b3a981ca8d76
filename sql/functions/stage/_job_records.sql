-- The jobs of a staging call, typed. A job says when it is due, or how many seconds from now.
create or replace function :DISPATCH_POLICY_SCHEMA._job_records(p_jobs json)
returns table (
  n int, task text, p int, payload json, "queueName" text, "runAt" timestamptz, "maxAttempts" int, "jobKey" text,
  priority int, flags text[], cost float8, key text, traceparent text
) language sql stable as $$
  select j.n, j.task, j.p, j.payload, j."queueName", coalesce(j."runAt", now() + make_interval(secs => j.wait)), j."maxAttempts",
    j."jobKey", j.priority, j.flags, j.cost, j.key, j.traceparent
  from json_to_recordset(p_jobs) j (
    n int, task text, p int, payload json, "queueName" text, "runAt" timestamptz, "maxAttempts" int, "jobKey" text,
    priority int, flags text[], cost float8, key text, traceparent text, wait float8);
$$;
