-- Ends the overrides of a key, of a context, or of all keys, from `p_from` on; null: at once. An override that begins at
-- `p_until` or later stays. Returns how many it ended that were in force or to come.
create or replace function _end_overrides(
  p_policy_id int, p_gate text, p_key text, p_context jsonb, p_from timestamptz, p_until timestamptz, p_now timestamptz
) returns int language plpgsql
set plan_cache_mode = force_custom_plan   -- by the key's index: there may be one for each of 10,000 accounts
as $$
declare
  v_at timestamptz := coalesce(p_from, p_now);
  v_pair jsonb := (_pairs_of(p_context))[1];
  v_ended int;
begin
  with current as (
    select o.id, o.from_at >= v_at as is_to_come, o.until_at > p_now as counts
    from overrides o
    where o.policy_id = p_policy_id and o.gate = p_gate and (o.scope_key = p_key or (p_key is null and o.scope_key is null))
      and (o.context_pair = v_pair or (v_pair is null and o.context_pair is null))
      and o.context is not distinct from p_context
      and not o.taken_back and o.from_at < coalesce(p_until, 'infinity')
    for update
  ),
  dropped as (
    delete from overrides o
    where o.id in (select c.id from current c where c.is_to_come)
  ),
  ended as (
    update overrides o set
      until_at = least(o.until_at, v_at), taken_back = p_from is null, announced_to = null,
      announce_at = case when not c.counts then o.announce_at when p_from is null then '-infinity'
        else least(o.announce_at, o.until_at, v_at) end
    from current c where o.id = c.id and not c.is_to_come
  )
  select count(*) filter (where c.counts) into v_ended from current c;
  return v_ended;
end
$$;
