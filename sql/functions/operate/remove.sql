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
    where s.id in (
      select r.id from :DISPATCH_POLICY_SCHEMA._removable(remove.ids, remove.job_key, remove.policy, remove.partition) r)
    order by s.id for update skip locked);
  matched := cardinality(v_ids);
  changed := 0;
  if not coalesce(remove.dry_run, false) then
    changed := :DISPATCH_POLICY_SCHEMA._remove_staged(v_ids, null, null);
    perform :DISPATCH_POLICY_SCHEMA._audit('remove', remove.policy, remove.partition, null, null,
      jsonb_build_object('ids', remove.ids, 'job_key', remove.job_key), remove.reason, remove.by, matched, changed);
  end if;
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.remove from public;
