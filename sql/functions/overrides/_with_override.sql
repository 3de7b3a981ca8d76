-- A limiter with the numbers that an operator's override gives it now.
create or replace function _with_override(
  limiter limiters, p_now timestamptz
) returns limiters language plpgsql stable as $$
begin
  limiter.numbers := jsonb_populate_record(
    limiter.numbers, _override_at(
      limiter, _context_of(limiter), p_now, p_now));
  return limiter;
end
$$;
