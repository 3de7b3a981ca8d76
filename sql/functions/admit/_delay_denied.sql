-- Delays the due jobs of partitions whose gates deny them, except for parked jobs (`whenBusy: { delay }`). Each is due again
-- later, and keeps its id, its priority and its expiry. These are the jobs that _skip_denied would drop.
--
-- The danger: jobs that were delayed together would be due together, and a cap of 1 would let one of them go each time. The
-- cure: the first is due after the delay, and the others, in their order, evenly until twice the delay. They are due in steps
-- of a quarter of a second, so that many jobs need few passes.
--
-- The partition waits no longer: the next pass goes on with the rest, and then finds when the first is due. Returns whether it
-- has delayed any.
create or replace function _delay_denied(
  p_policy policies, p_partition_ids uuid[], p_now timestamptz
) returns boolean language plpgsql as $$
declare
  v_ids bigint[] := _lock_denied(p_partition_ids);
  v_delay float8 := (p_policy).busy_delay;
begin
  if v_ids = '{}' then
    return false;
  end if;
  with placed as (
    select s.id, row_number() over (order by s.priority, s.run_at, s.id) - 1 as place
    from staged_jobs s where s.id = any(v_ids)
  ),
  delayed as (
    update staged_jobs s set due = false,
      run_at = p_now + make_interval(secs => v_delay + floor(p.place * v_delay * 4 / cardinality(v_ids)) / 4)
    from placed p where s.id = p.id returning s.partition_id
  ),
  counted as (
    insert into activity (policy_id, at, delayed)
    values ((p_policy).id, p_now, cardinality(v_ids))
  )
  update partitions q set denied_until = '-infinity', blocked_on = null,
    denied_reason = null
  where q.id in (select d.partition_id from delayed d);
  return true;
end
$$;
