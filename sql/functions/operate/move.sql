-- Moves staged jobs of a partition to another partition, to another policy, or to both, say because a tenant has another
-- name or another region. They keep id, key, `run_at`, priority, attempts and cost, so they also keep their order. Jobs in
-- flight stay, and so do locked ones.
--
-- One call is one step of at most `count` jobs, those first that go first. Call it, each time in a transaction of its own,
-- until `changed` is 0. `matched` counts the jobs of this step. `dry_run` only counts, and counts all.
--
--   to_partition   The key of the partition. Null: the other policy works it out.
--   to_policy      The policy. Their tasks must be of it. Null: the same.
--   ids            Only these, by staged id. Null: all. Those of one `move` are the way back for it.
--
-- It locks the partition that they leave, as a pass does. So no pass decides about a job by the limits of a partition that
-- it has left. The other partition is not locked: it gets an arrival, as from a producer.
--
--   select * from dispatch_policy.move('fetch_endpoint', 'acme', to_partition => 'acme-eu');
create or replace function :DISPATCH_POLICY_SCHEMA.move(
  policy text, partition text, to_partition text default null, to_policy text default null, ids bigint[] default null,
  count int default 500, reason text default null, by text default null, dry_run boolean default false
) returns table (matched int, changed int) language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '900ms' as $$   -- as remove_policy: less than PostgreSQL takes to look for a deadlock
#variable_conflict use_column
declare
  v_policy policies := _policy(move.policy);
  v_into policies := _policy(coalesce(move.to_policy, move.policy));
  v_ids bigint[];
  v_tasks text[];
begin
  if move.partition is null then
    raise exception 'dispatch_policy: move: partition is null, expected the key of a partition' using errcode = 'DPARG';
  elsif move.count is null or move.count < 1 then
    raise exception 'dispatch_policy: move: count is %, expected 1 or more', coalesce(move.count::text, 'null')
      using errcode = 'DPARG';
  elsif v_into.id = v_policy.id and coalesce(move.to_partition, move.partition) = move.partition then
    raise exception 'dispatch_policy: move: to_partition is %, to_policy is %, expected another partition or another policy',
      coalesce(quote_literal(move.to_partition), 'null'), coalesce(quote_literal(move.to_policy), 'null') using errcode = 'DPARG';
  end if;
  perform _check_key(move.to_partition);
  changed := 0;
  if coalesce(move.dry_run, false) then
    select count(*), array_agg(distinct s.task_identifier) into matched, v_tasks
    from _staged_in(move.policy, move.partition) s
    where move.ids is null or s.id = any(move.ids);
    -- so that nobody counts jobs that cannot move, and no step moves some of them
    perform _refuse_tasks('move', v_into, v_tasks) where v_into.id <> v_policy.id;
    return next;
    return;
  end if;
  perform _check_isolation('move');
  perform _lock_partition(v_policy.id, move.policy, move.partition);
  v_ids := _lock_staged_in(move.policy, move.partition, move.ids, move.count);
  matched := cardinality(v_ids);
  if matched > 0 then
    changed := _move(v_policy, v_into, move.to_partition, v_ids);
  end if;
  perform _audit('move', move.policy, move.partition, null, null,
    jsonb_build_object('to_policy', v_into.name, 'to_partition', move.to_partition, 'ids', move.ids), move.reason, move.by,
    matched, changed);
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.move from public;
