-- Folds finished jobs into an adaptive limiter, in the order they finished: one _adaptive_observe for each.
create or replace aggregate _adaptive_fold(
  limiter limiters,
  lag_ms float8, succeeded boolean, admitted_at timestamptz, was_in_flight int, now timestamptz
) (
  sfunc = _adaptive_fold_step,
  stype = limiters
);
