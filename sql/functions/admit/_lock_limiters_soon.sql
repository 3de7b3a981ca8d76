-- _lock_limiters for passes: after 100 ms it raises lock_not_available. A release or another pass has a limiter locked for
-- a few milliseconds, an application's transaction for as long as it likes.
create or replace function _lock_limiters_soon(p_limiter_ids bigint[])
returns limiters[] language plpgsql set lock_timeout = '100ms' as $$
begin
  return _lock_limiters(p_limiter_ids);
end
$$;
