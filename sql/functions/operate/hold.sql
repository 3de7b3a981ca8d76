-- Stops a partition until a time, for example after a 429. With `gate` and `key` it stops all partitions with this key of a
-- gate, for example those of an account. Unlike a pause, a hold always ends by itself; a later hold
-- extends it. `"for"` counts from now, by the database's clock. At its end one job goes first, and the others follow once
-- one has succeeded. So a server that still answers 429 gets one request. Behind a hold of a key there is no such probe.
-- An end that has passed is refused. `dry_run` only counts, as that of pause; of a key as that of set_limit.
create or replace function :DISPATCH_POLICY_SCHEMA.hold(
  policy text, partition text default null, until timestamptz default null, reason text default null, by text default null,
  "for" interval default null, gate text default null, key text default null, dry_run boolean default false
) returns table (matched int, changed int, stored boolean, partitions int, staged int, in_flight int) language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_until timestamptz := coalesce(hold.until, v_now + hold."for");
  v_dry_run boolean := coalesce(hold.dry_run, false);
begin
  if (hold.gate is null) = (hold.partition is null) or (hold.key is not null and hold.gate is null) then
    raise exception 'dispatch_policy: hold: partition is %, gate is %, key is %, expected a partition, or a gate and its key',
      coalesce(quote_literal(hold.partition), 'null'), coalesce(quote_literal(hold.gate), 'null'),
      coalesce(quote_literal(hold.key), 'null') using errcode = 'DPARG';
  end if;
  if v_until is null or not isfinite(v_until) then
    raise exception 'dispatch_policy: hold: until is %, expected a time; to stop a partition for good, pause it; a key, set its limit to 0',
      coalesce(v_until::text, 'null') using errcode = 'DPARG';
  end if;
  if hold.gate is not null then
    perform _check_until('hold', v_until, v_now, 'to end the hold of a key, clear its limit');
    select s.* into matched, changed, stored, partitions, staged, in_flight from _hold_key(
      hold.policy, hold.gate, hold.key, v_until, hold.reason, hold.by, v_now, v_dry_run) s;
  else
    if hold."for" is distinct from '0' then   -- a length of 0 stops nothing, but the partition is probed
      perform _check_until('hold', v_until, v_now, 'to end a hold, resume the partition');
    end if;
    if v_dry_run then
      perform _check_key(hold.partition);
      select w.matched, 0, w.matched = 0, w.partitions, w.staged, w.in_flight
      into matched, changed, stored, partitions, staged, in_flight
      from _would_reach(hold.policy, hold.partition, false) w;
    else
      select s.matched, s.changed, s.stored into matched, changed, stored from _stop_partition(
        hold.policy, hold.partition, null, v_until, hold.reason, hold.by) s;
    end if;
  end if;
  if not v_dry_run then
    perform _audit('hold', hold.policy, hold.partition, hold.gate, hold.key,
      jsonb_build_object('until', v_until), hold.reason, hold.by, matched, changed);
  end if;
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.hold from public;
