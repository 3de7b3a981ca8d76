-- Stops a policy, one of its partitions, or all policies, until resume or `until`. Jobs in flight go on. A partition that
-- does not exist yet is paused when its first job comes. A pause of all also stops policies that are declared later. An end
-- that has passed is refused.
--
-- `dry_run` only counts: also the partitions, staged jobs and jobs in flight that it concerns, which are null otherwise.
--
--   select * from dispatch_policy.pause('fetch_endpoint', partition => 'ep1', until => now() + interval '1 hour');
create or replace function :DISPATCH_POLICY_SCHEMA.pause(
  policy text default null, partition text default null, until timestamptz default null, reason text default null,
  by text default null, "all" boolean default false, dry_run boolean default false
) returns table (matched int, changed int, stored boolean, partitions int, staged int, in_flight int) language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_until timestamptz := coalesce(pause.until, 'infinity');
begin
  perform _check_until('pause', v_until, clock_timestamp(), 'to end a pause, call resume');
  if pause.dry_run then
    perform _check_key(pause.partition);
    select w.matched, 0, w.matched = 0, w.partitions, w.staged, w.in_flight
    into matched, changed, stored, partitions, staged, in_flight
    from _would_reach(pause.policy, pause.partition, pause."all") w;
    return next;
    return;
  end if;
  if pause.partition is not null then
    select s.matched, s.changed, s.stored into matched, changed, stored from _stop_partition(
      pause.policy, pause.partition, v_until, null, pause.reason, pause.by) s;
  else
    if pause."all" then   -- who declares a policy meanwhile has the same turn, and sees this pause, or is seen here
      perform _lock_all_policies('pause');
      insert into pause_of_all as a (until_at, set_by, reason)
      values (v_until, coalesce(pause.by, session_user), pause.reason)
      on conflict (one) do update set
        until_at = excluded.until_at, set_at = excluded.set_at, set_by = excluded.set_by, reason = excluded.reason;
    end if;
    with target as (select t.id, t.paused_until from _targets(pause.policy, pause."all") t),
    paused as (
      update policies p set
        paused_until = v_until, paused_by = coalesce(pause.by, session_user), pause_reason = pause.reason,
        paused_with_all = coalesce(pause."all", false)
      from target t where p.id = t.id returning t.paused_until is distinct from v_until as changed
    )
    select count(*), count(*) filter (where p.changed), count(*) = 0 into matched, changed, stored from paused p;
    perform _record_stop(t.id, null, 'paused', v_until, clock_timestamp())
    from _targets(pause.policy, pause."all") t;
  end if;
  perform _audit('pause', pause.policy, pause.partition, null, null,
    jsonb_build_object('until', v_until), pause.reason, pause.by, matched, changed);
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.pause from public;
