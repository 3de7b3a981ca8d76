-- Removes staged jobs: by id, by job key, or all of a policy or partition. Admitted jobs stay, and locked rows are skipped.
-- A parked job waits inside Graphile Worker, which keeps it as failed for good.
--
-- One call is one step: at most `count` jobs after the id `after`, those first that were staged first. Call it after
-- `last_id`, each time in a transaction of its own, until `more` is false. A long backlog would otherwise be one transaction,
-- whose locks keep passes from these jobs. A step from the lowest id would read over all rows that were removed before.
--
--   more      there may be more than `count`
--   last_id   the last job that it looked at; null: there was none after `after`
--
-- A dry run locks nothing. So it also counts jobs that somebody has locked.
--
--   select * from dispatch_policy.remove(policy => 'fetch_endpoint', partition => 'acme', reason => 'left us');
create or replace function :DISPATCH_POLICY_SCHEMA.remove(
  ids bigint[] default null, job_key text default null, policy text default null, partition text default null,
  reason text default null, by text default null, dry_run boolean default false, count int default 500,
  after bigint default 0
) returns table (matched int, changed int, more boolean, last_id bigint) language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set plan_cache_mode = force_custom_plan as $$   -- each of the ways to name jobs has a plan of its own
#variable_conflict use_column
declare
  v_ids bigint[] := '{}';
  v_page bigint[];
  v_after bigint := coalesce(remove.after, 0);
begin
  if remove.ids is null and remove.job_key is null and remove.policy is null then
    raise exception 'dispatch_policy: remove: expected ids, a job_key or a policy, got none of them'
      using errcode = 'DPARG';
  elsif remove.count is null or remove.count < 1 then
    raise exception 'dispatch_policy: remove: count is %, expected 1 or more', coalesce(remove.count::text, 'null')
      using errcode = 'DPARG';
  elsif remove.policy is not null then
    perform _policy(remove.policy);
  end if;
  changed := 0;
  more := false;
  if coalesce(remove.dry_run, false) then
    matched := (
      select count(*)
      from _removable(remove.ids, remove.job_key, remove.policy, remove.partition) r);
    return next;
    return;
  end if;
  -- Another session may have a whole page locked: then the next one follows. Each page has its own limit, by which
  -- PostgreSQL reads no further in the order of the ids. Under one limit over all it sorted the whole backlog in each step.
  loop
    v_page := array(
      select r.id
      from _removable(remove.ids, remove.job_key, remove.policy, remove.partition) r
      where r.id > v_after order by r.id limit remove.count - cardinality(v_ids));
    exit when v_page = '{}';
    v_after := v_page[cardinality(v_page)];
    last_id := v_after;
    v_ids := v_ids || _lock_available_staged(v_page);
  end loop;
  more := cardinality(v_ids) = remove.count;
  -- one that somebody moved to another partition before it was locked stays
  v_ids := array(
    select r.id
    from _removable(remove.ids, remove.job_key, remove.policy, remove.partition) r
    where r.id = any(v_ids));
  matched := cardinality(v_ids);
  changed := _remove_staged(v_ids, null, null);
  perform _audit('remove', remove.policy, remove.partition, null, null,
    jsonb_build_object('ids', remove.ids, 'job_key', remove.job_key), remove.reason, remove.by, matched, changed);
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.remove from public;
