-- Verbs: pause, resume, hold, and the switch.

-- Stops a policy, one of its partitions, or all policies, until resume or `until`. Jobs in flight go on. A partition that
-- does not exist yet is paused when its first job comes. A pause of all also stops policies that are declared later.
-- `dry_run` only counts: also partitions, staged jobs and jobs in flight, which are null otherwise.
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
    return query select * from _would_reach(pause.policy, pause.partition, pause."all"); return;
  elsif pause.partition is not null then
    select s.* into matched, changed, stored
    from _stop_partition(pause.policy, pause.partition, v_until, null, pause.reason, pause.by) s;
  else
    select s.*, s.matched = 0 into matched, changed, stored
    from _stop_policies('pause', pause.policy, pause."all", v_until, coalesce(pause.by, session_user), pause.reason) s;
  end if;
  perform _audit('pause', pause.policy, pause.partition, null, null,
    jsonb_build_object('until', v_until), pause.reason, pause.by, matched, changed);
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.pause from public;

-- Pauses a policy or all, or resumes them: then the end is -infinity, and neither `p_by` nor a reason is given.
create or replace function _stop_policies(
  p_verb text, p_policy text, p_all boolean, p_until timestamptz, p_by text, p_reason text, out matched int, out changed int
) language plpgsql as $$
declare
  v_at timestamptz := case when p_until > '-infinity' then clock_timestamp() end;
  v_ids int[];
begin
  -- Who declares a policy meanwhile has the same turn, and sees this pause, or is seen here. Under a fixed snapshot this
  -- would not see a policy that was declared while it waited.
  if p_all then
    perform _check_isolation(p_verb || ' of all policies');
    perform _lock_turn(0, 'declare');
    update all_policies set paused_until = p_until, paused_at = v_at, paused_by = p_by, pause_reason = p_reason;
  end if;
  with target as (select t.id, t.paused_until from _targets(p_policy, p_all) t where not t.shared),
  stopped as (
    update policies p set
      paused_until = p_until, paused_at = v_at, paused_by = p_by, pause_reason = p_reason,
      paused_with_all = coalesce(p_all, false) and p_until > '-infinity'
    from target t where p.id = t.id returning p.id, t.paused_until <> p_until as changed
  )
  select count(*), count(*) filter (where s.changed), array_agg(s.id order by s.id) into matched, changed, v_ids
  from stopped s;
  if p_until > '-infinity' then
    perform _leave_shared_lines(v_ids);
  end if;
  perform _tell_stop(u.id, null, 'paused', p_until, clock_timestamp()) from unnest(v_ids) u (id);
end
$$;

-- Ends a pause; for a partition also a hold, and the probe after it. To resume a policy does not end the pauses of single
-- partitions. To resume all also ends the pause of policies that are still to be declared. `dry_run` only counts.
create or replace function :DISPATCH_POLICY_SCHEMA.resume(
  policy text default null, partition text default null, reason text default null, by text default null,
  "all" boolean default false, dry_run boolean default false
) returns table (matched int, changed int, partitions int, staged int, in_flight int) language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
begin
  if resume.dry_run then
    select w.matched, w.changed, w.partitions, w.staged, w.in_flight into matched, changed, partitions, staged, in_flight
    from _would_reach(resume.policy, resume.partition, resume."all") w;
    if resume.partition is not null then   -- a stop may wait for the first job of its partition
      matched := (
        select count(*) from (
          select q.key from partitions q where q.id = any(_lanes(resume.policy, resume.partition))
          union
          select a.key from arrivals a
          where a.policy = resume.policy and a.pause is not null and a.key = resume.partition) x);
    end if;
    return next; return;
  elsif resume.partition is not null then
    select r.* into matched, changed from _resume_partition(resume.policy, resume.partition) r;
  else
    select s.* into matched, changed from _stop_policies('resume', resume.policy, resume."all", '-infinity', null, null) s;
  end if;
  perform _audit('resume', resume.policy, resume.partition, null, null, null, resume.reason, resume.by, matched, changed);
  perform _notify(p.name) from policies p where resume.policy is null or p.name = resume.policy;
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.resume from public;

-- Stops a partition until a time, for example after a 429. With `gate` and `key` it stops all partitions with this key of a
-- gate, for example those of an account. Unlike a pause, a hold always ends by itself; a later hold extends it. `"for"`
-- counts from now, by the database's clock. At its end one job goes first, and the others follow once one has succeeded. So
-- a server that still answers 429 gets one request. `dry_run` only counts.
--
-- The hold of a key is an override of 0 above the key's other limits, which count again at its end, without a probe. Of two
-- holds the one that ends later counts. set_limit and clear_limit of the key end it. It stops the key of a shadow gate as
-- well, because somebody has said so: until its end that key's limiter is real.
create or replace function :DISPATCH_POLICY_SCHEMA.hold(
  policy text, partition text default null, until timestamptz default null, reason text default null, by text default null,
  "for" interval default null, gate text default null, key text default null, dry_run boolean default false
) returns table (matched int, changed int, stored boolean, partitions int, staged int, in_flight int) language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_until timestamptz := coalesce(hold.until, v_now + hold."for");
  v_by text := coalesce(hold.by, session_user);
  v_key text := coalesce(hold.key, '');
  v_policy policies; v_gate jsonb;
begin
  if (hold.gate is null) = (hold.partition is null) or (hold.key is not null and hold.gate is null) then
    raise exception 'dispatch_policy: hold: partition is %, gate is %, key is %, expected a partition, or a gate and its key',
      coalesce(quote_literal(hold.partition), 'null'), coalesce(quote_literal(hold.gate), 'null'),
      coalesce(quote_literal(hold.key), 'null') using errcode = 'DPARG';
  elsif v_until is null or not isfinite(v_until) then
    raise exception 'dispatch_policy: hold: until is %, expected a time; to stop a partition for good, pause it; a key, set its limit to 0',
      coalesce(v_until::text, 'null') using errcode = 'DPARG';
  elsif hold.partition is not null then
    if hold."for" is distinct from '0' then   -- a length of 0 stops nothing, but the partition is probed
      perform _check_until('hold', v_until, v_now, 'to end a hold, resume the partition');
    end if;
    if hold.dry_run then
      perform _check_key(hold.partition);
      return query select * from _would_reach(hold.policy, hold.partition, false); return;
    end if;
    select s.* into matched, changed, stored
    from _stop_partition(hold.policy, hold.partition, null, v_until, hold.reason, hold.by) s;
  else
    perform _check_until('hold', v_until, v_now, 'to end the hold of a key, clear its limit');
    v_policy := _policy_of_gate(hold.policy, hold.gate);
    perform _check_limit(v_policy, hold.gate);
    v_gate := (
      select g.value from jsonb_array_elements(v_policy.definition -> 'gates') g where g.value ->> 'name' = hold.gate);
    if (hold.key is null) <> (v_gate ->> 'scope' = 'policy') then
      raise exception 'dispatch_policy: hold: key is %, expected %', coalesce(quote_literal(hold.key), 'null'),
        case when hold.key is null then format('a scope key of gate %L, which counts by %s', hold.gate, v_gate ->> 'scope')
          else format('none: gate %L counts over the policy', hold.gate) end using errcode = 'DPARG';
    elsif hold.dry_run then
      return query select * from _limit_reach(v_policy, hold.gate, v_key, null); return;
    end if;
    perform _lock_turn(v_policy.id, 'limits');
    matched := _limit_matches(v_policy.id, hold.gate, v_key, null);
    changed := matched; stored := matched = 0;
    -- one row for each key, however many jobs are refused
    update overrides o set
      until_at = greatest(o.until_at, v_until), set_by = case when o.until_at < v_until then v_by else o.set_by end,
      reason = case when o.until_at < v_until then hold.reason else o.reason end,
      announce_at = case when o.announce_at = o.until_at then greatest(o.until_at, v_until) else o.announce_at end
    where o.policy_id = v_policy.id and o.gate = hold.gate and o.scope_key = v_key and o.is_hold and not o.taken_back
      and o.until_at > v_now;
    if not found then
      insert into overrides (policy_id, gate, scope_key, set, until_at, set_at, set_by, reason, is_hold)
      values (v_policy.id, hold.gate, v_key,
        case when v_gate -> 'overrides' ? 'rate' then '{"rate": 0}'::jsonb else '{"max": 0}' end
          || case when v_gate #>> '{constants,shadow}' = 'true' then '{"shadow": false}'::jsonb else '{}' end,
        v_until, v_now, v_by, hold.reason, true);
    end if;
    perform _notify(v_policy.name);
  end if;
  perform _audit('hold', coalesce(v_policy.name, hold.policy), hold.partition, hold.gate, hold.key,
    jsonb_build_object('until', v_until), hold.reason, hold.by, matched, changed);
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.hold from public;

-- Switches a policy off or on at run time. If it is off, jobs are added past it, and the next tick wakes its partitions and
-- admits staged jobs without gates. `dry_run` only counts.
create or replace function :DISPATCH_POLICY_SCHEMA.switch_policy(
  policy text, enabled boolean, reason text default null, by text default null, dry_run boolean default false
) returns table (matched int, changed int, partitions int, staged int, in_flight int) language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_policy policies := _policy_with_jobs(switch_policy.policy);
begin
  if switch_policy.enabled is null then
    raise exception 'dispatch_policy: switch_policy: enabled is null, expected true or false' using errcode = 'DPARG';
  elsif switch_policy.dry_run then
    return query select w.matched, w.changed, w.partitions, w.staged, w.in_flight
    from _would_reach(switch_policy.policy, null, false) w;
    return;
  end if;
  update policies p set operator_enabled = switch_policy.enabled where p.id = v_policy.id;
  if not switch_policy.enabled then
    perform _leave_shared_lines(array[v_policy.id]);
  end if;
  matched := 1;
  changed := (v_policy.enabled is distinct from switch_policy.enabled)::int;
  perform _audit('switch_policy', switch_policy.policy, null, null, null,
    jsonb_build_object('enabled', switch_policy.enabled), switch_policy.reason, switch_policy.by, matched, changed);
  perform _notify(switch_policy.policy);
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.switch_policy from public;
