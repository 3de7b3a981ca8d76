-- Cancels jobs: by their ids, staged or Graphile Worker's, or all of a policy or partition. Staged jobs are removed. Failed
-- ones that wait for their retry, and admitted ones that no worker has fetched, fail for good in Graphile Worker. Jobs that
-- run are told to end, in whichever process they run. They fail for good unless they succeed, and keep their slots until
-- then.
--
--   running   so many of them run, and have been told to end
--
-- One call is one step: at most `count` jobs that are staged, as many that were admitted, and as many that run. Call it,
-- each time in a transaction of its own, until `more` is false.
--
--   more      there may be more than `count`, or a job was on its way between staging and Graphile Worker
--   last_id   there may be more staged jobs after this id; null: there are none
--
-- A step from the lowest id reads over all rows that were removed before. So give `last_id` as `after` while it is not null.
-- Jobs may have come back to staging before it. So the last call, which says that there are no more, is one without `after`.
--
-- Between two looks a pass may admit a job, or a release may stage it again. So it looks in both places until a second look
-- finds nothing. Jobs that were told by an earlier call match, and do not change.
--
-- In SQL, the slots of admitted jobs come back with the next sweep.
--
--   select * from dispatch_policy.cancel(policy => 'fetch_endpoint', partition => 'acme', reason => 'left us');
create or replace function :DISPATCH_POLICY_SCHEMA.cancel(
  ids bigint[] default null, policy text default null, partition text default null, reason text default null,
  by text default null, dry_run boolean default false, count int default 500, after bigint default 0
) returns table (matched int, changed int, running int, more boolean, last_id bigint) language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_by text := coalesce(cancel.by, session_user);
  v_look record;
  v_removed int := 0;
  v_ended bigint[] := '{}';
  v_told bigint[] := '{}';
  v_known bigint[];
  v_changed int;
begin
  if cancel.ids is null and cancel.policy is null then
    raise exception 'dispatch_policy: cancel: expected ids or a policy, got neither' using errcode = 'DPARG';
  elsif cancel.partition is not null and cancel.policy is null then
    raise exception 'dispatch_policy: cancel: partition is %, expected a policy with it, got none',
      quote_literal(cancel.partition) using errcode = 'DPARG';
  elsif cancel.count is null or cancel.count < 1 then
    raise exception 'dispatch_policy: cancel: count is %, expected 1 or more', coalesce(cancel.count::text, 'null')
      using errcode = 'DPARG';
  elsif cancel.policy is not null then
    perform _policy(cancel.policy);
  end if;
  more := false;
  if coalesce(cancel.dry_run, false) then
    select count(*), 0, count(*) filter (where c.runs) into matched, changed, running
    from _cancellable(cancel.ids, cancel.policy, cancel.partition) c where not c.ended;
    matched := matched + (
      select count(*) from _removable(cancel.ids, null, cancel.policy, cancel.partition) r);
    return next;
    return;
  end if;
  perform _check_isolation('cancel');
  for v_nth in 1 .. 5 loop
    if v_nth = 1 then
      v_look := _cancel_look(
        cancel.ids, cancel.policy, cancel.partition, v_by, cancel.reason, cancel.count, coalesce(cancel.after, 0));
    else
      v_look := _cancel_second_look(
        cancel.ids, cancel.policy, cancel.partition, v_by, cancel.reason, cancel.count, coalesce(cancel.after, 0));
    end if;
    v_removed := v_removed + v_look.removed;
    v_ended := v_ended || v_look.ended;
    v_told := v_told || v_look.told;
    v_known := coalesce(v_known, v_look.known);
    v_changed := v_look.removed + cardinality(v_look.ended || v_look.told);
    last_id := v_look.last_id;
    more := v_look.is_full or v_look.missed or v_changed > 0;
    exit when v_look.is_full or (v_nth > 1 and v_changed = 0);
  end loop;
  -- one that was told to end, and failed before the next look, was ended then
  v_told := array(select unnest(v_told) except select unnest(v_ended));
  changed := v_removed + cardinality(v_ended || v_told);
  matched := changed + cardinality(v_known);
  running := cardinality(v_told);
  perform _audit('cancel', cancel.policy, cancel.partition, null, null,
    jsonb_build_object('ids', cancel.ids, 'running', running), cancel.reason, cancel.by, matched, changed);
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.cancel from public;
