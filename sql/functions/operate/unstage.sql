-- Hands up to `count` waiting jobs of a policy back to Graphile Worker, past the policy. Failed ones keep the time of
-- their retry, and the others are as they were added. The policy must be switched off, because workers would stage the
-- jobs again. Call it until `changed` is 0. `refused` counts jobs that Graphile Worker refuses: they stay, quarantined with
-- the error. `expired` counts those that were dropped, because they had expired: they are among the `changed`. `dry_run` only
-- counts.
--
-- It also takes a name that nobody declared, while jobs wait for it. No worker stages those jobs again.
--
--   select * from dispatch_policy.switch_policy('fetch_endpoint', false);
--   select * from dispatch_policy.unstage('fetch_endpoint');
create or replace function :DISPATCH_POLICY_SCHEMA.unstage(
  policy text, count int default 500, reason text default null, by text default null, dry_run boolean default false
) returns table (matched int, changed int, refused int, expired int) language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_policy policies;
  v_ids bigint[];
  v_back record;
begin
  if unstage.count is null or unstage.count < 1 then
    raise exception 'dispatch_policy: unstage: count is %, expected 1 or more', coalesce(unstage.count::text, 'null')
      using errcode = 'DPARG';
  end if;
  select p.* into v_policy from policies p where p.name = unstage.policy;
  if v_policy.id is null and not exists (
      select from _staged_of(unstage.policy))
    and not exists (
      select from arrivals a where a.policy = unstage.policy) then
    perform _unknown_policy(unstage.policy);
  end if;
  if unstage.dry_run then
    select count(*), count(*) filter (where s.expires_at <= clock_timestamp()) into matched, expired
    from _staged_of(unstage.policy) s;
    changed := 0;
    refused := 0;
    return next;
    return;
  end if;
  if v_policy.enabled then
    raise exception 'dispatch_policy: unstage: policy % is on, expected it off, or workers stage its jobs again: call switch_policy(%, false) first',
      quote_literal(unstage.policy), quote_literal(unstage.policy) using errcode = 'DPARG';
  end if;
  perform _check_isolation('unstage');
  update policies p set unstaged_at = clock_timestamp() where p.id = v_policy.id;
  v_ids := _lock_staged(unstage.policy, unstage.count);
  v_back := _unstage_what_passes(v_ids);
  matched := cardinality(v_ids);
  changed := v_back.unstaged + v_back.replaced + v_back.expired;
  refused := v_back.refused;
  expired := v_back.expired;
  perform _audit('unstage', unstage.policy, null, null, null,
    jsonb_build_object('count', unstage.count), unstage.reason, unstage.by, matched, changed);
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.unstage from public;
