-- Whether an end belongs to the admission and the attempt that have the slot now. If it belongs to earlier ones, others
-- have taken the slot. Null is unknown, and counts as belonging.
create or replace function _is_end_of(
  ended_admission bigint, ended_attempt int, admission bigint, attempt int
) returns boolean language sql immutable as $$
  select coalesce(ended_admission = admission, true) and coalesce(ended_attempt >= attempt, true);
$$;
