-- Stops a partition until a time, say after a 429. Unlike a pause it always ends by itself; a later hold extends it.
-- `"for"` counts from now by the database's clock. When it ends one job goes first, and the others once one has succeeded: a server that still says 429 is asked once.
create or replace function :DISPATCH_POLICY_SCHEMA.hold(
  policy text, partition text, until timestamptz default null, reason text default null, by text default null,
  "for" interval default null
) returns table (matched int, changed int) language plpgsql
security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_until timestamptz := coalesce(hold.until, clock_timestamp() + hold."for");
begin
  if v_until is null or not isfinite(v_until) then
    raise exception 'dispatch_policy: hold: until is %, expected a time; to stop a partition for good, pause it',
      coalesce(v_until::text, 'null') using errcode = 'DPARG';
  end if;
  select s.matched, s.changed into matched, changed from :DISPATCH_POLICY_SCHEMA._stop_partition(
    hold.policy, hold.partition, null, v_until, hold.reason, hold.by) s;
  perform :DISPATCH_POLICY_SCHEMA._audit('hold', hold.policy, hold.partition, null, null,
    jsonb_build_object('until', v_until), hold.reason, hold.by, matched, changed);
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.hold from public;
