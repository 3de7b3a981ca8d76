-- Locks the bucket that a verb, `take` or `sync`, names, and returns what it has then.
--
--   at       the time after the lock: whoever reads the clock before may wait, and would have the bucket gain twice
--   tokens   what it has, also if it is a shadow
create or replace function _bucket_now(
  p_verb text, p_policy policies, p_gate text, p_key text, p_now timestamptz,
  out id bigint, out at timestamptz, out limiter room_before, out tokens float8
) language plpgsql as $$
begin
  id := _lock_bucket(p_verb, p_policy, p_gate, p_key, p_now);
  at := coalesce(p_now, clock_timestamp());
  limiter := (select n from _rooms_of((p_policy).id, array[id], at, false) n);
  tokens := coalesce(limiter.tokens, limiter.shadow_tokens);
  if tokens is null then
    perform _raise_no_throttle(p_verb, p_policy, p_gate);
  end if;
end
$$;
