-- An adaptive limiter with the numbers in force.
create or replace function :DISPATCH_POLICY_SCHEMA._with_override(
  limiter :DISPATCH_POLICY_SCHEMA._private_limiters, p_now timestamptz
) returns :DISPATCH_POLICY_SCHEMA._private_limiters language plpgsql stable as $$
declare
  v_set jsonb := :DISPATCH_POLICY_SCHEMA._override_at(limiter, p_now, p_now);
begin
  limiter.min := coalesce((v_set ->> 'min')::int, limiter.min);
  limiter.max := coalesce((v_set ->> 'max')::int, limiter.max);
  limiter.target_lag_ms := coalesce((v_set ->> 'target_lag_ms')::float8, limiter.target_lag_ms);
  return limiter;
end
$$;
