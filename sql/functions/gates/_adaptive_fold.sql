-- Folds finished jobs into an adaptive limiter, in the order they finished: one _adaptive_observe for each.
create or replace aggregate :DISPATCH_POLICY_SCHEMA._adaptive_fold(
  limiter :DISPATCH_POLICY_SCHEMA._private_limiters,
  lag_ms float8, succeeded boolean, admitted_at timestamptz, was_in_flight int, now timestamptz
) (
  sfunc = :DISPATCH_POLICY_SCHEMA._adaptive_fold_step,
  stype = :DISPATCH_POLICY_SCHEMA._private_limiters
);
