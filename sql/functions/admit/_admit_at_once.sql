-- Admits a job in the call that adds it, if nothing goes before it. So it needs no routing step and no pass, and it never has
-- a staged row. Of a job that stays, it returns no row: the caller stages it, and the next pass decides.
--
-- It is only a short cut. So it leaves to the passes whatever takes more than a look. Such are jobs with a job key, a queue or
-- flags, partitions that are new, stopped or probed, and new numbers for partition or limiters. Such are also limiters with
-- reserved slots, shadow gates, and the policies that _goes_at_once leaves out.
--
-- It stages as well if somebody waits (_somebody_waits), and where no tick loop leads: whoever ticks by hand decides when
-- jobs go.
--
-- The danger: the limiters stay locked until the transaction ends, and a client's transaction may last. The cure: the caller
-- knows that it ends with this call.
--
-- The danger: the add fails or is late, because a row is locked or Graphile Worker refuses the job. The cure: it skips locked
-- rows, waits for other locks for 5 ms, and undoes itself after any error. The next pass meets that error, and reports it.
--
--   p_partitions, p_jobs   as _stage takes them, with one job
--   p_now                  null: the database clock, read after the locks
--
-- Locks: the partition, limiters ascending. It skips locked ones.
create or replace function _admit_at_once(
  p_policy text, p_version int, p_partitions json, p_jobs json, p_now timestamptz
) returns setof staging language plpgsql
set lock_timeout = '5ms'
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$   -- as _route
declare
  v_now timestamptz := coalesce(p_now, clock_timestamp());
  v_job record;
  v_given record;
  v_policy policies;
  v_partition partitions;
  v_locked limiters[];
  v_limiters room_before[];
  v_locked_ids bigint[];
  v_staged_id bigint;
  v_admitted record;
begin
  select * into v_job from _job_records(p_jobs) j;
  v_job.cost := coalesce(v_job.cost, 1);
  if v_job."jobKey" is not null or v_job."queueName" is not null or v_job.flags is not null or v_job."runAt" > v_now
    or v_job.cost not between 0 and 1e12 then   -- staged_jobs refuses it
    return;
  end if;
  select * into v_given from json_to_record(p_partitions -> v_job.p)
    as k (key text, shard text, context jsonb, weight float8, limits jsonb);
  -- one subtransaction has all of it, as in _admit
  begin
    select * into v_partition from partitions p
    where p.id = _partition_id(p_policy, v_given.key)
      and p.version = p_version and p.limits = v_given.limits and p.context = v_given.context
      and p.weight = coalesce(v_given.weight, 1)
      and p.stopped_until = '-infinity' and not p.probing
      and _is_led(p_policy, p.shard, v_now)
      -- again under the locks: here it is asked because in a busy policy most calls end here
      and p.due_at > v_now and not exists (
        select from partitions q where q.blocked_on = any(p.limiter_ids))
    for no key update skip locked;
    if v_partition.id is null then
      return;
    end if;
    v_locked_ids := array(
      select l.id from limiters l
      where l.id = any(v_partition.limiter_ids) order by l.id for no key update skip locked);
    -- what decides is read from here on, under the locks
    v_locked := array(select l from limiters l where l.id = any(v_locked_ids));
    select * into v_policy from policies p where p.name = p_policy;
    v_now := coalesce(p_now, clock_timestamp());
    v_limiters := _limiters_of_pass(v_policy.id, v_locked, v_now, true);
    if (cardinality(v_limiters) = cardinality(v_partition.limiter_ids)) is not true
      or not _goes_at_once(v_policy, v_now)
      -- under strict order a job that is due later may have begun
      or v_partition.due_at <= v_now or (v_policy.job_order = 'strict' and v_partition.due_at < 'infinity')
      or v_partition.denied_until > v_now or v_job.expires_at <= v_now
      or _somebody_waits(
        v_policy.id, p_policy, v_partition.shard, v_partition.limiter_ids, v_now)
      or exists (   -- of a limiter that others share, the newest job says the numbers
        select from unnest(v_locked) l
        where l.breadth in (1, 2) and exists (
          select from jsonb_array_elements(v_given.limits) g
          where g.value ->> 'gate' = l.gate and _numbers_differ(l, g.value)))
      or exists (select from unnest(v_locked) l where l.reserved_for is not null)
      or exists (
        select from unnest(v_limiters) l
        where l.shadow_slots is not null or l.shadow_tokens is not null or _lacks_room(
          l.slots, l.reserved_for, l.tokens, l.capacity, l.rate, v_partition.id, v_job.cost))
      or exists (
        select from _slots_for_long_jobs(v_policy, v_now) s
        where v_job.task <> all (s.short_tasks) and s.free < 1)
    then
      raise exception using errcode = 'DPOUT';
    end if;
    v_staged_id := nextval(pg_get_serial_sequence('staged_jobs', 'id'));
    select j.id, j.revision into strict v_admitted from _add_admitted_one(
      v_policy, v_partition, v_staged_id, v_job.task, v_job.payload, v_job."runAt", v_job."maxAttempts", v_job.priority,
      v_job.traceparent, v_now) j;
    perform _charge_one(
      v_policy, v_partition, v_limiters, v_admitted.id, v_staged_id, v_admitted.revision, v_job.cost, v_job.sort_at, v_now);
    insert into activity (policy_id, at, staged, admitted, waits)
    values (v_policy.id, v_now, 1, 1, array[_seconds(
      1000 * greatest(date_part('epoch', v_now) - date_part('epoch', coalesce(v_job."runAt", v_now)), 0))]);
  exception when others then
    return;
  end;
  return query select v_job.n, true, v_staged_id, v_job.task, null::text, _run_at(v_job."runAt"),
    _max_attempts(v_job."maxAttempts"), null::text, coalesce(v_job.priority, 0), null::text[],
    v_now, p_policy, v_partition.key, v_partition.shard, null::json, true;
end
$$;
