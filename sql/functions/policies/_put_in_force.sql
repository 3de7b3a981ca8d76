-- Puts a recorded definition of a policy in force. If it is another one than before, the limits of all partitions are to be
-- worked out again, and those that jobs of the one before brought are older than all that this one brings (`generation`).
--
--   p_declared_at   when the process that has it started. Later ones of the same version replace it
create or replace function _put_in_force(
  p_policy policies, p_hash text, p_declared_at timestamptz
) returns void language plpgsql as $$
declare
  v_id int := (p_policy).id;
  v_definition jsonb;
  v_settings jsonb;
  v_limiter_id bigint;
begin
  select d.definition, d.settings into strict v_definition, v_settings
  from definitions d where d.policy_id = v_id and d.hash = p_hash;
  update definitions d
  set in_force_at = case when d.hash = p_hash then clock_timestamp() end
  where d.policy_id = v_id and (d.hash = p_hash) <> (d.in_force_at is not null);
  insert into limiters (policy_id, gate, scope_key, kind, breadth, position)
  values (v_id, 'ahead', '', 'ahead', 3, 32767) on conflict (policy_id, gate, scope_key) do nothing
  returning id into v_limiter_id;
  update policies p set
    version = (v_definition ->> 'version')::int, definition = v_definition, definition_hash = p_hash,
    generation = p.generation + (p.definition_hash <> p_hash)::int, declared_at = p_declared_at,
    retries = v_definition ->> 'retries', slot_timeout = (v_definition ->> 'slotTimeoutSeconds')::float8,
    breaker_failures = (v_definition #>> '{breaker,failures}')::int,
    breaker_within = (v_definition #>> '{breaker,withinSeconds}')::float8,
    breaker_cooldown = (v_definition #>> '{breaker,cooldownSeconds}')::float8,
    max_pending = (v_definition #>> '{maxPending,partition}')::int,
    max_pending_in_all = (v_definition #>> '{maxPending,policy}')::int,
    when_full = coalesce(v_definition #>> '{maxPending,whenFull}', 'reject'),
    strict_pending = coalesce((v_definition #>> '{maxPending,strict}')::boolean, false),
    unique_for = (v_definition ->> 'uniqueForSeconds')::float8,
    when_busy = coalesce(v_definition ->> 'whenBusy', 'wait'),
    busy_delay = (v_definition ->> 'busyDelaySeconds')::float8, job_order = v_definition ->> 'order',
    load_kept_for = (v_definition #>> '{load,keepSeconds}')::float8,
    history_kept_for = (v_definition #>> '{history,keepSeconds}')::float8,
    fair_by_work = coalesce(v_definition ->> 'fairBy' = 'work', false),
    half_life = case when v_settings ? 'halfLifeSeconds' then (v_settings ->> 'halfLifeSeconds')::float8 else p.half_life end,
    batch_size = coalesce((v_settings ->> 'admissionBatchSize')::int, p.batch_size),
    admission_budget = case when v_settings ? 'tickAdmissionBudget'
      then (v_settings ->> 'tickAdmissionBudget')::int else p.admission_budget end,
    ahead = case when v_settings ? 'ahead' then (v_settings #>> '{ahead,jobs}')::int else p.ahead end,
    ahead_seconds = case when v_settings ? 'ahead' then (v_settings #>> '{ahead,seconds}')::float8 else p.ahead_seconds end,
    declared_enabled = coalesce((v_settings ->> 'enabled')::boolean, p.declared_enabled),
    ahead_limiter_id = coalesce(v_limiter_id, p.ahead_limiter_id)
  where p.id = v_id;
  perform _make_turns(v_id, coalesce((v_definition #>> '{maxPending,strict}')::boolean, false));
  if v_definition #>> '{maxPending,policy}' is not null
    and ((p_policy).max_pending_in_all is null or (p_policy).definition_hash <> p_hash) then
    perform _sweep_pending();   -- jobs that were staged before it had a bound
  end if;
  perform _record_stop(v_id, null, 'paused', p.paused_until, clock_timestamp())
  from policies p where p.id = v_id and p.paused_until > clock_timestamp();
  delete from policy_tasks t
  where t.policy_id = v_id and not (v_definition -> 'tasks') ? t.task_identifier;
  insert into policy_tasks as t (task_identifier, policy_id)
  select x.task, v_id from jsonb_array_elements_text(v_definition -> 'tasks') x (task)
  on conflict (task_identifier) do update set policy_id = excluded.policy_id where t.policy_id <> excluded.policy_id;
  if (p_policy).definition_hash <> p_hash then
    insert into resolutions as r (policy, definition_hash) values ((p_policy).name, p_hash)
    on conflict (policy) do update set definition_hash = excluded.definition_hash, after = null;
    update keyless_jobs k set retry_at = '-infinity'   -- the one before could not work them out
    where k.staged_id in (
      select x.staged_id from keyless_jobs x
      where x.policy = (p_policy).name and x.retry_at > clock_timestamp() for update skip locked);
  end if;
end
$$;
