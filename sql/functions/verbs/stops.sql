-- Verbs: pause, resume, hold, and the switch.

-- Stops a policy, one of its partitions, or all policies, until resume or `until`. Jobs in flight go on. A partition that
-- does not exist yet is paused when its first job comes. A pause of all also stops policies that are declared later. An end
-- that has passed is refused.
--
-- `dry_run` only counts: also the partitions, staged jobs and jobs in flight that it concerns, which are null otherwise.
--
--   select * from dispatch_policy.pause('fetch_endpoint', partition => 'ep1', until => now() + interval '1 hour');
create or replace function :DISPATCH_POLICY_SCHEMA.pause(
  policy text default null, partition text default null, until timestamptz default null, reason text default null,
  by text default null, "all" boolean default false, dry_run boolean default false
) returns table (matched int, changed int, stored boolean, partitions int, staged int, in_flight int) language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_until timestamptz := coalesce(pause.until, 'infinity');
begin
  perform _check_until('pause', v_until, clock_timestamp(), 'to end a pause, call resume');
  if pause.dry_run then
    perform _check_key(pause.partition);
    select w.matched, 0, w.matched = 0, w.partitions, w.staged, w.in_flight
    into matched, changed, stored, partitions, staged, in_flight
    from _would_reach(pause.policy, pause.partition, pause."all") w;
    return next;
    return;
  end if;
  if pause.partition is not null then
    select s.matched, s.changed, s.stored into matched, changed, stored from _stop_partition(
      pause.policy, pause.partition, v_until, null, pause.reason, pause.by) s;
  else
    if pause."all" then   -- who declares a policy meanwhile has the same turn, and sees this pause, or is seen here
      perform _lock_all_policies('pause');
      insert into pause_of_all as a (until_at, set_by, reason)
      values (v_until, coalesce(pause.by, session_user), pause.reason)
      on conflict (one) do update set
        until_at = excluded.until_at, set_at = excluded.set_at, set_by = excluded.set_by, reason = excluded.reason;
    end if;
    with target as (select t.id, t.paused_until from _targets(pause.policy, pause."all") t),
    paused as (
      update policies p set
        paused_until = v_until, paused_by = coalesce(pause.by, session_user), pause_reason = pause.reason,
        paused_with_all = coalesce(pause."all", false)
      from target t where p.id = t.id returning t.paused_until is distinct from v_until as changed
    )
    select count(*), count(*) filter (where p.changed), count(*) = 0 into matched, changed, stored from paused p;
    perform _record_stop(t.id, null, 'paused', v_until, clock_timestamp())
    from _targets(pause.policy, pause."all") t;
  end if;
  perform _audit('pause', pause.policy, pause.partition, null, null,
    jsonb_build_object('until', v_until), pause.reason, pause.by, matched, changed);
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.pause from public;

-- Ends a pause; for a partition also a hold, and the probe after it. To resume a policy does not end the pauses of single
-- partitions. To resume all also ends the pause of policies that are still to be declared.
--
-- `dry_run` only counts, as that of pause.
--
--   select * from dispatch_policy.resume('fetch_endpoint', partition => 'ep1');
create or replace function :DISPATCH_POLICY_SCHEMA.resume(
  policy text default null, partition text default null, reason text default null, by text default null,
  "all" boolean default false, dry_run boolean default false
) returns table (matched int, changed int, partitions int, staged int, in_flight int) language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_id uuid := _partition_id(resume.policy, resume.partition);
  v_known boolean;
  v_unrouted int;
begin
  if resume.dry_run then
    select w.matched, 0, w.partitions, w.staged, w.in_flight into matched, changed, partitions, staged, in_flight
    from _would_reach(resume.policy, resume.partition, resume."all") w;
    if resume.partition is not null then   -- a stop may wait for the first job of its partition
      matched := exists (select from partitions q where q.id = v_id)::int + (
        select count(*) from arrivals a
        where a.policy = resume.policy and a.pause is not null and a.partition_id = v_id);
    end if;
    return next;
    return;
  end if;
  if resume.partition is not null then
    perform _policy(resume.policy);
    perform from partitions q where q.id = v_id for no key update;
    v_known := found;
    -- The partition may not exist yet, and its pause may be an arrival. If a router has it locked, this waits for the
    -- router, which never waits for this: it skips arrivals that are locked.
    delete from arrivals a
    where a.policy = resume.policy and a.pause is not null and a.partition_id = v_id;
    get diagnostics v_unrouted = row_count;
    if not v_known then   -- it may exist by now, and be paused
      perform from partitions q where q.id = v_id for no key update;
    end if;
    with target as materialized (
      select q.id, q.stopped_until > '-infinity' or q.probing as stopped
      from partitions q where q.id = v_id
    ),
    resumed as (
      update partitions q set
        paused_until = '-infinity', held_until = '-infinity', breaker_until = '-infinity',
        stopped_by = null, stop_reason = null, breaker_reason = null,
        denied_until = case when q.probe_job_id is null then q.denied_until else '-infinity' end,
        denied_reason = case when q.probe_job_id is null then q.denied_reason end,
        probing = false, probe_job_id = null, failures = 0, failures_since = null
      from target t where q.id = t.id and t.stopped returning 1
    )
    select (select count(*) from target) + v_unrouted, (select count(*) from resumed) + v_unrouted into matched, changed;
    perform _record_stop(p.id, v_id, k.reason, '-infinity', clock_timestamp())
    from _policy(resume.policy) p cross join (values ('paused'), ('held'), ('breaker_open')) k (reason);
  else
    if resume."all" then
      perform _lock_all_policies('resume');
      delete from pause_of_all;
    end if;
    with target as (select t.id, t.paused_until from _targets(resume.policy, resume."all") t),
    resumed as (
      update policies p
      set paused_until = '-infinity', paused_by = null, pause_reason = null, paused_with_all = false
      from target t where p.id = t.id returning t.paused_until > '-infinity' as changed
    )
    select count(*), count(*) filter (where r.changed) into matched, changed from resumed r;
    perform _record_stop(t.id, null, 'paused', '-infinity', clock_timestamp())
    from _targets(resume.policy, resume."all") t;
  end if;
  perform _audit('resume', resume.policy, resume.partition, null, null, null, resume.reason,
    resume.by, matched, changed);
  perform _notify(p.name) from policies p
  where resume.policy is null or p.name = resume.policy;
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.resume from public;

-- Stops a partition until a time, for example after a 429. With `gate` and `key` it stops all partitions with this key of a
-- gate, for example those of an account. Unlike a pause, a hold always ends by itself; a later hold
-- extends it. `"for"` counts from now, by the database's clock. At its end one job goes first, and the others follow once
-- one has succeeded. So a server that still answers 429 gets one request. Behind a hold of a key there is no such probe.
-- An end that has passed is refused. `dry_run` only counts, as that of pause; of a key as that of set_limit.
create or replace function :DISPATCH_POLICY_SCHEMA.hold(
  policy text, partition text default null, until timestamptz default null, reason text default null, by text default null,
  "for" interval default null, gate text default null, key text default null, dry_run boolean default false
) returns table (matched int, changed int, stored boolean, partitions int, staged int, in_flight int) language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_until timestamptz := coalesce(hold.until, v_now + hold."for");
  v_dry_run boolean := coalesce(hold.dry_run, false);
begin
  if (hold.gate is null) = (hold.partition is null) or (hold.key is not null and hold.gate is null) then
    raise exception 'dispatch_policy: hold: partition is %, gate is %, key is %, expected a partition, or a gate and its key',
      coalesce(quote_literal(hold.partition), 'null'), coalesce(quote_literal(hold.gate), 'null'),
      coalesce(quote_literal(hold.key), 'null') using errcode = 'DPARG';
  end if;
  if v_until is null or not isfinite(v_until) then
    raise exception 'dispatch_policy: hold: until is %, expected a time; to stop a partition for good, pause it; a key, set its limit to 0',
      coalesce(v_until::text, 'null') using errcode = 'DPARG';
  end if;
  if hold.gate is not null then
    perform _check_until('hold', v_until, v_now, 'to end the hold of a key, clear its limit');
    select s.* into matched, changed, stored, partitions, staged, in_flight from _hold_key(
      hold.policy, hold.gate, hold.key, v_until, hold.reason, hold.by, v_now, v_dry_run) s;
  else
    if hold."for" is distinct from '0' then   -- a length of 0 stops nothing, but the partition is probed
      perform _check_until('hold', v_until, v_now, 'to end a hold, resume the partition');
    end if;
    if v_dry_run then
      perform _check_key(hold.partition);
      select w.matched, 0, w.matched = 0, w.partitions, w.staged, w.in_flight
      into matched, changed, stored, partitions, staged, in_flight
      from _would_reach(hold.policy, hold.partition, false) w;
    else
      select s.matched, s.changed, s.stored into matched, changed, stored from _stop_partition(
        hold.policy, hold.partition, null, v_until, hold.reason, hold.by) s;
    end if;
  end if;
  if not v_dry_run then
    perform _audit('hold', hold.policy, hold.partition, hold.gate, hold.key,
      jsonb_build_object('until', v_until), hold.reason, hold.by, matched, changed);
  end if;
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.hold from public;

-- Stops a key of a gate until a time: an override of 0 above the key's other limits, which count again at its end. Of two
-- holds the one that ends later counts. set_limit and clear_limit of the key end it. Of a shadow gate it stops the key as
-- well, because somebody has said so: until its end that key's limiter is real.
--
--   p_key       null: the gate counts over the policy
--   p_dry_run   only counts, as that of set_limit
create or replace function _hold_key(
  p_policy text, p_gate text, p_key text, p_until timestamptz, p_reason text, p_by text, p_now timestamptz,
  p_dry_run boolean, out matched int, out changed int, out stored boolean, out partitions int, out staged int, out in_flight int
) language plpgsql as $$
declare
  v_policy policies := _policy(p_policy);
  v_gate jsonb := (
    select g.value from jsonb_array_elements(v_policy.definition -> 'gates') g where g.value ->> 'name' = p_gate);
  v_key text := coalesce(p_key, '');
begin
  perform _check_limit(v_policy, p_gate, null);
  if (p_key is null) <> (v_gate ->> 'scope' = 'policy') then
    raise exception 'dispatch_policy: hold: key is %, expected %', coalesce(quote_literal(p_key), 'null'),
      case when p_key is null then format('a scope key of gate %L, which counts by %s', p_gate, v_gate ->> 'scope')
        else format('none: gate %L counts over the policy', p_gate) end using errcode = 'DPARG';
  end if;
  if not p_dry_run then
    perform _lock_turn(v_policy.id, 'limits');
  end if;
  matched := _limit_matches(v_policy.id, p_gate, v_key, null);
  stored := matched = 0;
  if p_dry_run then
    changed := 0;
    select r.partitions, r.staged, r.in_flight into partitions, staged, in_flight
    from _limit_reach(v_policy, p_gate, v_key, null) r;
    return;
  end if;
  changed := matched;
  -- one row for each key, however many jobs are refused
  update overrides o set
    until_at = greatest(o.until_at, p_until),
    set_by = case when o.until_at < p_until then coalesce(p_by, session_user) else o.set_by end,
    reason = case when o.until_at < p_until then p_reason else o.reason end,
    announce_at = case when o.announce_at = o.until_at then greatest(o.until_at, p_until) else o.announce_at end
  where o.policy_id = v_policy.id and o.gate = p_gate and o.scope_key = v_key and o.is_hold and not o.taken_back
    and o.until_at > p_now;
  if not found then
    insert into overrides (
      policy_id, gate, scope_key, set, until_at, set_at, set_by, reason, is_hold)
    values (v_policy.id, p_gate, v_key,
      case when v_gate -> 'overrides' ? 'rate' then '{"rate": 0}'::jsonb else '{"max": 0}' end
        || case when v_gate #>> '{constants,shadow}' = 'true' then '{"shadow": false}'::jsonb else '{}' end,
      p_until, p_now, coalesce(p_by, session_user), p_reason, true);
  end if;
  perform _notify(v_policy.name);
end
$$;

-- Switches a policy off or on at run time. If it is off, jobs are added past it, and the next tick wakes its partitions and
-- admits staged jobs without gates. `dry_run` only counts, as that of pause.
create or replace function :DISPATCH_POLICY_SCHEMA.switch_policy(
  policy text, enabled boolean, reason text default null, by text default null, dry_run boolean default false
) returns table (matched int, changed int, partitions int, staged int, in_flight int) language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_policy policies := _policy(switch_policy.policy);
begin
  if switch_policy.enabled is null then
    raise exception 'dispatch_policy: switch_policy: enabled is null, expected true or false' using errcode = 'DPARG';
  end if;
  if switch_policy.dry_run then
    select w.matched, 0, w.partitions, w.staged, w.in_flight into matched, changed, partitions, staged, in_flight
    from _would_reach(switch_policy.policy, null, false) w;
    return next;
    return;
  end if;
  update policies p set operator_enabled = switch_policy.enabled
  where p.id = v_policy.id;
  matched := 1;
  changed := case when v_policy.enabled is distinct from switch_policy.enabled then 1 else 0 end;
  perform _audit('switch_policy', switch_policy.policy, null, null, null,
    jsonb_build_object('enabled', switch_policy.enabled), switch_policy.reason, switch_policy.by, matched, changed);
  perform _notify(switch_policy.policy);
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.switch_policy from public;
