-- Verbs: remove a policy.

-- Removes a policy that no worker has any more, with its limiters and partitions, and the limits and pauses that operators
-- set. One call is one bounded step: call it, each time in a transaction of its own, until `removed` is true.
--
-- Jobs that wait for it move to the policy `"into"`, which works out their partitions anew. They keep their ids. So a policy
-- is renamed: declare it under the new name first, then remove the old one into the new one. A name that nobody declared may
-- have waiting jobs too, if a process added them that still knows the policy.
--
-- It refuses while a worker pool lives, which would declare the policy again, while its jobs are in flight, which would not
-- count any more, without `"into"` while jobs wait, and a shared limit while policies use it. `matched` counts these, up to 10,000, `changed` those that moved.
-- `dry_run` only counts.
create or replace function :DISPATCH_POLICY_SCHEMA.remove_policy(
  policy text, "into" text default null, count int default 500, reason text default null, by text default null,
  dry_run boolean default false
) returns table (matched int, changed int, removed boolean) language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '900ms' as $$   -- as uninstall: it waits for passes
#variable_conflict use_column
declare
  v_into policies; v_in_flight int; v_users text;
begin
  perform _check_count('remove_policy', remove_policy.count);
  if remove_policy."into" = remove_policy.policy then
    raise exception 'dispatch_policy: remove_policy: into is %, expected another policy', quote_literal(remove_policy."into")
      using errcode = 'DPARG';
  elsif remove_policy."into" is not null then
    v_into := _policy(remove_policy."into");
  end if;
  perform _check_isolation('remove_policy');
  if not remove_policy.dry_run then   -- before its jobs are counted: a callback may be of this policy
    perform _consume_all_events(remove_policy.policy);
  end if;
  matched := (select count(*) from (select from _staged_of(remove_policy.policy) s limit 10000) s);
  if matched = 0 and not exists (select from arrivals a where a.policy = remove_policy.policy) then
    perform _policy(remove_policy.policy);
  end if;
  changed := 0; removed := false;
  if remove_policy.dry_run then
    return next; return;
  end if;
  perform _lock_turn(0, 'declare');   -- no process declares it meanwhile
  -- It is paused, so that nobody admits its jobs between the steps. A pass that has not committed may have admitted jobs
  -- that nobody sees yet, and the policy to which the others move would let as many go beside them. So this waits for the
  -- ahead bound, which each pass locks before it looks whether the policy is paused.
  perform from limiters l
  where l.id = (select p.ahead_limiter_id from policies p where p.name = remove_policy.policy) for update;
  update policies p
  set paused_until = 'infinity', paused_at = clock_timestamp(), paused_by = session_user, pause_reason = 'it is being removed'
  where p.name = remove_policy.policy and p.paused_until < 'infinity';
  if found then
    perform _leave_shared_lines(array(select p.id from policies p where p.name = remove_policy.policy));
  end if;
  v_in_flight := (
    select count(*) from in_flight_jobs f join policies p on p.id = f.policy_id where p.name = remove_policy.policy);
  perform _refuse_live_workers('remove_policy', remove_policy.policy);
  v_users := (
    select string_agg(quote_literal(u.name), ', ' order by u.name)
    from policies p join policies u on u.shared_ids @> array[p.id]
    where p.name = remove_policy.policy and (
      u.definition -> 'gates' @> jsonb_build_array(jsonb_build_object('name', p.name, 'shared', true))
      or exists (
        select from partitions q where q.policy_id = u.id and q.limiter_ids && array(
          select l.id from limiters l where l.policy_id = p.id))
      or exists (
        select from in_flight_jobs f where f.policy_id = u.id and f.limiter_ids && array(
          select l.id from limiters l where l.policy_id = p.id))));
  if v_in_flight > 0 then
    raise exception 'dispatch_policy: remove_policy: % jobs of policy % are in flight, expected none: call it again when they have ended',
      v_in_flight, quote_literal(remove_policy.policy) using errcode = 'DPUSE';
  elsif v_users is not null then
    raise exception 'dispatch_policy: remove_policy: % is a shared limit of %, expected none: declare them without it, or remove them first',
      quote_literal(remove_policy.policy), v_users using errcode = 'DPUSE';
  elsif matched > 0 and v_into.id is null then
    raise exception 'dispatch_policy: remove_policy: % jobs wait for policy %, expected none without "into". Name the policy that they move to. Or % first',
      matched, quote_literal(remove_policy.policy),
      case when exists (select from policies p where p.name = remove_policy.policy and p.enabled)
        then 'switch the policy off and call unstage' else 'call unstage' end using errcode = 'DPUSE';
  elsif matched > 0 then
    changed := _move_to_policy('remove_policy', v_into, null, _lock_staged(remove_policy.policy, remove_policy.count));
  else
    removed := _forget_policy(remove_policy.policy, 20 * remove_policy.count);
  end if;
  if changed > 0 or removed then
    perform _audit('remove_policy', remove_policy.policy, null, null, null,
      jsonb_build_object('into', remove_policy."into", 'removed', removed), remove_policy.reason, remove_policy.by,
      matched, changed);
  end if;
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.remove_policy from public;

-- Deletes all that is known of a policy, except for its rows in the audit. Partitions go a page at a time: false says that there
-- are more. A pass of somebody who still ticks it may be at work. So it locks what passes lock, in their order, and looks again.
-- If a job was staged or admitted meanwhile, it raises lock_not_available, and is tried again.
create or replace function _forget_policy(p_policy text, p_page int) returns boolean language plpgsql volatile as $$
declare
  v_id int := (select p.id from policies p where p.name = p_policy);
  v_partitions uuid[]; v_in_use boolean; v_table text;
begin
  perform from turns u where u.policy_id = v_id order by u.step, u.place for update;
  v_partitions := array(select q.id from partitions q where q.policy_id = v_id order by q.id limit p_page for update);
  if cardinality(v_partitions) < p_page then
    perform from policies p where p.id = v_id for update;
    perform from limiters l where l.policy_id = v_id order by l.id for update;
  end if;
  v_in_use := exists (select from _staged_of(p_policy)) or exists (select from in_flight_jobs f where f.policy_id = v_id)
    or exists (select from groups) and exists (   -- a group that another session has locked has to learn of them
      select from events e where e.policy_id = v_id and e.kind in ('left', 'ended', 'moved'));
  perform _drop_partitions(v_partitions);
  -- with what they add to the counts; a job that was committed since would go without its arrival
  delete from arrivals a where a.policy = p_policy and a.partition_id = any(v_partitions);
  if v_in_use or exists (select from _staged_of(p_policy)) then
    raise exception 'dispatch_policy: remove_policy: a job of policy % was added or admitted meanwhile',
      quote_literal(p_policy) using errcode = 'lock_not_available';
  end if;
  if cardinality(v_partitions) = p_page then
    return false;
  end if;
  perform _drop_limiters(array(select l.id from limiters l where l.policy_id = v_id));
  -- what features keep of it, by whatever table has its number; the others go in their own way
  for v_table in
    select c.relname from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'policy_id'
    where c.relkind = 'r' and c.relnamespace = (select p.relnamespace from pg_class p where p.oid = 'policies'::regclass)
      and c.relname <> all ('{partitions,limiters,in_flight_jobs,unique_keys,policy_tasks,definitions}') order by c.relname
  loop
    execute format('delete from %I x where x.policy_id = $1', v_table) using v_id;
  end loop;
  -- an application may have a key locked, for as long as it likes: a sweep deletes that one
  delete from unique_keys k
  where k.ctid = any(array(select x.ctid from unique_keys x where x.policy_id = v_id for update skip locked));
  -- a job that is committed from here on stays, under a name that nobody declared
  delete from arrivals a
  where a.policy = p_policy and not exists (select from staged_jobs s where s.partition_id = a.partition_id);
  delete from keyless_jobs k
  where k.policy = p_policy and not exists (select from staged_jobs s where s.id = k.staged_id);
  delete from pending x where x.policy = p_policy;
  delete from leases l where l.policy = p_policy;
  update policies p set shared_ids = array_remove(p.shared_ids, v_id) where p.shared_ids @> array[v_id];
  delete from policies p where p.id = v_id;   -- and its tasks
  return true;
end
$$;
