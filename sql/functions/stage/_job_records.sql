-- The jobs of a staging call, typed. A job says when it is due, or how many seconds from now. It says when it expires, or
-- how many seconds after it is due. A debounced job has `wait` and "maxWait". If its policy goes by deadlines, `sort_at` is
-- its own one, else when it expires.
create or replace function _job_records(p_jobs json)
returns table (
  n int, task text, p int, payload json, "queueName" text, "runAt" timestamptz, "maxAttempts" int, "jobKey" text,
  priority int, flags text[], cost float8, key text, traceparent text, expires_at timestamptz, wait float8, "maxWait" float8,
  "expiresAfter" float8, sort_at timestamptz
) language sql stable as $$
  select j.n, j.task, j.p, j.payload, j."queueName", coalesce(j."runAt", now() + make_interval(secs => j.wait)), j."maxAttempts",
    j."jobKey", j.priority, j.flags, j.cost, j.key, j.traceparent, x.expires_at, j.wait, j."maxWait", j."expiresAfter",
    case when j."byDeadline" then coalesce(j.deadline, x.expires_at) end
  from json_to_recordset(p_jobs) j (
    n int, task text, p int, payload json, "queueName" text, "runAt" timestamptz, "maxAttempts" int, "jobKey" text,
    priority int, flags text[], cost float8, key text, traceparent text, wait float8, "maxWait" float8,
    "expiresAt" timestamptz, "expiresAfter" float8, "byDeadline" boolean, deadline timestamptz)
  cross join lateral (
    select coalesce(j."expiresAt", greatest(j."runAt", now() + make_interval(secs => coalesce(j.wait, 0)))
      + make_interval(secs => j."expiresAfter")) as expires_at) x;
$$;
