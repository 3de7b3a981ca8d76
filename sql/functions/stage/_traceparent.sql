-- A trace context in W3C's form, version 00; null: the text has another form. Then the job runs without it, because no job
-- should fail for its trace. It costs 15 us, so it is called once for a call from SQL, and not for each job.
create or replace function _traceparent(traceparent text) returns text language sql immutable as $$
  select case
    when traceparent ~ '^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$' then traceparent end;
$$;
