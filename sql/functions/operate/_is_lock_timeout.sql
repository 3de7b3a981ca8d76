-- Whether an error is the lock timeout of the function that asks: it began to wait at `p_asked` or later.
--
-- The danger: if a lock timeout fires while one wait ends and the next one begins, PostgreSQL reports a cancel. The cure: a
-- cancel counts as well, unless it comes before that timeout can fire. Then it is somebody else's.
create or replace function _is_lock_timeout(p_sqlstate text, p_asked timestamptz)
returns boolean language sql volatile as $$
  select p_sqlstate <> '57014' or clock_timestamp() >= p_asked + current_setting('lock_timeout')::interval;
$$;
