-- Stops a policy, one of its partitions, or all policies, until resume or `until`. Jobs in flight go on. A partition that
-- does not exist yet is paused when its first job comes. An end that has passed is refused.
--
--   select * from dispatch_policy.pause('fetch_endpoint', partition => 'ep1', until => now() + interval '1 hour');
create or replace function :DISPATCH_POLICY_SCHEMA.pause(
  policy text default null, partition text default null, until timestamptz default null, reason text default null,
  by text default null, "all" boolean default false
) returns table (matched int, changed int) language plpgsql
security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_until timestamptz := coalesce(pause.until, 'infinity');
begin
  perform :DISPATCH_POLICY_SCHEMA._check_until('pause', v_until, clock_timestamp(), 'to end a pause, call resume');
  if pause.partition is not null then
    select s.matched, s.changed into matched, changed from :DISPATCH_POLICY_SCHEMA._stop_partition(
      pause.policy, pause.partition, v_until, null, pause.reason, pause.by) s;
  else
    with target as (select t.id, t.paused_until from :DISPATCH_POLICY_SCHEMA._targets(pause.policy, pause."all") t),
    paused as (
      update :DISPATCH_POLICY_SCHEMA._private_policies p set
        paused_until = v_until, paused_by = coalesce(pause.by, session_user), pause_reason = pause.reason
      from target t where p.id = t.id returning t.paused_until is distinct from v_until as changed
    )
    select count(*), count(*) filter (where p.changed) into matched, changed from paused p;
  end if;
  perform :DISPATCH_POLICY_SCHEMA._audit('pause', pause.policy, pause.partition, null, null,
    jsonb_build_object('until', v_until), pause.reason, pause.by, matched, changed);
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.pause from public;
