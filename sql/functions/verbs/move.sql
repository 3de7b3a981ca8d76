-- Verbs: move jobs to another partition or policy.

-- Moves staged jobs of a partition to another partition, to another policy, or to both, say because a tenant has another
-- name or another region. They keep id, key, `run_at`, priority, attempts and cost, so they also keep their order. Jobs in
-- flight stay, and so do locked ones.
--
-- One call is one step of at most `count` jobs, those first that go first. Call it, each time in a transaction of its own,
-- until `changed` is 0. `matched` counts the jobs of this step. `dry_run` only counts, and counts all.
--
--   to_partition   null: the other policy works it out
--   to_policy      the jobs' tasks must be of it; null: the same policy
--   ids            only these, by staged id. Those of one `move` are the way back for it
--
-- It locks the partition that they leave, so no pass decides about a job by the limits of a partition that it has left.
-- The other partition is not locked: it gets an arrival, as from a producer. Within a policy they get it at once if its
-- limits are known. Limits that are worked out from their payloads would be those of the partition that they leave. If
-- nothing is known of the new partition, there is no other way: a process that has the policy works them out.
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
  v_from uuid[] := _lanes(move.policy, move.partition, true);
  v_state arrivals;   -- what the other partition gets with a job that brings no context of its own: an arrival without work
  v_keyless bigint[]; v_ids bigint[]; v_tasks text[];
begin
  if move.partition is null then
    raise exception 'dispatch_policy: move: partition is null, expected the key of a partition' using errcode = 'DPARG';
  end if;
  perform _check_count('move', move.count);
  if v_into.id = v_policy.id and coalesce(move.to_partition, move.partition) = move.partition then
    raise exception 'dispatch_policy: move: to_partition is %, to_policy is %, expected another partition or another policy',
      coalesce(quote_literal(move.to_partition), 'null'), coalesce(quote_literal(move.to_policy), 'null')
      using errcode = 'DPARG';
  end if;
  perform _check_key(move.to_partition);
  if move.dry_run then
    select count(*), 0, array_agg(distinct s.task_identifier) into matched, changed, v_tasks
    from _staged_in(move.policy, move.partition) s where move.ids is null or s.id = any(move.ids);
    -- so that nobody counts jobs that cannot move, and no step moves some of them
    if v_into.id <> v_policy.id then
      perform _refuse_tasks('move', v_into, v_tasks);
    end if;
    return next; return;
  end if;
  perform _check_isolation('move');
  -- A partition that no router knows yet has no row to lock. A router may make the row, and a pass may claim it, in a
  -- transaction that this session does not see. So it waits for the router's turn, and looks again. Nobody makes a partition
  -- outside that turn.
  perform from partitions q where q.id = any(v_from) order by q.id for no key update;
  if not found then
    perform _lock_turn(v_policy.id, 'route');
    v_from := _lanes(move.policy, move.partition, true);
    perform from partitions q where q.id = any(v_from) order by q.id for no key update;
  end if;
  v_keyless := array(   -- these first, as _keyless_jobs locks them
    select k.staged_id from keyless_jobs k join staged_jobs s on s.id = k.staged_id and s.partition_id is null
    where k.policy = move.policy and k.partition_key = move.partition and (move.ids is null or s.id = any(move.ids))
    order by k.staged_id limit move.count for update of k, s skip locked);
  v_ids := array(
    select s.id from staged_jobs s
    where s.partition_id = any(v_from) and s.due and (move.ids is null or s.id = any(move.ids))
    order by s.priority, s.run_at, s.id limit move.count for update skip locked);
  v_ids := v_ids || array(
    select s.id from staged_jobs s
    where s.partition_id = any(v_from) and not s.due and (move.ids is null or s.id = any(move.ids))
    order by coalesce(s.retry_at, s.run_at), s.id limit move.count - cardinality(v_ids) for update skip locked);
  v_ids := (v_ids || v_keyless)[1:move.count];   -- last those whose limits are still to be worked out
  matched := cardinality(v_ids);
  changed := matched;
  if v_into.id <> v_policy.id then   -- what is told of these jobs is read before what the other policy tells
    perform _consume_all_events(move.policy);
    if exists (select from events e where e.policy_id = v_policy.id and e.staged_id = any(v_ids)) then
      raise exception 'dispatch_policy: move: another session reads what happened to these jobs'
        using errcode = 'lock_not_available';
    end if;
  end if;
  if matched > 0 and v_into.id = v_policy.id then
    v_state := _state_of(v_policy, move.to_partition);
  end if;
  if v_state.key is not null then
    update keyless_jobs k set partition_key = move.to_partition where k.staged_id = any(v_ids);
    v_ids := array(select s.id from staged_jobs s where s.id = any(v_ids) and s.partition_id is not null);
    perform _move_to_partition(v_state, j.partition_id, array_agg(j.id))
    from staged_jobs j where j.id = any(v_ids) group by j.partition_id;
    perform _notify(v_policy.name);
  elsif matched > 0 then
    changed := _move_to_policy('move', v_into, move.to_partition, v_ids);
    perform _count_pending(v_policy.name, -changed);
  end if;
  perform _audit('move', move.policy, move.partition, null, null,
    jsonb_build_object('to_policy', v_into.name, 'to_partition', move.to_partition, 'ids', move.ids), move.reason, move.by,
    matched, changed);
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.move from public;

-- What a partition of this policy gets with a job that brings no context of its own: an arrival without work. All columns
-- are null if nothing is known of the partition, and the policy's numbers are no constants. Its row tells, or what has
-- arrived for it.
--
-- The danger: a partition that a pause has made has no limits, and a job would pass no gate. So limits are known only if a
-- job has brought them. A collector may delete the partition meanwhile, so the arrival brings its limits along. They count
-- only for a new partition: this version makes the arrival the oldest, as in _retry.
create or replace function _state_of(p_policy policies, p_key text) returns arrivals language plpgsql stable as $$
declare
  v_ids uuid[] := _lanes((p_policy).name, p_key, true);
  v_definition jsonb := (p_policy).definition;
  v_state arrivals;
begin
  if (v_definition ->> 'resolvesInSql')::boolean then
    v_state.version := (p_policy).generation;
    v_state.shard := v_definition ->> 'shard';
    v_state.weight := (v_definition ->> 'weight')::float8;
    v_state.limits := _constant_limits(v_definition);
  else
    select -2147483648, x.shard, x.context, x.weight, x.limits
    into v_state.version, v_state.shard, v_state.context, v_state.weight, v_state.limits
    from (
      (select 1 as place, q.shard, q.context, q.weight, q.limits from partitions q where q.id = any(v_ids) and q.arrival_id > 0
        order by q.version desc, q.arrival_id desc limit 1)
      union all (
        select 2, a.shard, a.context, a.weight, a.limits from arrivals a
        where a.policy = (p_policy).name and a.partition_id = any(v_ids) and a.limits is not null
        order by a.version desc, a.id desc limit 1)
    ) x order by x.place limit 1;
    if not found then
      return null;
    end if;
  end if;
  v_state.policy := (p_policy).name;
  v_state.partition_id := _partition_id((p_policy).name, p_key);   -- or a lane of it
  v_state.key := p_key;
  return v_state;
end
$$;
