-- Removes a policy that no worker has any more, with its limiters and partitions, and the limits and pauses that operators
-- set. One call is one bounded step: call it, each time in a transaction of its own, until `removed` is true.
--
-- Jobs that wait for it move to the policy `"into"`, which works out their partitions anew. They keep their ids. So a policy
-- is renamed: declare it under the new name first, then remove the old one into the new one. A name that nobody declared
-- may have waiting jobs too, if a process added them that still knows the policy.
--
-- The first step pauses the policy, so that nobody admits its jobs between the steps.
--
-- It refuses while a worker pool with the policy lives, while jobs of the policy are in flight, and, without `"into"`, while
-- jobs wait. `matched` counts the jobs that wait, up to 10,000, `changed` those that this step moved. `dry_run` only counts.
--
--   select * from dispatch_policy.remove_policy('fetch_endpoint', "into" => 'fetch');
create or replace function :DISPATCH_POLICY_SCHEMA.remove_policy(
  policy text, "into" text default null, count int default 500, reason text default null, by text default null,
  dry_run boolean default false
) returns table (matched int, changed int, removed boolean) language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '900ms' as $$   -- as _lock_out: it waits for passes
#variable_conflict use_column
declare
  v_into policies;
begin
  if remove_policy.count is null or remove_policy.count < 1 then
    raise exception 'dispatch_policy: remove_policy: count is %, expected 1 or more',
      coalesce(remove_policy.count::text, 'null') using errcode = 'DPARG';
  elsif remove_policy."into" = remove_policy.policy then
    raise exception 'dispatch_policy: remove_policy: into is %, expected another policy', quote_literal(remove_policy."into")
      using errcode = 'DPARG';
  end if;
  if remove_policy."into" is not null then
    v_into := _policy(remove_policy."into");
  end if;
  perform _check_isolation('remove_policy');
  matched := (
    select count(*) from (select from _staged_of(remove_policy.policy) s limit 10000) s);
  if matched = 0 and not exists (
    select from arrivals a where a.policy = remove_policy.policy) then
    perform _policy(remove_policy.policy);
  end if;
  changed := 0;
  removed := false;
  if not coalesce(remove_policy.dry_run, false) then
    perform _lock_turn(0, 'declare');   -- no process declares it meanwhile
    perform _stop_passes(remove_policy.policy);
    perform _refuse_removal(remove_policy.policy, case when v_into.id is null then matched else 0 end);
    if matched > 0 then
      changed := _move_to_policy(
        'remove_policy', v_into, null, _lock_staged(remove_policy.policy, remove_policy.count));
    else
      removed := _forget_policy(remove_policy.policy, 20 * remove_policy.count);
    end if;
    if changed > 0 or removed then
      perform _audit('remove_policy', remove_policy.policy, null, null, null,
        jsonb_build_object('into', remove_policy."into", 'removed', removed), remove_policy.reason, remove_policy.by,
        matched, changed);
    end if;
  end if;
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.remove_policy from public;
