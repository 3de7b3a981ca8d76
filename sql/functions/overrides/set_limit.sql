-- Sets an operator's temporary limit: for one scope key of a gate (`key`), for the partitions of a context (`"where"`), or for
-- all. One of a context is also for partitions to come. It is in force from the commit of the caller's transaction, or from
-- `from`, until `until` or clear_limit.
--
-- A limit of a key goes before one of a context, and that before one of all. Of two contexts that fit, the limit that was
-- set last counts.
--
-- From its beginning it replaces what was set before for the same key, context, or all, and whatever would begin before its
-- end. `matched` counts the limiters that have the key now, or the partitions that have such a context. For these it
-- reads all partitions of the policy. If it is 0, `stored` is true: the limit waits for the first job, or the key is misspelt.
--
-- `dry_run` only counts: also the partitions that go by the limit, and their staged jobs and jobs in flight, which are null
-- otherwise.
--
-- It locks no limiter, because an open transaction would stop all who use it. The router says that passes look at those who wait. Only another
-- change of the policy's limits waits for this one.
--
--   select * from dispatch_policy.set_limit('fetch_endpoint', 'account', '{"max": 0}', key => 'acct:1');
--   select * from dispatch_policy.set_limit('fetch_endpoint', 'throttle', '{"rate": 5}', "where" => '{"plan": "free"}');
create or replace function :DISPATCH_POLICY_SCHEMA.set_limit(
  policy text, gate text, set jsonb, key text default null, "from" timestamptz default null,
  until timestamptz default null, reason text default null, by text default null,
  "where" jsonb default null, dry_run boolean default false
) returns table (matched int, changed int, stored boolean, partitions int, staged int, in_flight int) language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_policy policies := _policy(set_limit.policy);
  v_now timestamptz;
begin
  perform _check_limit(v_policy, set_limit.gate, coalesce(set_limit.set, 'null'));
  perform _check_where('set_limit', v_policy, set_limit.gate, set_limit.key, set_limit."where");
  if coalesce(set_limit."from", '-infinity') >= coalesce(set_limit.until, 'infinity') then
    raise exception 'dispatch_policy: set_limit: from is %, expected a time before until, which is %. To begin now, leave from out',
      coalesce(set_limit."from"::text, 'null'), set_limit.until using errcode = 'DPARG';
  end if;
  if not coalesce(set_limit.dry_run, false) then
    perform _lock_turn(v_policy.id, 'limits');
  end if;
  v_now := clock_timestamp();
  perform _check_until(
    'set_limit', set_limit.until, v_now, 'clear_limit ends what is in force');
  matched := _limit_matches(v_policy.id, set_limit.gate, set_limit.key, set_limit."where");
  stored := matched = 0;
  if set_limit.dry_run then
    changed := 0;
    select r.partitions, r.staged, r.in_flight into partitions, staged, in_flight
    from _limit_reach(v_policy, set_limit.gate, set_limit.key, set_limit."where") r;
    return next;
    return;
  end if;
  perform _end_overrides(
    v_policy.id, set_limit.gate, set_limit.key, set_limit."where", set_limit."from", set_limit.until, v_now);
  insert into overrides (
    policy_id, gate, scope_key, context, context_pair, set, from_at, until_at, set_at, announce_at, set_by, reason)
  values (v_policy.id, set_limit.gate, set_limit.key, set_limit."where",
    (_pairs_of(set_limit."where"))[1], set_limit.set, coalesce(set_limit."from", '-infinity'),
    coalesce(set_limit.until, 'infinity'), v_now, coalesce(set_limit."from", '-infinity'),
    coalesce(set_limit.by, session_user), set_limit.reason);
  changed := matched;
  perform _notify(v_policy.name);
  perform _audit('set_limit', set_limit.policy, null, set_limit.gate, set_limit.key,
    jsonb_build_object('set', set_limit.set, 'from', set_limit."from", 'until', set_limit.until)
      || case when set_limit."where" is null then '{}' else jsonb_build_object('where', set_limit."where") end, set_limit.reason,
    set_limit.by, matched, changed);
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.set_limit from public;
