-- Leaves a freed row for each of these limiters, and notifies their policies. Somebody waits for each of them. Those that the
-- caller passes on are left out.
--
-- Returns how many jobs of each worker pool may end before the next flush, see _free_slots.
create or replace function _announce_freed(
  p_waited limiters[], p_to_pass_on bigint[], p_now timestamptz
) returns int language plpgsql volatile as $$   -- planned as _free_slots
declare
  v_policy_ids int[];
begin
  with announced as (
    insert into freed (policy_id, limiter_id)
    select w.policy_id, w.id from unnest(p_waited) w where (w.id in (select unnest(p_to_pass_on))) is not true
    returning policy_id
  )
  select array_agg(distinct a.policy_id) into v_policy_ids from announced a;
  perform _notify(p.name) from policies p
  where p.id = any(v_policy_ids);
  return (
    select min(case when w.kind = 'ahead' then _may_end(w, p_now) else 0 end)
    from unnest(p_waited) w where w.policy_id = any(v_policy_ids));
end
$$;
