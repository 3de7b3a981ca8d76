-- Records a policy as a process declares it. The higher version wins; of equal versions, the process that started last. A
-- process whose clock is ahead counts as started now: otherwise later processes would be refused until that time.
--
-- Returns whether this definition is now in force, and whether limits are to be worked out again from the stored
-- contexts. They are if it differs from the one before, or if a process that began to do so was killed.
--
--   p_settings   { "halfLifeSeconds", "admissionBatchSize", "tickAdmissionBudget", "ahead": { "jobs", "seconds" },
--     "enabled" }. A process without a preset leaves out the settings that it does not know. They stay as they are.
--   p_host, p_pid   the process that declares it
create or replace function :DISPATCH_POLICY_SCHEMA._declare_policy(
  p_definition jsonb, p_hash text, p_settings jsonb, p_started_at timestamptz, p_host text default null, p_pid int default null
) returns table (in_force boolean, to_resolve boolean) language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'                     -- an open transaction may have paused or switched it: declared again later
as $$
#variable_conflict use_column
declare
  v_name text := p_definition ->> 'name';
  v_id int;
  v_before record;
  v_limiter_id bigint;
begin
  perform :DISPATCH_POLICY_SCHEMA._check_time_zones(p_definition);
  -- declarations of several processes at once, one after the other
  perform :DISPATCH_POLICY_SCHEMA._lock_turn(0, 'declare');
  select p.definition_hash, p.max_pending_in_all into v_before from :DISPATCH_POLICY_SCHEMA._private_policies p where p.name = v_name;
  insert into :DISPATCH_POLICY_SCHEMA._private_policies as p (
    name, version, definition, definition_hash, declared_at, half_life, batch_size, admission_budget, ahead,
    ahead_seconds, retries, slot_timeout, breaker_failures, breaker_within, breaker_cooldown, max_pending,
    max_pending_in_all, when_full, strict_pending, unique_for, when_busy, busy_delay, job_order, load_kept_for, history_kept_for,
    fair_by_work, declared_enabled, paused_until, paused_by, pause_reason, paused_with_all)
  select
    v_name, (p_definition ->> 'version')::int, p_definition, p_hash, least(p_started_at, clock_timestamp()),
    case when p_settings ? 'halfLifeSeconds' then (p_settings ->> 'halfLifeSeconds')::float8 else 60 end,
    coalesce((p_settings ->> 'admissionBatchSize')::int, 100), (p_settings ->> 'tickAdmissionBudget')::int,
    (p_settings #>> '{ahead,jobs}')::int,
    case when p_settings ? 'ahead' then (p_settings #>> '{ahead,seconds}')::float8 else 0.5 end,
    p_definition ->> 'retries', (p_definition ->> 'slotTimeoutSeconds')::float8,
    (p_definition #>> '{breaker,failures}')::int, (p_definition #>> '{breaker,withinSeconds}')::float8,
    (p_definition #>> '{breaker,cooldownSeconds}')::float8,
    (p_definition #>> '{maxPending,partition}')::int, (p_definition #>> '{maxPending,policy}')::int,
    coalesce(p_definition #>> '{maxPending,whenFull}', 'reject'),
    coalesce((p_definition #>> '{maxPending,strict}')::boolean, false),
    (p_definition ->> 'uniqueForSeconds')::float8, coalesce(p_definition ->> 'whenBusy', 'wait'),
    (p_definition ->> 'busyDelaySeconds')::float8, p_definition ->> 'order',
    (p_definition #>> '{load,keepSeconds}')::float8, (p_definition #>> '{history,keepSeconds}')::float8,
    coalesce(p_definition ->> 'fairBy' = 'work', false), coalesce((p_settings ->> 'enabled')::boolean, true),
    coalesce(a.until_at, '-infinity'), a.set_by, a.reason, a.until_at is not null   -- a new one is paused with all others
  from (select) one
  left join :DISPATCH_POLICY_SCHEMA._private_pause_of_all a on a.until_at > clock_timestamp()
  on conflict (name) do update set
    version = excluded.version, definition = excluded.definition, definition_hash = excluded.definition_hash,
    declared_at = excluded.declared_at, retries = excluded.retries, slot_timeout = excluded.slot_timeout,
    breaker_failures = excluded.breaker_failures, breaker_within = excluded.breaker_within,
    breaker_cooldown = excluded.breaker_cooldown, max_pending = excluded.max_pending,
    max_pending_in_all = excluded.max_pending_in_all, when_full = excluded.when_full,
    strict_pending = excluded.strict_pending, unique_for = excluded.unique_for, when_busy = excluded.when_busy,
    busy_delay = excluded.busy_delay, job_order = excluded.job_order, load_kept_for = excluded.load_kept_for,
    history_kept_for = excluded.history_kept_for, fair_by_work = excluded.fair_by_work,
    half_life = case when p_settings ? 'halfLifeSeconds' then excluded.half_life else p.half_life end,
    batch_size = case when p_settings ? 'admissionBatchSize' then excluded.batch_size else p.batch_size end,
    admission_budget =
      case when p_settings ? 'tickAdmissionBudget' then excluded.admission_budget else p.admission_budget end,
    ahead = case when p_settings ? 'ahead' then excluded.ahead else p.ahead end,
    ahead_seconds = case when p_settings ? 'ahead' then excluded.ahead_seconds else p.ahead_seconds end,
    declared_enabled = case when p_settings ? 'enabled' then excluded.declared_enabled else p.declared_enabled end
  where (excluded.version, excluded.declared_at) >= (p.version, p.declared_at)
  returning p.id into v_id;
  perform :DISPATCH_POLICY_SCHEMA._record_definition(v_name, p_hash, p_definition, p_host, p_pid, clock_timestamp());
  if v_id is null then
    return query select false, false;
    return;
  end if;
  perform :DISPATCH_POLICY_SCHEMA._make_turns(v_id, coalesce((p_definition #>> '{maxPending,strict}')::boolean, false));
  insert into :DISPATCH_POLICY_SCHEMA._private_limiters (policy_id, gate, scope_key, kind, breadth, position)
  values (v_id, 'ahead', '', 'ahead', 3, 32767) on conflict (policy_id, gate, scope_key) do nothing
  returning id into v_limiter_id;
  if p_definition #>> '{maxPending,policy}' is not null
    and (v_before.max_pending_in_all is null or v_before.definition_hash is distinct from p_hash) then
    perform :DISPATCH_POLICY_SCHEMA._sweep_pending();   -- jobs that were staged before it had a bound
  end if;
  perform :DISPATCH_POLICY_SCHEMA._record_stop(v_id, null, 'paused', p.paused_until, clock_timestamp())
  from :DISPATCH_POLICY_SCHEMA._private_policies p where p.id = v_id and p.paused_until > clock_timestamp();
  if v_limiter_id is not null then
    update :DISPATCH_POLICY_SCHEMA._private_policies p set ahead_limiter_id = v_limiter_id where p.id = v_id;
  end if;
  delete from :DISPATCH_POLICY_SCHEMA._private_policy_tasks t
  where t.policy_id = v_id and not (p_definition -> 'tasks') ? t.task_identifier;
  insert into :DISPATCH_POLICY_SCHEMA._private_policy_tasks as t (task_identifier, policy_id)
  select x.task, v_id from jsonb_array_elements_text(p_definition -> 'tasks') x (task)
  on conflict (task_identifier) do update set policy_id = excluded.policy_id where t.policy_id <> excluded.policy_id;
  if v_before.definition_hash <> p_hash then
    insert into :DISPATCH_POLICY_SCHEMA._private_resolutions as r (policy, definition_hash) values (v_name, p_hash)
    on conflict (policy) do update set definition_hash = excluded.definition_hash, after = null;
  end if;
  return query select true, exists (
    select from :DISPATCH_POLICY_SCHEMA._private_resolutions r where r.policy = v_name and r.definition_hash = p_hash);
end
$$;
