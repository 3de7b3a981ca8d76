-- Sets an operator's temporary limit for one scope key of a gate, or for all of them (`key` null). It is in force from the
-- commit of the caller's transaction, or from `from`, until `until` or clear_limit.
--
-- From its beginning it replaces what was set before for the same key, or for all of them, and whatever would begin before
-- its end. `matched` counts the limiters that have the key now. If it is 0, `stored` is true: the limit waits for the first job
-- with the key, or the key is misspelt.
--
-- It locks no limiter, because an open transaction would stop all who use it. The router wakes those who wait. Only another
-- change of the policy's limits waits for this one.
--
--   select * from dispatch_policy.set_limit('fetch_endpoint', 'account', '{"max": 0}', key => 'acct:1');
create or replace function :DISPATCH_POLICY_SCHEMA.set_limit(
  policy text, gate text, set jsonb, key text default null, "from" timestamptz default null,
  until timestamptz default null, reason text default null, by text default null
) returns table (matched int, changed int, stored boolean) language plpgsql
security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_policy :DISPATCH_POLICY_SCHEMA._private_policies := :DISPATCH_POLICY_SCHEMA._policy(set_limit.policy);
  v_now timestamptz;
begin
  perform :DISPATCH_POLICY_SCHEMA._check_limit(v_policy, set_limit.gate, coalesce(set_limit.set, 'null'));
  if coalesce(set_limit."from", '-infinity') >= coalesce(set_limit.until, 'infinity') then
    raise exception 'dispatch_policy: set_limit: from is %, expected a time before until, which is %. To begin now, leave from out',
      coalesce(set_limit."from"::text, 'null'), set_limit.until using errcode = 'DPARG';
  end if;
  perform :DISPATCH_POLICY_SCHEMA._lock_turn(v_policy.id, 'limits');
  v_now := clock_timestamp();
  perform :DISPATCH_POLICY_SCHEMA._check_until(
    'set_limit', set_limit.until, v_now, 'clear_limit ends what is in force');
  perform :DISPATCH_POLICY_SCHEMA._end_overrides(
    v_policy.id, set_limit.gate, set_limit.key, set_limit."from", set_limit.until, v_now);
  insert into :DISPATCH_POLICY_SCHEMA._private_overrides (
    policy_id, gate, scope_key, set, from_at, until_at, set_at, announce_at, set_by, reason)
  values (v_policy.id, set_limit.gate, set_limit.key, set_limit.set, coalesce(set_limit."from", '-infinity'),
    coalesce(set_limit.until, 'infinity'), v_now, coalesce(set_limit."from", '-infinity'), coalesce(set_limit.by, session_user), set_limit.reason);
  matched := (
    select count(*) from :DISPATCH_POLICY_SCHEMA._private_limiters l
    where l.policy_id = v_policy.id and l.gate = set_limit.gate and (set_limit.key is null or l.scope_key = set_limit.key));
  changed := matched;
  stored := matched = 0;
  perform :DISPATCH_POLICY_SCHEMA._notify(v_policy.name);
  perform :DISPATCH_POLICY_SCHEMA._audit('set_limit', set_limit.policy, null, set_limit.gate, set_limit.key,
    jsonb_build_object('set', set_limit.set, 'from', set_limit."from", 'until', set_limit.until), set_limit.reason,
    set_limit.by, matched, changed);
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.set_limit from public;
