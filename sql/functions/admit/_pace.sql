-- How many jobs of a policy its workers finish in a second.
--
-- It is the greater of two numbers: how many they finished in the last measured second, and how many a second since then.
-- So it grows within a few passes when workers start. If many jobs end together, the second number is too high. So the
-- result is at most what the slots can do at the mean duration of the policy's shortest task.
--
--   p_slots      of the worker pools; null: not known
--   p_shortest   the mean duration of the policy's shortest task, in seconds; null: not known
--
-- It is an expression, so that PostgreSQL inlines it.
create or replace function _pace(
  ahead limiters, p_slots int, p_shortest float8, p_now timestamptz
) returns float8 language sql immutable as $$
  select least(
    p_slots / nullif(p_shortest, 0),
    greatest(
      ahead.finished_per_second,
      (ahead.released - ahead.sampled_released)
        / greatest(abs(extract(epoch from p_now - ahead.sampled_at))::float8, 0.1)));
$$;
