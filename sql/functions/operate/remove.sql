-- Removes staged jobs: by id, by job key, or all of a policy or partition. Admitted jobs stay, and locked rows are skipped.
-- A parked job waits inside Graphile Worker, which keeps it as failed for good.
create or replace function :DISPATCH_POLICY_SCHEMA.remove(
  ids bigint[] default null, job_key text default null, policy text default null, partition text default null,
  reason text default null, by text default null, dry_run boolean default false
) returns table (matched int, changed int) language plpgsql
security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_ids bigint[];
  v_keys text[];
  v_parked_ids bigint[];
  v_revisions int[];
begin
  if remove.ids is null and remove.job_key is null and remove.policy is null then
    raise exception 'dispatch_policy: remove: expected ids, a job_key or a policy, got none of them'
      using errcode = 'DPARG';
  end if;
  if remove.policy is not null then
    perform :DISPATCH_POLICY_SCHEMA._policy(remove.policy);
  end if;
  v_ids := array(
    select s.id from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s
    left join :DISPATCH_POLICY_SCHEMA._private_partitions q on q.id = s.partition_id
    left join :DISPATCH_POLICY_SCHEMA._private_policies p on p.id = q.policy_id
    where (remove.ids is null or s.id = any(remove.ids))
      and (remove.job_key is null or s.id = any(array(
        select n.id from :DISPATCH_POLICY_SCHEMA._private_staged_jobs n where n.job_key = remove.job_key
        union all
        select n.id from :GRAPHILE_WORKER_SCHEMA.jobs j
        join :DISPATCH_POLICY_SCHEMA._private_staged_jobs n on n.parked_job_id = j.id where j.key = remove.job_key)))
      -- a job that was just staged has only its partition's id
      and (remove.policy is null or p.name = remove.policy or (q.id is null and s.task_identifier in (
        select t.task_identifier from :DISPATCH_POLICY_SCHEMA._private_policy_tasks t
        join :DISPATCH_POLICY_SCHEMA._private_policies x on x.id = t.policy_id where x.name = remove.policy)))
      and (remove.partition is null or q.key = remove.partition or (q.id is null
        and s.partition_id = :DISPATCH_POLICY_SCHEMA._partition_id(remove.policy, remove.partition)))
    order by s.id for update of s skip locked);
  matched := cardinality(v_ids);
  changed := 0;
  if not coalesce(remove.dry_run, false) then
    delete from :DISPATCH_POLICY_SCHEMA._private_keyless_jobs k where k.staged_id = any(v_ids);
    perform :DISPATCH_POLICY_SCHEMA._count_removed(array_agg(s.task_identifier), array_agg(s.partition_id))
    from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s where s.id = any(v_ids);
    select coalesce(array_agg(j.id), '{}'), array_agg(j.revision) into v_parked_ids, v_revisions
    from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s
    join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = s.parked_job_id
    where s.parked_job_id is not null and s.id = any(v_ids)
      and :DISPATCH_POLICY_SCHEMA._is_parked(
        s.id, s.parked_revision, j.run_at, j.revision, j.last_error, j.flags);
    if v_parked_ids <> '{}' then
      v_parked_ids := :DISPATCH_POLICY_SCHEMA._lock_in_revision(v_parked_ids, v_revisions);
      perform :GRAPHILE_WORKER_SCHEMA.permanently_fail_jobs(array[j.id], j.last_error)
      from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = any(v_parked_ids);
    end if;
    v_keys := array(
      select s.job_key from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s
      where s.id = any(v_ids) and s.job_key is not null);
    delete from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s where s.id = any(v_ids);
    get diagnostics changed = row_count;
    perform :DISPATCH_POLICY_SCHEMA._give_up_replaced(v_keys) where v_keys <> '{}';
    perform :DISPATCH_POLICY_SCHEMA._audit('remove', remove.policy, remove.partition, null, null,
      jsonb_build_object('ids', remove.ids, 'job_key', remove.job_key), remove.reason, remove.by, matched, changed);
  end if;
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.remove from public;
