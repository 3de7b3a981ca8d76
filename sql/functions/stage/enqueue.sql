-- Stages one policy's jobs of a call, with the rights of the schema's owner. So whoever may call it may stage jobs, and
-- needs no right on a table. It believes task, partition and limits, because only JavaScript can work them out. add_job and
-- add_jobs work them out themselves.
--
-- Of a process that has another version than the one in force, it believes no partition and no limits: its jobs wait until a
-- tick loop works them out (_leader_keys).
--
-- If the policy is switched off, its jobs are passed on. A job that a full backlog drops has no id. One that is dropped
-- because its key is remembered has the id of the earlier one, and a `job`.
--
--   p_ends   the transaction is this call alone, so a job may go at once. A transaction that has written before is another
--            one: its caller is wrong
create or replace function :DISPATCH_POLICY_SCHEMA.enqueue(
  p_policy text, p_version int, p_partitions json, p_jobs json, p_mode text, p_ends boolean default false
) returns setof staging language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_policy policies;
  v_generation int;
  v_jobs json := p_jobs;
  v_kept json;
  v_remembered staging[];
  -- without a key there is nothing to keep
  v_mode text := case when p_mode = 'unsafe_dedupe' and not exists (
    select from json_array_elements(p_jobs) j where j.value ->> 'jobKey' is not null) then 'replace' else p_mode end;
begin
  select * into v_policy from policies p where p.name = p_policy;
  if p_version <> v_policy.version and _leader_keys(v_policy) then   -- without its partitions
    return query select s.* from :DISPATCH_POLICY_SCHEMA.enqueue(
      p_policy, v_policy.version, '[]', p_jobs, p_mode) s;
    return;
  end if;
  v_generation := _generation_of(v_policy, p_version);
  -- Locks in the order of docs/engine.md: the turns of a strict backlog, job keys, staged jobs.
  if v_policy.enabled and v_policy.strict_pending and (v_mode = 'unsafe_dedupe' or v_policy.unique_for is not null) then
    perform _lock_pending(v_policy, p_partitions);
  end if;
  if v_policy.enabled and v_policy.unique_for is not null then
    perform _lock_unique_keys(v_policy, p_jobs);
  end if;
  -- An expired job keeps none out, also while the policy is off. A pass or a sweep may be about to delete it: a new job that
  -- was taken for known beside it would be lost. So this waits for its row.
  if v_mode = 'unsafe_dedupe' then
    perform _drop_expired(array(
      select s.id from staged_jobs s
      where s.job_key in (select j.value ->> 'jobKey' from json_array_elements(p_jobs) j)
        and s.expires_at <= clock_timestamp()
      order by s.job_key for update));
  end if;
  if not v_policy.enabled then
    return query select s.* from _add_past_gates(p_policy, p_version, p_partitions, p_jobs, v_mode) s;
    return;
  end if;
  if v_policy.unique_for is not null then
    v_remembered := _drop_remembered(v_policy, p_partitions, p_jobs);
    if cardinality(v_remembered) > 0 then
      return query select s.* from unnest(v_remembered) s;
      v_jobs := _jobs_without(p_jobs, v_remembered);
      if v_jobs is null then
        return;
      end if;
    end if;
  end if;
  if v_policy.max_pending is not null or v_policy.max_pending_in_all is not null then
    v_kept := _make_room(v_policy, p_partitions, v_jobs, v_mode);
    return query
    select s.* from _not_added(p_policy, p_partitions, v_jobs) s
    where s.n not in (select k.n from _job_records(v_kept) k);
    v_jobs := v_kept;
  end if;
  if v_jobs::text = '[]' then
    return;
  -- a job that is left of several may have its limits from another one's partition
  elsif length(p_jobs::text) < 10000 and json_array_length(p_jobs) = 1 and p_jobs -> 0 ->> 'jobKey' is null then
    -- the rest is asked last, because in a busy policy most calls end here
    if p_ends and pg_current_xact_id_if_assigned() is null and current_setting('transaction_isolation') = 'read committed'
      and _goes_at_once(v_policy, clock_timestamp())
      and exists (select from leases l where l.policy = p_policy and l.expires_at > clock_timestamp()) then
      return query select s.* from _admit_at_once(p_policy, v_generation, p_partitions, p_jobs, null) s;
      if found then
        return;
      end if;
    end if;
    return query select s.* from _stage_one(
      p_policy, v_generation, p_partitions, v_jobs,
      _is_droppable(v_policy.when_full, v_policy.max_pending_in_all)) s;
  elsif v_mode = 'unsafe_dedupe' then
    return query select s.* from _stage_deduped(p_policy, v_generation, p_partitions, v_jobs) s;
  else
    perform _count_removed(array(   -- another policy's job may have the key
      select s.task_identifier from _job_records(v_jobs) j
      join staged_jobs s on s.job_key = j."jobKey"
      where _is_of_another(v_policy, s.task_identifier)), '{}')
    from policies p where p.max_pending_in_all is not null limit 1;
    return query select s.* from _stage_batch(
      p_policy, v_generation, p_partitions, v_jobs, v_mode) s;
    perform _know_unstaged(v_policy, v_jobs);
  end if;
  if v_policy.unique_for is not null then
    perform _remember_staged(v_policy, v_jobs);
  end if;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.enqueue from public;
