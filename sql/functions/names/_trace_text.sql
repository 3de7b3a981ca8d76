-- What the flag of an admitted job tells of its trace: the trace context, and when the job was staged. If it was due only
-- later, that time follows. Times are in microseconds since 1970. null: nobody traces the job.
--
-- A time after the year 30000 does not follow. The last possible one has more microseconds than a bigint, and nobody could
-- fail such a job.
create or replace function _trace_text(
  traceparent text, created_at timestamptz, run_at timestamptz, run_at_given boolean
) returns text language sql stable as $$
  select case when traceparent is not null then
    traceparent || '.' || (extract(epoch from created_at) * 1000000)::bigint
      || case when run_at_given and run_at > created_at and run_at < '30000-01-01'
        then '.' || (extract(epoch from run_at) * 1000000)::bigint else '' end end;
$$;
