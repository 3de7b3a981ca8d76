-- Settles jobs at one throttle, which the caller has locked. Returns whether somebody waits for tokens that came back.
--
-- A bucket gets no more back than it can have, and its debt has an end (_lowest_tokens). It refunds nothing that was
-- spent before its `per`, or before it fills if that takes longer: by now it has gained that anew. A window gets a return
-- back at the time of the spending, and a charge counts from now on. A shadow gate stops at empty, as it does for a pass.
--
-- A return leaves a freed row if a partition waits. The router then works out who may go, and when the others are looked at.
create or replace function _settle_throttle(
  p_policy_id int, p_limiter_id bigint, p_settlements settlement[], p_now timestamptz
) returns boolean language plpgsql volatile as $$   -- planned as _release
declare
  v_limiter room_before := (
    select n from _rooms_of(p_policy_id, array[p_limiter_id], p_now, false) n);
  v_own_rate float8 := (select (l.numbers).rate from limiters l where l.id = p_limiter_id);
  v_is_shadow boolean := v_limiter.shadow_tokens is not null;
  v_tokens float8 := coalesce(v_limiter.tokens, v_limiter.shadow_tokens);
  v_spent spending[] := v_limiter.spent;
  v_charge float8;
  v_return record;
  v_then float8;
begin
  if v_spent is null then
    v_charge := (
      select coalesce(sum(s.difference), 0) from unnest(p_settlements) s
      where s.difference > 0 or s.since > p_now - make_interval(secs => least(
        v_limiter.per * greatest(v_limiter.capacity / nullif(greatest(v_limiter.rate, 0), 0), 1), 1e9)));
    v_then := case when v_charge > 0 then least(v_tokens, greatest(v_tokens - v_charge, case when v_is_shadow then 0
        else _lowest_tokens(v_limiter.rate, v_own_rate) end))
      else greatest(v_tokens, least(v_tokens - v_charge, v_limiter.capacity)) end;
  else
    for v_return in select s.since, -s.difference as cost from unnest(p_settlements) s where s.difference < 0 loop
      v_spent := _window_return(v_spent, v_return.since, v_return.cost);
    end loop;
    v_then := v_limiter.capacity - _window_spent(v_spent, v_limiter.window_seconds, p_now);
    v_charge := (select coalesce(sum(s.difference), 0) from unnest(p_settlements) s where s.difference > 0);
    if v_is_shadow then
      v_charge := least(v_charge, greatest(v_then, 0));
    end if;
    if v_charge > 0 then
      v_spent := _window_spend(
        v_spent, v_limiter.window_seconds, v_limiter.remembered, v_charge, p_now);
      v_then := v_then - v_charge;
    end if;
  end if;
  update limiters l set
    tokens = v_then, spent = coalesce(v_spent, l.spent),
    refilled_at = _throttle_filled_at(l.refilled_at, p_now)
  where l.id = p_limiter_id;
  if v_then <= v_tokens or not exists (
    select from partitions q where q.blocked_on = p_limiter_id) then
    return false;
  end if;
  insert into freed (policy_id, limiter_id) values (p_policy_id, p_limiter_id);
  perform _notify(p.name) from policies p where p.id = p_policy_id;
  return true;
end
$$;
