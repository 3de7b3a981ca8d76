-- Stops a partition until a time, for example after a 429. Unlike a pause, a hold always ends by itself; a later hold
-- extends it. `"for"` counts from now, by the database's clock. At its end one job goes first, and the others follow once
-- one has succeeded. So a server that still answers 429 gets one request.
-- An end that has passed is refused.
create or replace function :DISPATCH_POLICY_SCHEMA.hold(
  policy text, partition text, until timestamptz default null, reason text default null, by text default null,
  "for" interval default null
) returns table (matched int, changed int, stored boolean) language plpgsql
security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_until timestamptz := coalesce(hold.until, v_now + hold."for");
begin
  if v_until is null or not isfinite(v_until) then
    raise exception 'dispatch_policy: hold: until is %, expected a time; to stop a partition for good, pause it',
      coalesce(v_until::text, 'null') using errcode = 'DPARG';
  end if;
  if hold."for" is distinct from '0' then   -- a length of 0 stops nothing, but the partition is probed
    perform :DISPATCH_POLICY_SCHEMA._check_until('hold', v_until, v_now, 'to end a hold, resume the partition');
  end if;
  select s.matched, s.changed, s.stored into matched, changed, stored from :DISPATCH_POLICY_SCHEMA._stop_partition(
    hold.policy, hold.partition, null, v_until, hold.reason, hold.by) s;
  perform :DISPATCH_POLICY_SCHEMA._audit('hold', hold.policy, hold.partition, null, null,
    jsonb_build_object('until', v_until), hold.reason, hold.by, matched, changed);
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.hold from public;
