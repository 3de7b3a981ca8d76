-- clear_limit, with the time as an argument. An override that has begun ends now, and one that has not is removed.
create or replace function _clear_limit(
  p_policy text, p_gate text, p_key text, p_reason text, p_by text, p_now timestamptz default null,
  p_where jsonb default null, p_dry_run boolean default false
) returns table (matched int, changed int, partitions int, staged int, in_flight int) language plpgsql as $$
declare
  v_now timestamptz;
  v_policy policies := _policy(p_policy);
begin
  perform _check_limit(v_policy, p_gate, null);
  perform _check_where('clear_limit', v_policy, p_gate, p_key, p_where);
  if p_dry_run then
    v_now := coalesce(p_now, clock_timestamp());
    changed := 0;
    matched := (
      select count(*) from overrides o
      where o.policy_id = v_policy.id and o.gate = p_gate and o.scope_key is not distinct from p_key
        and o.context is not distinct from p_where and not o.taken_back and o.until_at > v_now);
    select r.partitions, r.staged, r.in_flight into partitions, staged, in_flight
    from _limit_reach(v_policy, p_gate, p_key, p_where) r;
    return next;
    return;
  end if;
  perform _lock_turn(v_policy.id, 'limits');
  changed := _end_overrides(
    v_policy.id, p_gate, p_key, p_where, null, null, coalesce(p_now, clock_timestamp()));
  matched := changed;
  perform _notify(v_policy.name);
  perform _audit(
    'clear_limit', p_policy, null, p_gate, p_key,
    case when p_where is not null then jsonb_build_object('where', p_where) end, p_reason, p_by, matched, changed);
  return next;
end
$$;
