-- Hands up to `count` waiting jobs of a policy back to Graphile Worker, past the policy. Failed ones keep the time of
-- their retry, and the others are as they were added. The policy must be switched off, because workers would stage the
-- jobs again. Call it until `changed` is 0. `refused` counts jobs that Graphile Worker refuses: they stay, set aside with
-- the error. `expired` counts those that were dropped, because they had expired: they are among the `changed`. `dry_run` only
-- counts.
--
-- It also takes a name that nobody declared, while jobs wait for it. No worker stages those jobs again.
--
--   select * from dispatch_policy.switch_policy('fetch_endpoint', false);
--   select * from dispatch_policy.hand_back('fetch_endpoint');
create or replace function :DISPATCH_POLICY_SCHEMA.hand_back(
  policy text, count int default 500, reason text default null, by text default null, dry_run boolean default false
) returns table (matched int, changed int, refused int, expired int) language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_policy policies;
  v_ids bigint[];
  v_back record;
begin
  if hand_back.count is null or hand_back.count < 1 then
    raise exception 'dispatch_policy: hand_back: count is %, expected 1 or more', coalesce(hand_back.count::text, 'null')
      using errcode = 'DPARG';
  end if;
  select p.* into v_policy from policies p where p.name = hand_back.policy;
  if v_policy.id is null and not exists (
      select from _staged_of(hand_back.policy))
    and not exists (
      select from arrivals a where a.policy = hand_back.policy) then
    perform _unknown_policy(hand_back.policy);
  end if;
  if hand_back.dry_run then
    select count(*), count(*) filter (where s.expires_at <= clock_timestamp()) into matched, expired
    from _staged_of(hand_back.policy) s;
    changed := 0;
    refused := 0;
    return next;
    return;
  end if;
  if v_policy.enabled then
    raise exception 'dispatch_policy: hand_back: policy % is on, expected it off, or workers stage its jobs again: call switch_policy(%, false) first',
      quote_literal(hand_back.policy), quote_literal(hand_back.policy) using errcode = 'DPARG';
  end if;
  perform _check_isolation('hand_back');
  update policies p set handed_back_at = clock_timestamp() where p.id = v_policy.id;
  v_ids := _lock_staged(hand_back.policy, hand_back.count);
  v_back := _hand_back_what_passes(v_ids);
  matched := cardinality(v_ids);
  changed := v_back.handed_back + v_back.replaced + v_back.expired;
  refused := v_back.refused;
  expired := v_back.expired;
  perform _audit('hand_back', hand_back.policy, null, null, null,
    jsonb_build_object('count', hand_back.count), hand_back.reason, hand_back.by, matched, changed);
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.hand_back from public;
