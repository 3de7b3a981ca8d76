-- How a released job has ended for good, as in the history. Null: it goes on.
--
--   p_ok          how its last run ended; null: nobody saw it
--   p_is_parked   it waits in staging for its retry
--   p_attempts, p_max_attempts, p_is_locked   of its row in Graphile Worker, null: that does not have it any more
--
-- A failed job that is neither parked nor out of attempts is retried past the gates. A job whose end nobody saw has ended if
-- Graphile Worker will not run it any more.
create or replace function _outcome(
  p_ok boolean, p_is_parked boolean, p_attempts int, p_max_attempts int, p_is_locked boolean
) returns text language sql immutable as $$
  select case
    when p_ok then 'succeeded'
    when p_is_parked then null
    when p_attempts is null then case when p_ok is null then 'gone' else 'failed' end
    when p_attempts >= p_max_attempts and (p_ok is not null or not p_is_locked) then 'failed'
  end;
$$;
