-- What a throttle has left at `now`. A bucket goes by the numbers that were in force until then. Overrides may have changed
-- them (`overridden`), also for its partition's context. A window goes by its own. It has no query, so that PostgreSQL inlines it.
create or replace function _throttle_left(
  limiter limiters, now timestamptz, overridden boolean, context jsonb
) returns float8 language sql stable as $$
  select case
    when _is_window(limiter.numbers)
      then _window_left(limiter.spent, limiter.numbers, now)
    when overridden then (_throttle_brought_to(limiter, now, context)).tokens
    else _throttle_tokens(
      limiter.tokens, limiter.refilled_at, limiter.numbers, now)
    end;
$$;
