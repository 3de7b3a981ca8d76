-- A job goes in the call that adds it.

-- Admits a job in the call that adds it, if nothing goes before it: it needs no routing step and no pass, and never has a staged
-- row. Of a job that stays, it returns no row: the caller stages it, and the next pass decides.
--
-- It leaves to the passes what takes more than a look: jobs with a job key, a queue or flags, partitions that are new, stopped
-- or probed, new numbers, and the policies that _goes_at_once leaves out. So it does if somebody waits, and where no tick loop
-- leads: whoever ticks by hand decides when jobs go.
--
-- Its limiters stay locked until the transaction ends: the caller knows that it ends with this call. It skips locked rows, waits
-- 5 ms for other locks, and undoes itself after any error, of which an unexpected one is counted. The next pass meets what
-- Graphile Worker refuses, and reports it.
--
--   p_partitions, p_jobs   as _stage takes them, with one job
--   p_now                  null: the database clock, read after the locks
--
-- Locks: the partition, limiters ascending.
create or replace function _admit_at_once(
  p_policy text, p_version int, p_partitions json, p_jobs json, p_now timestamptz
) returns setof staging language plpgsql
set lock_timeout = '5ms'
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$   -- as _route
declare
  v_now timestamptz := coalesce(p_now, clock_timestamp());
  v_job record;
  v_policy policies;
  v_partition partitions;
  v_limiter limiters;
  v_limiters limiters[];
  v_new staged_jobs;
  v_few record;
  v_message text;
  v_context text;
begin
  select j.*, k.key as partition_key, k.lane, k.context, k.weight, k.limits into v_job
  from _job_records(p_jobs) j
  left join lateral json_to_record(p_partitions -> j.p)
    as k (key text, lane text, context jsonb, weight float8, limits jsonb) on true;
  v_job.cost := coalesce(v_job.cost, 1);
  if v_job."jobKey" is not null or v_job."queueName" is not null or v_job.flags is not null or v_job."runAt" > v_now
    or v_job.cost not between 0 and 1e12 then   -- staged_jobs refuses it
    return;
  end if;
  -- one subtransaction has all of it, as in _admit
  begin
    select * into v_partition from partitions p
    where p.id = _partition_id(p_policy, v_job.partition_key, v_job.lane)
      and p.version = p_version and p.limits = v_job.limits and p.context = v_job.context
      and p.weight = coalesce(v_job.weight, 1)
      and p.stopped_until = '-infinity' and not p.probing
      and _is_led(p_policy, p.shard, v_now)
      -- again under the locks: here it is asked because in a busy policy most calls end here
      and p.due_at > v_now and not exists (select from arrivals a where a.policy = p_policy) and not exists (
        select from partitions q where q.blocked_on = any(p.limiter_ids))
    for no key update skip locked;
    if v_partition.id is null then
      return;
    end if;
    v_limiters := array(
      select l from limiters l
      where l.id = any(v_partition.limiter_ids) order by l.id for no key update skip locked);
    -- what decides is read from here on, under the locks
    select * into v_policy from policies p where p.name = p_policy;
    v_now := coalesce(p_now, clock_timestamp());
    if cardinality(v_limiters) < (case when v_policy.by_cost   -- one of several slots is there as often
        then (select count(distinct u.id) from unnest(v_partition.limiter_ids) u (id)) else cardinality(v_partition.limiter_ids) end)
      or not _goes_at_once(v_policy, v_now)
      -- under strict order a job that is due later may have begun
      or v_partition.due_at <= v_now or (v_policy.job_order = 'strict' and (v_partition.due_at < 'infinity' or v_partition.laned))
      or v_partition.denied_until > v_now or v_job.expires_at <= v_now
      -- what a new job must not overtake
      or exists (select from freed f where f.policy_id = v_policy.id)
      or exists (select from arrivals a where a.policy = p_policy)
      or exists (select from partitions q where q.blocked_on = any(v_partition.limiter_ids))
      or exists (select from keyless_jobs k where k.policy = p_policy and k.retry_at <= clock_timestamp())
      or exists (
        select from partitions q
        where q.policy_id = v_policy.id and q.shard = v_partition.shard and q.ready and q.eligible_at <= v_now)
      or exists (
        select from partitions q
        where q.policy_id = v_policy.id and q.shard = v_partition.shard and not q.ready and q.eligible_at < 'infinity'
          and q.eligible_at <= v_now)
      or exists (select from limiters l where l.policy_id = v_policy.id and l.wake_at <= v_now)
      or exists (
        select from overrides o
        where o.policy_id = v_policy.id and (o.to_announce <> '{}' or least(o.announce_at, o.announce_again_at) <= v_now)) then
      raise exception using errcode = 'DPOUT';
    end if;
    foreach v_limiter in array v_limiters loop   -- of a limiter that others share, the newest job says the numbers
      continue when v_limiter.breadth > 2 or (v_limiter.breadth = 0 and not v_limiter.laned);
      if exists (
        select from jsonb_array_elements(v_job.limits) g
        where g.value ->> 'gate' = v_limiter.gate and _numbers_differ(v_limiter, g.value)) then
        raise exception using errcode = 'DPOUT';
      end if;
    end loop;
    v_new.id := nextval('staged_jobs_id_seq');
    v_new.partition_id := v_partition.id;
    v_new.task_identifier := v_job.task;
    v_new.payload := coalesce(v_job.payload, '{}');
    v_new.run_at_given := v_job."runAt" is not null;
    v_new.run_at := _run_at(coalesce(v_job."runAt", v_now));
    v_new.max_attempts := v_job."maxAttempts";
    v_new.priority := coalesce(v_job.priority, 0);
    v_new.cost := v_job.cost;
    v_new.created_at := v_now;
    v_new.traceparent := left(v_job.traceparent, 55);
    v_new.sort_at := v_job.sort_at;
    v_few := _admit_few(v_policy, array[_as_claimed(v_partition, 0)], v_limiters, null, v_new, true, v_now);
    insert into activity (policy_id, at, staged, admitted, waits) values (v_policy.id, v_now, 1, 1, v_few.waits);
  exception
    when lock_not_available or deadlock_detected or sqlstate 'DPOUT' then return;
    when others then
      get stacked diagnostics v_message = message_text, v_context = pg_exception_context;
      perform _left_to_pass(p.id, _left_for_error(sqlstate, v_context), v_message, v_now)
      from policies p where p.name = p_policy;
      return;
  end;
  return query select v_job.n, true, v_new.id, v_job.task, null::text, _run_at(v_job."runAt"),
    _max_attempts(v_job."maxAttempts"), null::text, coalesce(v_job.priority, 0), null::text[],
    v_now, p_policy, v_partition.key, v_partition.shard, null::json, true;
end
$$;

-- Whether jobs of this policy may go in the call that adds them: not where a pass does more than to admit them, because of a
-- budget, a bounded backlog, a history, a recorded load, or a share of each worker pool.
create or replace function _goes_at_once(
  policy policies, now timestamptz
) returns boolean language sql immutable as $$
  select (policy).enabled and (policy).paused_until <= now and (policy).admission_budget is null
    and (policy).max_pending is null and (policy).max_pending_in_all is null
    and not (policy).recorded and not (policy).per_worker;
$$;
