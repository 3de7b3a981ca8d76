-- When a job is due that was added again under its key, with `debounce`. The danger: another session had the row locked, and
-- gave it a later time meanwhile. A time from before the wait would bring the job forward again. So each add counts from
-- when it has the row: PostgreSQL calls this under the row's lock.
--
--   p_run_at        when it would be due after this add, from p_began on
--   p_until         the latest time, if this add were the first
--   p_first_until   the latest time by the adds before it; null: they were not debounced
create or replace function _debounced_run_at(
  p_run_at timestamptz, p_until timestamptz, p_first_until timestamptz, p_began timestamptz
) returns timestamptz language sql volatile as $$
  select least(p_run_at + (clock_timestamp() - p_began), p_until, p_first_until);
$$;
