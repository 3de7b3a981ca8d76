-- Turns, notifications, checks of a call, and the audit.

-- Waits for a turn (see turns), and keeps it until the transaction ends.
create or replace function _lock_turn(p_policy_id int, p_step text) returns void language plpgsql as $$
begin
  perform from turns u
  where u.policy_id = p_policy_id and u.step = p_step and u.place = 0 for update;
end
$$;

-- Locks a turn until the transaction ends, unless another session has it. Returns whether it did.
create or replace function _try_lock_turn(p_policy_id int, p_step text) returns boolean language plpgsql as $$
begin
  perform from turns u
  where u.policy_id = p_policy_id and u.step = p_step and u.place = 0 for update skip locked;
  return found;
end
$$;

-- Raises unless each statement of the transaction sees what others have committed by then.
create or replace function _check_isolation(p_step text) returns void language plpgsql stable as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'dispatch_policy: %: transaction_isolation is %, expected read committed. Call it in a transaction that was begun with "isolation level read committed"',
      p_step, current_setting('transaction_isolation')
      using errcode = 'invalid_transaction_state',
        hint = 'Under a fixed snapshot it would decide by counters that others have since changed.';
  end if;
end
$$;

-- Whether an error is the lock timeout of the function that asks: it began to wait at `p_asked` or later.
--
-- The danger: if a lock timeout fires while one wait ends and the next one begins, PostgreSQL reports a cancel. The cure: a
-- cancel counts as well, unless it comes before that timeout can fire. Then it is somebody else's.
create or replace function _is_lock_timeout(p_sqlstate text, p_asked timestamptz) returns boolean language sql volatile as $$
  select p_sqlstate <> '57014' or clock_timestamp() >= p_asked + current_setting('lock_timeout')::interval;
$$;

-- Whether a job of a key that was added replaced another one than the look before saw: one that was added in between. See
-- _job_of_key for what the look saw; null: it saw none.
create or replace function _is_raced(seen_id bigint, next_revision int, id bigint, revision int)
returns boolean language sql immutable as $$
  select revision > coalesce(next_revision, 0) or (revision > 0 and id <> seen_id);
$$;

-- Refuses a `now` unless the caller owns the schema, because a time ahead fills buckets. Functions that have the owner's
-- rights call it. There, current_user is the owner. The caller is the role that was set, or else the session's user.
create or replace function _check_now(p_verb text, p_now timestamptz) returns void language plpgsql stable as $$
begin
  if p_now is not null and not pg_has_role(
    coalesce(nullif(current_setting('role'), 'none')::name, session_user), current_user, 'usage')
  then
    raise exception 'dispatch_policy: %: now is %, expected null: only the owner of the schema may give another time than the database clock''s',
      p_verb, p_now using errcode = 'DPARG';
  end if;
end
$$;

-- What a verb concerns: known partitions of a policy, with the jobs that wait in staging and those in flight. Null: all of
-- them. It is for dry runs, so it locks nothing. Jobs that the router has not counted yet are counted here.
create or replace function _reach(
  p_policy text, p_partition_ids uuid[], out partitions int, out staged int, out in_flight int
) language plpgsql stable as $$
begin
  if p_partition_ids is null then
    select v.partitions, v.staged, v.in_flight into partitions, staged, in_flight
    from :DISPATCH_POLICY_SCHEMA.policies v where v.policy = p_policy;
    return;
  end if;
  with wanted as materialized (select distinct u.id from unnest(p_partition_ids) u (id)),
  found as materialized (
    select q.key, q.staged as jobs, q.arrival_id > 0 as is_known from partitions q
    where q.id in (select w.id from wanted w)
    union all
    select a.key, a.jobs, a.limits is not null from arrivals a
    where a.policy = p_policy and a.partition_id in (select w.id from wanted w)
  )
  select count(distinct f.key) filter (where f.is_known), coalesce(sum(f.jobs), 0), (
      select count(*) from in_flight_jobs i where i.partition_id in (select w.id from wanted w))
  into partitions, staged, in_flight from found f;
end
$$;

-- Notifies the tick loops that wait for work of this policy. Loops of other schemas ignore it.
create or replace function _notify(p_policy text) returns void language sql volatile as $$
  select pg_notify('dispatch_policy', json_build_object(
    'schema', :'DISPATCH_POLICY_SCHEMA', 'policy', p_policy)::text);
$$;

-- Notifies only the tick loops of these shards. If a shard has no leader, the worker pools that may lead it bid for it.
create or replace function _notify_shards(p_policy text, p_shards text[]) returns void language sql volatile as $$
  select pg_notify('dispatch_policy', json_strip_nulls(json_build_object(
    'schema', :'DISPATCH_POLICY_SCHEMA', 'policy', p_policy, 'shard', u.shard,
    'vacant', case when not exists (
      select from leases e
      where e.policy = p_policy and e.shard = u.shard and e.expires_at > clock_timestamp()) then true end))::text)
  from unnest(p_shards) u (shard);
$$;

-- Records who used an operator's verb, on what, why, and how much it changed. A form of the admin pages names itself in the
-- setting `dispatch_policy.form`: for one row, because no two may have the same name.
create or replace function _audit(
  p_verb text, p_policy text, p_partition text, p_gate text, p_scope_key text, p_detail jsonb, p_reason text, p_by text,
  p_matched int, p_changed int
) returns void language sql volatile as $$
  insert into audit (
    verb, policy, partition, gate, scope_key, detail, reason, by, matched, changed, form)
  values (p_verb, p_policy, p_partition, p_gate, p_scope_key, coalesce(p_detail, '{}'), p_reason,
    coalesce(p_by, session_user), p_matched, p_changed, nullif(current_setting('dispatch_policy.form', true), ''));
  select set_config('dispatch_policy.form', '', true) where current_setting('dispatch_policy.form', true) <> '';
$$;

-- The admission that this transaction makes: its time, in microseconds since 1970. Graphile Worker writes the same time
-- into the updated_at of the rows it adds. So a worker sees without a query that nothing has happened to a job since.
create or replace function _admission_now() returns bigint language sql stable as $$
  select (extract(epoch from now()) * 1000000)::bigint;
$$;

-- Counts why a pass admits what the small way left. Of an error that nobody expects it tells the policy's leaders, who say so.
create or replace function _left_to_pass(p_policy_id int, p_left_for text, p_message text, p_now timestamptz)
returns void language plpgsql as $$
begin
  insert into activity (policy_id, at, left_to_pass)
  select p.id, p_now, jsonb_build_object(p_left_for, 1) from policies p where p.id = p_policy_id;   -- it may be gone
  if p_left_for like 'failed: %' then
    perform pg_notify('dispatch_policy', json_build_object(
      'schema', :'DISPATCH_POLICY_SCHEMA', 'policy', p.name,
      'failed', left(substr(p_left_for, 9) || ': ' || p_message, 500))::text)
    from policies p where p.id = p_policy_id;
  end if;
end
$$;

-- Why the small way left a job to the next pass, after an error that it does not expect. Graphile Worker may refuse a job, and
-- the pass reports that. Any other error is a mistake here: `failed: `, with its SQLSTATE and place.
--
--   p_context   as PG_EXCEPTION_CONTEXT says where it was raised
create or replace function _left_for_error(p_sqlstate text, p_context text) returns text language sql stable as $$
  select case when p_context like '%.add_jobs(%.job_spec[]%' then 'refused'
    else 'failed: ' || p_sqlstate || ' in '
      || coalesce(array_to_string(regexp_match(p_context, '(\w+)\([^)]*\) (line \d+)'), ' '), '') end;
$$;
