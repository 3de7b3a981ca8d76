-- Cancels jobs that have not started: by their ids, staged or Graphile Worker's, or all of a policy or partition. Staged
-- jobs are removed. Failed ones that wait for their retry, and admitted ones that no worker has fetched, fail for good in
-- Graphile Worker. Jobs that run go on.
--
-- Between two looks a pass may admit a job, or a release may stage it again. So it looks in both places until a second look
-- finds nothing.
--
-- In SQL, the slots of admitted jobs come back with the next sweep.
--
--   select * from dispatch_policy.cancel(policy => 'fetch_endpoint', partition => 'acme', reason => 'left us');
create or replace function :DISPATCH_POLICY_SCHEMA.cancel(
  ids bigint[] default null, policy text default null, partition text default null, reason text default null,
  by text default null, dry_run boolean default false
) returns table (matched int, changed int) language plpgsql
security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_by text := coalesce(cancel.by, session_user);
  v_staged int;
  v_admitted bigint[];
begin
  if cancel.ids is null and cancel.policy is null then
    raise exception 'dispatch_policy: cancel: expected ids or a policy, got neither' using errcode = 'DPARG';
  elsif cancel.partition is not null and cancel.policy is null then
    raise exception 'dispatch_policy: cancel: partition is %, expected a policy with it, got none',
      quote_literal(cancel.partition) using errcode = 'DPARG';
  elsif cancel.policy is not null then
    perform :DISPATCH_POLICY_SCHEMA._policy(cancel.policy);
  end if;
  changed := 0;
  if coalesce(cancel.dry_run, false) then
    matched := (select count(*) from :DISPATCH_POLICY_SCHEMA._removable(cancel.ids, null, cancel.policy, cancel.partition) r)
      + (select count(*) from :DISPATCH_POLICY_SCHEMA._cancellable(cancel.ids, cancel.policy, cancel.partition) c
        where not (c.runs or c.ended));
    return next;
    return;
  end if;
  perform :DISPATCH_POLICY_SCHEMA._check_isolation('cancel');
  for v_look in 1 .. 5 loop
    v_staged := :DISPATCH_POLICY_SCHEMA._cancel_staged(
      cancel.ids, cancel.policy, cancel.partition, v_by, cancel.reason);
    v_admitted := :DISPATCH_POLICY_SCHEMA._cancel_admitted(
      cancel.ids, cancel.policy, cancel.partition, v_by, cancel.reason);
    changed := changed + v_staged + cardinality(v_admitted);
    exit when v_look > 1 and v_staged + cardinality(v_admitted) = 0;
  end loop;
  matched := changed;
  perform :DISPATCH_POLICY_SCHEMA._audit('cancel', cancel.policy, cancel.partition, null, null,
    jsonb_build_object('ids', cancel.ids), cancel.reason, cancel.by, matched, changed);
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.cancel from public;
