-- Routes few arrivals for the pass that follows in the same transaction. Most say only that a known partition has one more
-- job, and that is all it knows. Returns how many it consumed, -1 if another router is at work, and null if nothing has
-- happened, because _route must come before, in a transaction of its own.
--
-- It must if a limiter gets other numbers, because that locks limiters. A pass that locked some of them here and others later
-- would deadlock with releases.
create or replace function _route_few(p_policy policies, p_now timestamptz)
returns int language plpgsql as $$
declare
  v_there record;
  v_known known[];
  v_arrivals arrivals[];
  v_message text;
  v_context text;
begin
  if not (p_policy).enabled or (p_policy).max_pending_in_all is not null
    or exists (
      select from overrides o where o.policy_id = (p_policy).id and least(o.announce_at, o.announce_again_at) <= p_now)
    or exists (select from overrides o where o.policy_id = (p_policy).id and o.to_announce <> '{}') then
    return null;
  elsif not exists (select from arrivals a where a.policy = (p_policy).name) then
    return 0;
  elsif not _try_lock_turn((p_policy).id, 'route') then
    return -1;
  end if;
  select array_agg(a.id) as ids, array_agg(distinct a.partition_id) as partition_ids, sum(a.jobs) filter (where a.jobs > 0) as jobs,
    bool_and(coalesce(a.pause is null and a.outcome is null and a.limits = p.limits and a.context = p.context, false)) as are_known
  into v_there
  from (select * from arrivals x where x.policy = (p_policy).name order by x.id limit _few() + 1) a
  left join partitions p on p.id = a.partition_id;
  if v_there.ids is null then
    return 0;
  elsif not v_there.are_known or cardinality(v_there.ids) > _few() or exists (
    -- the newest arrival says the numbers, of a shared limiter that of any partition
    select from partitions p cross join jsonb_array_elements(p.limits) g
    join limiters l on l.id = any(p.limiter_ids) and l.gate = g.value ->> 'gate'
    where p.id = any(v_there.partition_ids) and _numbers_differ(l, g.value)) then
    return null;
  end if;
  begin
    v_known := _lock_known(p_policy, v_there.partition_ids, p_now);
    if cardinality(v_known) < cardinality(v_there.partition_ids) then
      return null;
    end if;
    with consumed as (
      delete from arrivals a where a.policy = (p_policy).name and a.id = any(v_there.ids) returning a
    )
    select coalesce(array_agg(c.a), '{}') into v_arrivals from consumed c;
    if cardinality(v_arrivals) < cardinality(v_there.ids) then
      raise exception 'locked' using errcode = 'DPOUT';   -- somebody else has brought one into effect
    end if;
    perform _update_partitions(p_policy, _arrivals_by_partition(v_arrivals), v_known, '{}', p_now);
    if v_there.jobs > 0 then
      insert into activity (policy_id, at, staged, load)
      values ((p_policy).id, p_now, v_there.jobs, case when (p_policy).load_kept_for is null then '{}'
        else _load_of_arrivals((p_policy).id, v_arrivals, p_now) end);
    end if;
  exception
    when lock_not_available or deadlock_detected or sqlstate 'DPOUT' then return null;
    when others then   -- _route finds which one it is, and leaves it
      get stacked diagnostics v_message = message_text, v_context = pg_exception_context;
      perform _left_to_pass((p_policy).id, _left_for_error(sqlstate, v_context), v_message, p_now);
      return null;
  end;
  return cardinality(v_arrivals);
end
$$;
