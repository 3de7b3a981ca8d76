-- Postpones the claimed partitions that use a limiter which another transaction has locked, and returns the others. Without
-- `p_busy`, each pass would wait for the limiter again.
--
--   p_locked   limiters that this pass found locked
--   p_busy     limiters that earlier passes found locked, with the time
--
-- A partition is postponed for as long as its limiter has been locked: at least 0.1 seconds, and at most a second.
create or replace function _postpone(
  p_policy_id int, p_partition_ids uuid[], p_busy jsonb, p_locked bigint[], p_remember boolean, p_now timestamptz
) returns uuid[] language plpgsql as $$
declare
  v_busy jsonb;
  v_postponed uuid[];
begin
  v_busy := (
    select coalesce(jsonb_object_agg(u.id, coalesce(p_busy -> u.id::text, to_jsonb(p_now))), '{}')
    from unnest(p_locked) u (id));
  if p_remember and v_busy <> p_busy then
    update turns t set busy = v_busy
    where t.policy_id = p_policy_id and t.step = 'admit' and t.place = 0;
  end if;
  if p_locked = '{}' then
    return p_partition_ids;
  end if;
  with postponed as (
    update partitions p set
      blocked_on = null, denied_reason = null,
      denied_until = p_now + least(greatest(interval '100 milliseconds', (
        select max(p_now - (v_busy ->> u.id::text)::timestamptz)
        from unnest(p.limiter_ids) u (id) where u.id = any(p_locked))), interval '1 second')
    where p.id = any(p_partition_ids) and p.limiter_ids && p_locked
    returning p.id
  )
  select array_agg(o.id) into v_postponed from postponed o;
  return array(select u.id from unnest(p_partition_ids) u (id) where (u.id in (select unnest(v_postponed))) is not true);
end
$$;
