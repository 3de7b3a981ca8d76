-- The jobs of a staging call, typed.
create or replace function :DISPATCH_POLICY_SCHEMA._job_records(p_jobs json)
returns table (
  n int, task text, p int, payload json, "queueName" text, "runAt" timestamptz, "maxAttempts" int, "jobKey" text,
  priority int, flags text[], cost float8, key text, traceparent text
) language sql stable as $$
  select * from json_to_recordset(p_jobs) j (
    n int, task text, p int, payload json, "queueName" text, "runAt" timestamptz, "maxAttempts" int, "jobKey" text,
    priority int, flags text[], cost float8, key text, traceparent text);
$$;
