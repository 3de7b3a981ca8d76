-- Cancels jobs: by their ids, staged or Graphile Worker's, or all of a policy or partition. Staged jobs are removed. Failed
-- ones that wait for their retry, and admitted ones that no worker has fetched, fail for good in Graphile Worker. Jobs that
-- run are told to end, in whichever process they run. They fail for good unless they succeed, and keep their slots until
-- then.
--
--   running   so many of them run, and have been told to end
--
-- Between two looks a pass may admit a job, or a release may stage it again. So it looks in both places until a second look
-- finds nothing. Jobs that were told by an earlier call match, and do not change.
--
-- In SQL, the slots of admitted jobs come back with the next sweep.
--
--   select * from dispatch_policy.cancel(policy => 'fetch_endpoint', partition => 'acme', reason => 'left us');
create or replace function :DISPATCH_POLICY_SCHEMA.cancel(
  ids bigint[] default null, policy text default null, partition text default null, reason text default null,
  by text default null, dry_run boolean default false
) returns table (matched int, changed int, running int) language plpgsql
security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_by text := coalesce(cancel.by, session_user);
  v_staged int;
  v_admitted record;
  v_marked record;
  v_removed int := 0;
  v_ended bigint[] := '{}';
  v_told bigint[] := '{}';
  v_known bigint[];
begin
  if cancel.ids is null and cancel.policy is null then
    raise exception 'dispatch_policy: cancel: expected ids or a policy, got neither' using errcode = 'DPARG';
  elsif cancel.partition is not null and cancel.policy is null then
    raise exception 'dispatch_policy: cancel: partition is %, expected a policy with it, got none',
      quote_literal(cancel.partition) using errcode = 'DPARG';
  elsif cancel.policy is not null then
    perform :DISPATCH_POLICY_SCHEMA._policy(cancel.policy);
  end if;
  if coalesce(cancel.dry_run, false) then
    select count(*), 0, count(*) filter (where c.runs) into matched, changed, running
    from :DISPATCH_POLICY_SCHEMA._cancellable(cancel.ids, cancel.policy, cancel.partition) c where not c.ended;
    matched := matched + (
      select count(*) from :DISPATCH_POLICY_SCHEMA._removable(cancel.ids, null, cancel.policy, cancel.partition) r);
    return next;
    return;
  end if;
  perform :DISPATCH_POLICY_SCHEMA._check_isolation('cancel');
  for v_look in 1 .. 5 loop
    v_staged := :DISPATCH_POLICY_SCHEMA._cancel_staged(
      cancel.ids, cancel.policy, cancel.partition, v_by, cancel.reason);
    select a.* into v_admitted from :DISPATCH_POLICY_SCHEMA._cancel_admitted(
      cancel.ids, cancel.policy, cancel.partition, v_by, cancel.reason) a;
    select m.* into v_marked from :DISPATCH_POLICY_SCHEMA._mark_cancelled(
      cancel.ids, cancel.policy, cancel.partition, v_by, cancel.reason) m;
    v_removed := v_removed + v_staged;
    v_ended := v_ended || v_admitted.ended;
    v_told := v_told || v_marked.told;
    v_known := coalesce(v_known, v_marked.known);
    exit when v_look > 1 and v_staged + cardinality(v_admitted.ended || v_marked.told) = 0
      and not (v_admitted.missed or v_marked.missed);
  end loop;
  -- one that was told to end, and failed before the next look, was ended then
  v_told := array(select unnest(v_told) except select unnest(v_ended));
  changed := v_removed + cardinality(v_ended || v_told);
  matched := changed + cardinality(v_known);
  running := cardinality(v_told);
  perform :DISPATCH_POLICY_SCHEMA._audit('cancel', cancel.policy, cancel.partition, null, null,
    jsonb_build_object('ids', cancel.ids, 'running', running), cancel.reason, cancel.by, matched, changed);
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.cancel from public;
