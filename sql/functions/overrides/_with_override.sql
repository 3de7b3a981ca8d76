-- A limiter with the numbers that an operator's override gives it now.
create or replace function :DISPATCH_POLICY_SCHEMA._with_override(
  limiter :DISPATCH_POLICY_SCHEMA._private_limiters, p_now timestamptz
) returns :DISPATCH_POLICY_SCHEMA._private_limiters language plpgsql stable as $$
begin
  limiter.numbers := jsonb_populate_record(
    limiter.numbers, :DISPATCH_POLICY_SCHEMA._override_at(
      limiter, :DISPATCH_POLICY_SCHEMA._context_of(limiter), p_now, p_now));
  return limiter;
end
$$;
