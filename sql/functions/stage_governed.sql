-- One policy's part of a staging call, with the rights of the schema's owner: who may call this may stage jobs, and
-- needs no right on a table. What it is told of task, partition and limits is believed, since only JavaScript can work
-- them out; add_job and add_jobs work them out themselves.
--
-- A policy that is switched off stages nothing: its jobs are passed on. What a full backlog drops has no id.
create or replace function :DISPATCH_POLICY_SCHEMA._stage_governed(
  p_policy text, p_version int, p_partitions json, p_jobs json, p_mode text
) returns setof :DISPATCH_POLICY_SCHEMA._private_staging language plpgsql
security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_policy :DISPATCH_POLICY_SCHEMA._private_policies;
  v_jobs json := p_jobs;
begin
  select * into v_policy from :DISPATCH_POLICY_SCHEMA._private_policies p where p.name = p_policy;
  if not v_policy.enabled then
    return query select s.* from :DISPATCH_POLICY_SCHEMA._pass_on(p_policy, p_version, p_partitions, p_jobs, p_mode) s;
    return;
  end if;
  if v_policy.max_pending is not null or v_policy.max_pending_in_all is not null then
    v_jobs := :DISPATCH_POLICY_SCHEMA._make_room(v_policy, p_partitions, p_jobs, p_mode);
    return query
    select s.* from :DISPATCH_POLICY_SCHEMA._not_added(p_policy, p_partitions, p_jobs) s
    where s.n not in (select k.n from :DISPATCH_POLICY_SCHEMA._job_records(v_jobs) k);
  end if;
  if v_jobs::text = '[]' then
    return;
  -- one that is left of several may have its limits from another's partition
  elsif length(p_jobs::text) < 10000 and json_array_length(p_jobs) = 1 and p_jobs -> 0 ->> 'jobKey' is null then
    return query select s.* from :DISPATCH_POLICY_SCHEMA._stage_one(
      p_policy, p_version, p_partitions, v_jobs,
      :DISPATCH_POLICY_SCHEMA._is_droppable(v_policy.when_full, v_policy.max_pending_in_all)) s;
  elsif p_mode = 'unsafe_dedupe' then
    return query select s.* from :DISPATCH_POLICY_SCHEMA._stage_deduped(p_policy, p_version, p_partitions, v_jobs) s;
  else
    perform :DISPATCH_POLICY_SCHEMA._count_removed(array(   -- a key that another policy's job has
      select s.task_identifier from :DISPATCH_POLICY_SCHEMA._job_records(v_jobs) j
      join :DISPATCH_POLICY_SCHEMA._private_staged_jobs s on s.job_key = j."jobKey"
      where :DISPATCH_POLICY_SCHEMA._is_of_another(v_policy, s.task_identifier)))
    from :DISPATCH_POLICY_SCHEMA._private_policies p where p.max_pending_in_all is not null limit 1;
    return query select s.* from :DISPATCH_POLICY_SCHEMA._stage_batch(
      p_policy, p_version, p_partitions, v_jobs, p_mode) s;
  end if;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA._stage_governed from public;

-- Jobs of a policy that is switched off go past staging. What is staged under their job keys is replaced by _stage_plain,
-- or kept in mode unsafe_dedupe.
create or replace function :DISPATCH_POLICY_SCHEMA._pass_on(
  p_policy text, p_version int, p_partitions json, p_jobs json, p_mode text
) returns setof :DISPATCH_POLICY_SCHEMA._private_staging language plpgsql as $$
declare
  v_jobs json := p_jobs;
  v_known json;
  v_rows :DISPATCH_POLICY_SCHEMA._private_staging[];
  v_others bigint[] := '{}';
begin
  if p_mode = 'unsafe_dedupe' then
    select json_agg(j.value) filter (where s.id is null), json_agg(j.value) filter (where s.id is not null)
    into v_jobs, v_known
    from json_array_elements(p_jobs) j
    left join :DISPATCH_POLICY_SCHEMA._private_staged_jobs s on s.job_key = j.value ->> 'jobKey';
    if v_known is not null then
      return query select s.* from :DISPATCH_POLICY_SCHEMA._known_jobs(p_policy, p_partitions, v_known) s;
    end if;
  end if;
  if v_jobs is not null then
    v_rows := array(select s from :DISPATCH_POLICY_SCHEMA._stage_plain(v_jobs, p_mode) s);
    if p_mode = 'unsafe_dedupe' then   -- of a job outside the policy nothing is told
      v_others := array(
        select j.id from :GRAPHILE_WORKER_SCHEMA.jobs j
        where j.id in (select s.id from unnest(v_rows) s)
          and not :DISPATCH_POLICY_SCHEMA._has_task(p_policy, j.task_identifier));
      return query
      select a.* from unnest(v_rows) s
      join :DISPATCH_POLICY_SCHEMA._not_added(p_policy, p_partitions, v_jobs) a on a.n = s.n
      where s.id = any (v_others);
    end if;
    return query
    select s.n, s.staged, s.id, s.task_identifier, s.queue_name, s.run_at, s.max_attempts, s.job_key, s.priority, s.flags,
      s.created_at, s.policy, s.partition, s.shard,
      -- a replaced job's payload may be part of it
      (select json_object_agg(f.key, f.value) from json_each(s.job) f where f.key <> 'payload')
    from unnest(v_rows) s where s.id <> all (v_others);
  end if;
end
$$;

-- The rows of jobs that were not added: what the caller said of them, and no id.
create or replace function :DISPATCH_POLICY_SCHEMA._not_added(p_policy text, p_partitions json, p_jobs json)
returns setof :DISPATCH_POLICY_SCHEMA._private_staging language sql stable as $$
  select j.n, true, null::bigint, j.task, j."queueName", :DISPATCH_POLICY_SCHEMA._run_at(j."runAt"), coalesce(j."maxAttempts", 25),
    j."jobKey", coalesce(j.priority, 0), j.flags, now(), p_policy,
    p_partitions -> j.p ->> 'key', p_partitions -> j.p ->> 'shard', null::json
  from :DISPATCH_POLICY_SCHEMA._job_records(p_jobs) j;
$$;

create or replace function :DISPATCH_POLICY_SCHEMA._is_of_another(
  p_policy :DISPATCH_POLICY_SCHEMA._private_policies, p_task text
) returns boolean language sql stable as $$
  select not exists (
    select from :DISPATCH_POLICY_SCHEMA._private_policy_tasks t
    where t.policy_id = (p_policy).id and t.task_identifier = p_task);
$$;
