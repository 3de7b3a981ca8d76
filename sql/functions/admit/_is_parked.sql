-- Whether a row of Graphile Worker is still the parked job of this staged job. If somebody had the job retried, the row
-- has a time. If the next job of the key has got the row, the revision is later. It then has no error, and not the staged
-- job's flag. The revision alone does not show that: a job that was only deduplicated (unsafe_dedupe) raises it too.
create or replace function _is_parked(
  staged_id bigint, parked_revision int, run_at timestamptz, revision int, last_error text, flags jsonb
) returns boolean language sql immutable as $$
  select run_at = 'infinity' and (
    last_error is not null or _is_row_of(parked_revision, staged_id, revision, flags));
$$;
