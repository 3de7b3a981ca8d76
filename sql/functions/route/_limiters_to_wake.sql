-- The limiters whose waiters are looked at in this step. These are at most `p_max` with a freed row, those whose time has
-- come, and those with new shares (_with_new_shares).
-- An explicit tick ignores the ahead bound, so it always looks at those who wait for it.
create or replace function _limiters_to_wake(
  p_policy policies, p_now timestamptz, p_max int, p_bounded boolean
) returns bigint[] language plpgsql stable as $$
declare
  v_ids bigint[] := array(
    select distinct f.limiter_id from (
      select f.limiter_id from freed f
      where f.policy_id = (p_policy).id order by f.id limit p_max
    ) f);
  v_timed_ids bigint[] := array(
    select l.id from limiters l
    where l.policy_id = (p_policy).id and l.wake_at is not null and l.wake_at <= p_now);
  v_others bigint[];
begin
  v_others := v_timed_ids || _with_new_shares((p_policy).id);
  if v_others <> '{}' then
    v_ids := array(select unnest(v_ids) union select unnest(v_others));
  end if;
  if (p_policy).ahead_limiter_id <> all (v_ids)
    and (not p_bounded or _waits_in_vain(
      (p_policy).id, (p_policy).ahead_limiter_id, p_now)) then
    return v_ids || (p_policy).ahead_limiter_id;
  end if;
  return v_ids;
end
$$;
