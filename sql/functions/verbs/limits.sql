-- Verbs: an operator's limits.

-- Sets an operator's temporary limit: for one scope key of a gate (`key`), for the partitions of a context (`"where"`), or
-- for all. One of a context is also for partitions to come. It is in force from the commit of the caller's transaction, or
-- from `from`, until `until` or clear_limit. From its beginning it replaces what was set before for the same key, context,
-- or all, and whatever would begin before its end.
--
-- A limit of a key goes before one of a context, and that before one of all. Of two contexts that fit, the limit that was
-- set last counts. `matched` counts the limiters that have the key now, or the partitions that have such a context. For
-- these it reads all partitions of the policy. If it is 0, `stored` is true: the limit waits for the first job, or the key
-- is misspelt. `dry_run` only counts: also the partitions that go by the limit, and their jobs, which are null otherwise.
--
-- It locks no limiter, because an open transaction would stop all who use it. The router says that passes look at those who
-- wait. Only another change of the policy's limits waits for this one.
create or replace function :DISPATCH_POLICY_SCHEMA.set_limit(
  policy text, gate text, set jsonb, key text default null, "from" timestamptz default null,
  until timestamptz default null, reason text default null, by text default null,
  "where" jsonb default null, dry_run boolean default false
) returns table (matched int, changed int, stored boolean, partitions int, staged int, in_flight int) language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_policy policies := _policy_of_gate(set_limit.policy, set_limit.gate);
  v_now timestamptz;
  v_was jsonb;
begin
  perform _check_limit(
    v_policy, set_limit.gate, coalesce(set_limit.set, 'null'), 'set_limit', set_limit.key, set_limit."where");
  if coalesce(set_limit."from", '-infinity') >= coalesce(set_limit.until, 'infinity') then
    raise exception 'dispatch_policy: set_limit: from is %, expected a time before until, which is %. To begin now, leave from out',
      coalesce(set_limit."from"::text, 'null'), set_limit.until using errcode = 'DPARG';
  end if;
  if set_limit.dry_run is not true then
    perform _lock_turn(v_policy.id, 'limits');
  end if;
  v_now := clock_timestamp();
  perform _check_until('set_limit', set_limit.until, v_now, 'clear_limit ends what is in force');
  if set_limit.dry_run then
    return query select * from _limit_reach(v_policy, set_limit.gate, set_limit.key, set_limit."where"); return;
  end if;
  matched := _limit_matches(v_policy.id, set_limit.gate, set_limit.key, set_limit."where");
  changed := matched; stored := matched = 0;
  v_was := (
    select e.was from _end_overrides(
      v_policy.id, set_limit.gate, set_limit.key, set_limit."where", set_limit."from", set_limit.until, v_now) e);
  insert into overrides (
    policy_id, gate, scope_key, context, context_pair, set, from_at, until_at, set_at, announce_at, set_by, reason)
  values (v_policy.id, set_limit.gate, set_limit.key, set_limit."where", (_pairs_of(set_limit."where"))[1], set_limit.set,
    coalesce(set_limit."from", '-infinity'), coalesce(set_limit.until, 'infinity'), v_now,
    coalesce(set_limit."from", '-infinity'), coalesce(set_limit.by, session_user), set_limit.reason);
  perform _notify(v_policy.name);
  perform _audit('set_limit', v_policy.name, null, set_limit.gate, set_limit.key,
    jsonb_build_object('set', set_limit.set, 'from', set_limit."from", 'until', set_limit.until)
      || jsonb_strip_nulls(jsonb_build_object('where', set_limit."where", 'was', v_was)),
    set_limit.reason, set_limit.by, matched, changed);
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.set_limit from public;

-- The dry run of a limit of a key, of a context, or of all keys: whom it concerns (_limit_matches), the partitions that go
-- by it, and their jobs. It reads all partitions of the policy.
create or replace function _limit_reach(
  p_policy policies, p_gate text, p_key text, p_where jsonb,
  out matched int, out changed int, out stored boolean, out partitions int, out staged int, out in_flight int
) language plpgsql stable as $$
declare
  v_limiter_id bigint := (
    select l.id from limiters l where l.policy_id = (p_policy).id and l.gate = p_gate and l.scope_key = p_key);
begin
  matched := _limit_matches((p_policy).id, p_gate, p_key, p_where);
  changed := 0; stored := matched = 0;
  select r.* into partitions, staged, in_flight
  from _reach((p_policy).name, case when p_key is not null or p_where is not null then array(
    select q.id from partitions q
    where (q.policy_id = (p_policy).id or (p_policy).shared) and (
      v_limiter_id = any(q.limiter_ids) or (q.arrival_id > 0 and q.context @> p_where))) end) r;
end
$$;

-- Takes back the overrides of a key, of a context (`"where"`), or of all keys: the one in force, and those to come.
-- `dry_run` only counts.
create or replace function :DISPATCH_POLICY_SCHEMA.clear_limit(
  policy text, gate text, key text default null, reason text default null, by text default null,
  "where" jsonb default null, dry_run boolean default false
) returns table (matched int, changed int, partitions int, staged int, in_flight int) language sql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  select * from _clear_limit(clear_limit.policy, clear_limit.gate, clear_limit.key, clear_limit.reason, clear_limit.by, null,
    clear_limit."where", clear_limit.dry_run);
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.clear_limit from public;

-- clear_limit, with the time as an argument. An override that has begun ends now, and one that has not is removed.
create or replace function _clear_limit(
  p_policy text, p_gate text, p_key text, p_reason text, p_by text, p_now timestamptz default null,
  p_where jsonb default null, p_dry_run boolean default false
) returns table (matched int, changed int, partitions int, staged int, in_flight int) language plpgsql as $$
declare
  v_policy policies := _policy_of_gate(p_policy, p_gate);
  v_was jsonb;
begin
  perform _check_limit(v_policy, p_gate, null, 'clear_limit', p_key, p_where);
  if p_dry_run then
    return query
    select (
        select count(*)::int from overrides o
        where o.policy_id = v_policy.id and o.gate = p_gate and o.scope_key is not distinct from p_key
          and o.context is not distinct from p_where and not o.taken_back
          and o.until_at > coalesce(p_now, clock_timestamp())), 0, r.partitions, r.staged, r.in_flight
    from _limit_reach(v_policy, p_gate, p_key, p_where) r;
    return;
  end if;
  perform _lock_turn(v_policy.id, 'limits');
  select e.ended, e.was into changed, v_was
  from _end_overrides(v_policy.id, p_gate, p_key, p_where, null, null, coalesce(p_now, clock_timestamp())) e;
  matched := changed;
  perform _notify(v_policy.name);
  perform _audit('clear_limit', v_policy.name, null, p_gate, p_key,
    jsonb_strip_nulls(jsonb_build_object('where', p_where, 'was', v_was)), p_reason, p_by, matched, changed);
  return next;
end
$$;

-- One limiter as the view shows it, that of a shadow gate with what it really has. A view's functions run with the reader's
-- rights and search_path. This one does not, so that a reader needs no right on a table. It finds its row by index: as part of
-- the view's own plan, 2,000 limiters took 7 s, not 0.5.
create or replace function :DISPATCH_POLICY_SCHEMA.limiter_shown(p_policy_id int, p_limiter_id bigint)
returns table (rate float8, per float8, capacity float8, tokens float8, slots int, cap int, share int, pools int)
language plpgsql stable
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
begin
  return query
  select n.rate, n.per, n.capacity, coalesce(n.tokens, n.shadow_tokens),
    coalesce(n.shadow_slots, case when n.shadow_tokens is null then n.slots end), n.cap, n.share,
    greatest(n.pools, case when n.share is not null then 1 end)
  from unnest(_limiters_of_pass(p_policy_id, array(
    select l from limiters l where l.id = p_limiter_id), clock_timestamp(), true)) n;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.limiter_shown from public;
