-- Whether a job of a key that was added replaced another one than the look before saw: one that was added in between. See
-- _job_of_key for what the look saw; null: it saw none.
create or replace function _is_raced(
  seen_id bigint, next_revision int, id bigint, revision int
) returns boolean language sql immutable as $$
  select revision > coalesce(next_revision, 0) or (revision > 0 and id <> seen_id);
$$;
