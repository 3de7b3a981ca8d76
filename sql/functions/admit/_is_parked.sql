-- Whether Graphile Worker's row still has the job that was parked in it. The next job of its key may have got the row, and
-- then it has a later revision and no error; somebody may have had it retried, and then it has a time.
create or replace function :DISPATCH_POLICY_SCHEMA._is_parked(
  parked_revision int, run_at timestamptz, revision int, last_error text
) returns boolean language sql immutable as $$
  select run_at = 'infinity' and (revision = parked_revision or last_error is not null);
$$;
