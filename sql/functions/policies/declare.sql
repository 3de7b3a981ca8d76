-- A policy is declared, and a definition is put in force.

-- Records a policy as a process declares it. Workers decide which definition is in force: see _newest_live. While no worker has
-- the policy, the higher version is, and of equal versions that of the process which started last. A process whose clock is
-- ahead counts as started now: otherwise later processes would be refused until that time.
--
-- Returns whether this definition is now in force, and whether limits are to be worked out again from the stored contexts. They
-- are if it differs from the one before, or if a process that began to do so was killed.
--
--   p_settings   { "halfLifeSeconds", "admissionBatchSize", "tickAdmissionBudget", "ahead": { "jobs", "seconds" },
--     "enabled" }. A process without a preset leaves out the settings that it does not know. They stay as they are.
--   p_host, p_pid   the process that declares it
create or replace function _declare_policy(
  p_definition jsonb, p_hash text, p_settings jsonb, p_started_at timestamptz,
  p_host text default null, p_pid int default null
) returns table (in_force boolean, to_resolve boolean) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '2s'                     -- an open transaction may have paused or switched it: declared again later
as $$
declare
  v_name text := p_definition ->> 'name';
  v_started_at timestamptz := least(p_started_at, clock_timestamp());
  v_policy policies;
  v_live text;
  v_shared_ids int[];
  v_gate text;
  v_zone text;
begin
  -- Node may know a time zone that this server does not, from newer data. Each pass of the policy would fail
  for v_gate, v_zone in
    select g.value ->> 'name', split_part(g.value #>> '{constants,calendar}', ' ', 2)
    from jsonb_array_elements(p_definition -> 'gates') g where g.value #>> '{constants,calendar}' is not null
  loop
    begin
      perform now() at time zone v_zone;
    exception when invalid_parameter_value then
      raise exception 'dispatch_policy: policy %: gate %: timeZone is %, expected a zone of this server''s pg_timezone_names: update its time zone data, or name another zone',
        quote_literal(v_name), quote_literal(v_gate), quote_literal(v_zone) using errcode = 'DPARG';
    end;
  end loop;
  -- declarations of several processes at once, one after the other
  perform _lock_turn(0, 'declare');
  v_gate := (
    select g.value ->> 'name' from jsonb_array_elements(p_definition -> 'gates') g
    where g.value ? 'shared' and g.value ->> 'name' <> v_name and not exists (
      select from policies p where p.shared and p.name = g.value ->> 'name') limit 1);
  if v_gate is not null then
    raise exception 'dispatch_policy: policy %: nobody has declared its shared limit %: declare that first',
      quote_literal(v_name), quote_literal(v_gate) using errcode = 'DPPOL';
  end if;
  insert into policies (
    name, definition, definition_hash, declared_at, half_life, ahead_seconds, paused_until, paused_at, paused_by,
    pause_reason, paused_with_all)
  select v_name, p_definition, p_hash, v_started_at, 60, 0.5,
    coalesce(a.paused_until, '-infinity'), a.paused_at, a.paused_by, a.pause_reason,
    a.one is true   -- a new one is paused with all others
  from (select) one
  left join all_policies a on a.paused_until > clock_timestamp() and (p_definition -> 'tasks' = '[]') is not true
  on conflict (name) do nothing;
  v_policy := _policy(v_name);
  if v_policy.shared <> (p_definition -> 'tasks' = '[]') then
    raise exception 'dispatch_policy: % has the name of a %, expected another name', quote_literal(v_name),
      case when v_policy.shared then 'shared limit' else 'policy' end using errcode = 'DPARG';
  end if;
  -- also of a definition that is not in force: its jobs may name them
  v_shared_ids := array(
    select x.id from jsonb_array_elements(p_definition -> 'gates') g
    join policies x on x.shared and x.name = g.value ->> 'name' where g.value ? 'shared' and x.id <> v_policy.id);
  update policies p set shared_ids = array(select unnest(p.shared_ids) union select unnest(v_shared_ids))
  where p.id = v_policy.id and not p.shared_ids @> v_shared_ids;
  -- one that is in force keeps its declaration: a worker that starts with the same one changes nothing
  insert into definitions as d (policy_id, hash, definition, settings, declared_at, host, pid)
  values (v_policy.id, p_hash, p_definition, p_settings, clock_timestamp(), p_host, p_pid)
  on conflict (policy_id, hash) do update set
    definition = excluded.definition, settings = d.settings || excluded.settings,
    declared_at = case when d.in_force_at is null then excluded.declared_at else d.declared_at end,
    host = case when d.in_force_at is null then excluded.host else d.host end,
    pid = case when d.in_force_at is null then excluded.pid else d.pid end;
  -- A definition with a value that differs at each start would leave a row each time. A silent pool may come back
  delete from definitions d
  where d.policy_id = v_policy.id and d.in_force_at is null and d.declared_at < clock_timestamp() - interval '1 day'
    and not exists (
      select from workers w
      where not w.ended and w.definitions #>> array[v_name, 'hash'] = d.hash);
  v_live := _newest_live(v_policy);
  in_force := case when v_live is null
    then ((p_definition ->> 'version')::int, v_started_at) >= (v_policy.version, v_policy.declared_at)
    else v_live = p_hash end;
  if in_force then
    perform _put_in_force(v_policy, p_hash, v_started_at);
  end if;
  to_resolve := in_force and exists (
    select from definitions d where d.policy_id = v_policy.id and d.hash = p_hash and d.resolves);
  return next;
end
$$;

-- The hash of the newest definition of a policy that a live worker pool has, see the view `definitions`. Null: no live pool
-- has the policy.
create or replace function _newest_live(p_policy policies) returns text language plpgsql stable as $$
begin
  return (select d.hash from :DISPATCH_POLICY_SCHEMA.definitions d where d.policy = (p_policy).name and d.newest_live);
end
$$;

-- Puts a recorded definition of a policy in force. If it is another one than before, the limits of all partitions are to be
-- worked out again, and those that jobs of the one before brought are older than all that this one brings (`generation`).
--
--   p_declared_at   when the process that has it started. Later ones of the same version replace it
create or replace function _put_in_force(p_policy policies, p_hash text, p_declared_at timestamptz)
returns void language plpgsql as $$
declare
  v_id int := (p_policy).id;
  v_definition jsonb;
  v_settings jsonb;
  v_limiter_id bigint;
  v_differs boolean := (p_policy).definition_hash <> p_hash;
  v_strict boolean;
begin
  select d.definition, d.settings into strict v_definition, v_settings
  from definitions d where d.policy_id = v_id and d.hash = p_hash;
  v_strict := coalesce((v_definition #>> '{maxPending,strict}')::boolean, false);
  update definitions d
  set in_force_at = case when d.hash = p_hash then clock_timestamp() end
  where d.policy_id = v_id and (d.hash = p_hash) <> (d.in_force_at is not null);
  v_limiter_id := case when not (p_policy).shared then _make_ahead(v_id) end;
  update policies p set
    version = (v_definition ->> 'version')::int, definition = v_definition, definition_hash = p_hash,
    generation = p.generation + (p.definition_hash <> p_hash)::int, declared_at = p_declared_at,
    keyed_scopes = p.keyed_scopes or v_definition ? 'byCost' or v_definition @? '$.gates[*] ? (@.scope == "key")'
      or v_definition @? '$.functions.class',
    by_cost = p.by_cost or v_definition ? 'byCost',
    class_shares = case when jsonb_typeof(v_definition -> 'classShare') = 'object' then array(
      select sum(s.value::float8) from generate_series(1, 5) c
      join jsonb_each_text(v_definition -> 'classShare') s on s.key::int >= c group by c order by c) end,
    retries = v_definition ->> 'retries', slot_timeout = (v_definition ->> 'slotTimeoutSeconds')::float8,
    breaker_failures = (v_definition #>> '{breaker,failures}')::int,
    breaker_within = (v_definition #>> '{breaker,withinSeconds}')::float8,
    breaker_cooldown = (v_definition #>> '{breaker,cooldownSeconds}')::float8,
    max_pending = (v_definition #>> '{maxPending,partition}')::int,
    max_pending_in_all = (v_definition #>> '{maxPending,policy}')::int,
    when_full = coalesce(v_definition #>> '{maxPending,whenFull}', 'reject'),
    strict_pending = v_strict, unique_for = (v_definition ->> 'uniqueForSeconds')::float8,
    when_busy = coalesce(v_definition ->> 'whenBusy', 'wait'),
    busy_delay = (v_definition ->> 'busyDelaySeconds')::float8, job_order = v_definition ->> 'order',
    load_kept_for = (v_definition #>> '{load,keepSeconds}')::float8,
    history_kept_for = (v_definition #>> '{history,keepSeconds}')::float8,
    fair_by_work = coalesce(v_definition ->> 'fairBy' = 'work', false),
    half_life = case when v_settings ? 'halfLifeSeconds'
      then (v_settings ->> 'halfLifeSeconds')::float8 else p.half_life end,
    batch_size = coalesce((v_settings ->> 'admissionBatchSize')::int, p.batch_size),
    admission_budget = case when v_settings ? 'tickAdmissionBudget'
      then (v_settings ->> 'tickAdmissionBudget')::int else p.admission_budget end,
    ahead = case when v_settings ? 'ahead' then (v_settings #>> '{ahead,jobs}')::int else p.ahead end,
    ahead_seconds = case when v_settings ? 'ahead' then (v_settings #>> '{ahead,seconds}')::float8 else p.ahead_seconds end,
    declared_enabled = coalesce((v_settings ->> 'enabled')::boolean, p.declared_enabled),
    ahead_limiter_id = coalesce(v_limiter_id, p.ahead_limiter_id)
  where p.id = v_id;
  insert into turns (policy_id, step)
  select v_id, s.step from unnest(array['route', 'admit', 'limits', 'adopt', 'events']) s (step)
  on conflict do nothing;
  insert into turns (policy_id, step, place)
  select v_id, 'pending', n from generate_series(0, 1024) n
  where v_strict and not exists (select from turns u where u.policy_id = v_id and u.step = 'pending')
  on conflict do nothing;
  if v_definition #>> '{maxPending,policy}' is not null and ((p_policy).max_pending_in_all is null or v_differs) then
    perform _sweep_pending();   -- jobs that were staged before it had a bound
  end if;
  perform _tell_stop(v_id, null, 'paused', p.paused_until, clock_timestamp())
  from policies p where p.id = v_id and p.paused_until > clock_timestamp();
  delete from policy_tasks t where t.policy_id = v_id and not (v_definition -> 'tasks') ? t.task_identifier;
  insert into policy_tasks as t (task_identifier, policy_id)
  select x.task, v_id from jsonb_array_elements_text(v_definition -> 'tasks') x (task)
  on conflict (task_identifier) do update set policy_id = excluded.policy_id where t.policy_id <> excluded.policy_id;
  if (p_policy).shared then
    perform _redefine_shared(p, clock_timestamp()) from policies p where p.id = v_id and v_differs;
    perform _notify(v_definition ->> 'name');
    return;   -- it has no partitions
  end if;
  if v_differs then
    update definitions d set resolves = d.hash = p_hash, resolved_to = null
    where d.policy_id = v_id and (d.resolves or d.hash = p_hash);
    update keyless_jobs k set retry_at = '-infinity'   -- the one before could not work them out
    where k.staged_id in (
      select x.staged_id from keyless_jobs x
      where x.policy = (p_policy).name and x.retry_at > clock_timestamp() for update skip locked);
  end if;
end
$$;

-- In what two definitions of a policy differ, by option: [{ "option", "now", "here" }], with the value of the first, and of the
-- second. A gate's values are compared by its name, so that a gate that has moved differs in its position alone.
create or replace function _definition_differences(a jsonb, b jsonb) returns jsonb
language sql immutable
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  with side (side, definition) as (values ('a', a), ('b', b)),
  listed as (
    select s.side, e.key as option, e.value from side s cross join jsonb_each(s.definition) e where e.key <> 'gates'
    union all
    select s.side, 'gate ' || (g.value ->> 'name') || ', ' || e.key, e.value
    from side s
    cross join jsonb_array_elements(s.definition -> 'gates') g
    cross join jsonb_each(g.value) e
    -- the values have the constants, and the numbers of an override go by the kind
    where e.key not in ('name', 'overrides') and (e.key <> 'constants' or g.value -> 'values' = 'null')
  ),
  compared as (
    select coalesce(x.option, y.option) as option, x.value as now, y.value as here
    from (select l.* from listed l where l.side = 'a') x
    full join (select l.* from listed l where l.side = 'b') y on y.option = x.option
    where x.value is distinct from y.value
  )
  select coalesce(jsonb_agg(jsonb_build_object('option', c.option, 'now', c.now, 'here', c.here) order by c.option), '[]')
  from compared c;
$$;

-- Whether the definition in force is another one than the newest of the live worker pools, or lacks tasks that only a policy
-- without live pools governs.
create or replace function _is_behind(p_policy policies) returns boolean language plpgsql stable as $$
declare
  v_live text := _newest_live(p_policy);
begin
  return v_live <> (p_policy).definition_hash or (v_live is not null and exists (
    select from policy_tasks t
    join policies x on x.id = t.policy_id
    where x.id <> (p_policy).id and (p_policy).definition -> 'tasks' ? t.task_identifier
      and _newest_live(x) is null));
end
$$;
