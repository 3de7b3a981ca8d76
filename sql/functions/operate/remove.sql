-- Removes staged jobs: by id, by job key, or all of a policy or partition. Admitted jobs stay, and locked rows are skipped.
-- A parked job waits inside Graphile Worker, which keeps it as failed for good.
--
-- One call is one step: at most `count` jobs, those first that were staged first. Call it, each time in a transaction of its
-- own, until `more` is false. A long backlog would otherwise be one transaction, whose locks keep passes from these jobs.
--
--   more   there may be more than `count`
--
-- A dry run locks nothing. So it also counts jobs that somebody has locked.
--
--   select * from dispatch_policy.remove(policy => 'fetch_endpoint', partition => 'acme', reason => 'left us');
create or replace function :DISPATCH_POLICY_SCHEMA.remove(
  ids bigint[] default null, job_key text default null, policy text default null, partition text default null,
  reason text default null, by text default null, dry_run boolean default false, count int default 500
) returns table (matched int, changed int, more boolean) language plpgsql
security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan as $$   -- each of the ways to name jobs has a plan of its own
#variable_conflict use_column
declare
  v_ids bigint[];
begin
  if remove.ids is null and remove.job_key is null and remove.policy is null then
    raise exception 'dispatch_policy: remove: expected ids, a job_key or a policy, got none of them'
      using errcode = 'DPARG';
  elsif remove.count is null or remove.count < 1 then
    raise exception 'dispatch_policy: remove: count is %, expected 1 or more', coalesce(remove.count::text, 'null')
      using errcode = 'DPARG';
  elsif remove.policy is not null then
    perform :DISPATCH_POLICY_SCHEMA._policy(remove.policy);
  end if;
  changed := 0;
  more := false;
  if coalesce(remove.dry_run, false) then
    matched := (
      select count(*)
      from :DISPATCH_POLICY_SCHEMA._removable(remove.ids, remove.job_key, remove.policy, remove.partition) r);
    return next;
    return;
  end if;
  -- Rows are looked up one by one, until there are enough. A join looked all of them up in each step: 100,000 jobs took four
  -- times as long.
  v_ids := array(
    select s.id from (
      select r.id
      from :DISPATCH_POLICY_SCHEMA._removable(remove.ids, remove.job_key, remove.policy, remove.partition) r order by r.id) r
    cross join lateral (
      select x.id from :DISPATCH_POLICY_SCHEMA._private_staged_jobs x where x.id = r.id for update skip locked) s
    limit remove.count);
  more := cardinality(v_ids) = remove.count;
  -- one that somebody moved to another partition before it was locked stays
  v_ids := array(
    select r.id
    from :DISPATCH_POLICY_SCHEMA._removable(remove.ids, remove.job_key, remove.policy, remove.partition) r
    where r.id = any(v_ids));
  matched := cardinality(v_ids);
  changed := :DISPATCH_POLICY_SCHEMA._remove_staged(v_ids, null, null);
  perform :DISPATCH_POLICY_SCHEMA._audit('remove', remove.policy, remove.partition, null, null,
    jsonb_build_object('ids', remove.ids, 'job_key', remove.job_key), remove.reason, remove.by, matched, changed);
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.remove from public;
