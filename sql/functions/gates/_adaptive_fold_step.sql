-- One step of _adaptive_fold: an _adaptive_observe of the limiter as the jobs before left it.
create or replace function _adaptive_fold_step(
  state limiters, limiter limiters,
  lag_ms float8, succeeded boolean, admitted_at timestamptz, was_in_flight int, now timestamptz
) returns limiters language sql immutable as $$
  select _adaptive_observe(
    coalesce(state, limiter), lag_ms, succeeded, admitted_at, was_in_flight, now);
$$;
