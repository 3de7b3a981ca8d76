-- Worker pools, and the definitions that they have.

-- A pool's heartbeat and its leases in one statement, with one row at least.
--
--   p_server   the one for which it has said what it runs, see _say_runs. Null: the pool is new, and runs nothing
--   server     that of now. If it is another one, the pool says what it runs
--   busy       a sweep has something to do: jobs are staged or in flight, activity waits to be folded, or a pool is silent or
--     has ended lately
create or replace function _beat(
  p_pool_id text, p_slots int, p_tasks text[], p_host text, p_pid int, p_stale_after interval,
  p_policies text[], p_shards text[], p_ttl interval, p_bid boolean, p_clock_behind interval default '0',
  p_server text default null
) returns table (
  policy text, shard text, leads boolean, expires_in_ms float8, next_in_ms float8, waiting boolean, busy boolean, server text
) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
#variable_conflict use_column
declare
  v_server text := _server_now();
begin
  if split_part(v_server, ':', 1) <> '' and split_part(v_server, ':', 1) = split_part(p_server, ':', 1)
    and split_part(v_server, ':', 2)::bigint < split_part(p_server, ':', 2)::bigint then
    raise exception 'dispatch_policy: this server is on timeline %, expected % or later, which another one had before: this is an old primary. Point the connection to the new one',
      split_part(v_server, ':', 2), split_part(p_server, ':', 2) using errcode = 'DPOLD';
  end if;
  if not _meet_server() then
    perform _postpone_unlocked();
  end if;
  perform _worker_alive(
    p_pool_id, p_slots, p_tasks, p_host, p_pid, p_stale_after, p_clock_behind, coalesce(p_server, v_server));
  return query
  select l.*, exists (select from in_flight_jobs) or exists (select from staged_jobs) or exists (select from activity)
    or exists (select from workers w where w.stale_at < clock_timestamp() and (w.ended or w.buried_at is null)), v_server
  from (select) o left join _lease(p_pool_id, p_policies, p_shards, p_ttl, p_bid) l on true;
end
$$;

-- Records a worker pool's heartbeat: for the time `p_stale_after` it is alive, and its slots count for the ahead bound. If it
-- has more slots than before, the bound rises, and the tick loops are notified.
--
-- A heartbeat that comes later than half of that time restarts `unbroken_since`: the database may have been away, and then other
-- pools were silent as well.
create or replace function _worker_alive(
  p_pool_id text, p_slots int, p_tasks text[], p_host text, p_pid int, p_stale_after interval, p_clock_behind interval,
  p_server text default null
) returns void language sql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  select _notify(p.name) from policies p
  where p_slots > 0 and not exists (
      select from workers w
      where w.pool_id = p_pool_id and w.stale_at > clock_timestamp() and w.slots >= p_slots and w.tasks @> p_tasks)
    and p.id = any(array(select t.policy_id from policy_tasks t where t.task_identifier = any(p_tasks)));
  insert into workers as w (pool_id, slots, tasks, host, pid, stale_after, stale_at, clock_behind, server)
  values (p_pool_id, p_slots, p_tasks, p_host, p_pid, p_stale_after, clock_timestamp() + p_stale_after, p_clock_behind,
    p_server)
  on conflict (pool_id) do update set
    slots = excluded.slots, tasks = excluded.tasks, heartbeat_at = clock_timestamp(),
    stale_after = excluded.stale_after, stale_at = excluded.stale_at, buried_at = null, ended = false,
    clock_behind = excluded.clock_behind, server = excluded.server,
    unbroken_since = case when w.heartbeat_at + w.stale_after / 2 < clock_timestamp() then clock_timestamp()
      else w.unbroken_since end;
$$;

-- Records which policies a worker pool's process has, so that two definitions of one version show, and nobody removes one; or
-- that it is connected through a pooler in transaction mode. Null: as before.
--
--   p_definitions   { name: { "version", "hash" } }
create or replace function _worker_has(p_pool_id text, p_definitions jsonb, p_pooled boolean)
returns void language sql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  update workers w set definitions = coalesce(p_definitions, w.definitions), pooled = coalesce(p_pooled, w.pooled)
  where w.pool_id = p_pool_id;
$$;

-- Records that a pool has ended. Its row stays for a while: a fetch that was under way may commit only now, and lock a job that
-- nobody runs. A pool that leaves a job locked counts as dead once it is silent.
create or replace function _worker_ended(p_pool_id text) returns void language sql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  update workers w set slots = 0, stale_at = clock_timestamp(), buried_at = clock_timestamp(), ended = true
  where w.pool_id = p_pool_id and not exists (select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.locked_by = p_pool_id);
$$;

-- What a pool that has started should say. A row with a `task`: no live pool has it, so its jobs are admitted, and then wait in
-- Graphile Worker. A row with versions: that policy goes by a higher version than the pool's own. Another row: another live pool
-- has that policy in another definition of the same version.
create or replace function _advice(p_pool_id text, p_tasks text[])
returns table (task text, policy text, own_version int, in_force_version int) language sql stable
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  with own as (
    select d.key as policy, d.value ->> 'version' as version, d.value ->> 'hash' as hash
    from workers w cross join jsonb_each(w.definitions) d where w.pool_id = p_pool_id
  )
  select t.task, null::text, null::int, null::int from unnest(p_tasks) t (task)
  where not exists (select from workers w where w.stale_at > clock_timestamp() and t.task = any (w.tasks))
  union all
  select null, o.policy, null, null from own o
  where exists (
    select from workers x
    where x.stale_at > clock_timestamp() and x.definitions #>> array[o.policy, 'version'] = o.version
      and x.definitions #>> array[o.policy, 'hash'] <> o.hash)
  union all
  select null, o.policy, o.version::int, p.version from own o
  join policies p on p.name = o.policy and p.version > o.version::int
  order by 1, 3 nulls first, 2;
$$;

-- Raises if a live worker pool has this policy; null: if any pool lives. Such a pool would go on, and find the policy or the
-- schema gone. The message names up to five pools, and says when each counts as dead if it was killed.
create or replace function _refuse_live_workers(p_verb text, p_policy text) returns void language plpgsql volatile as $$
declare
  v_pools text;
  v_count int;
begin
  select count(*), array_to_string((array_agg(
    format('%s (process %s on %s, heartbeat %s s ago, dead in %s s if it was killed)', x.pool_id,
      coalesce(x.pid::text, '?'), coalesce(x.host, '?'),
      greatest(0, extract(epoch from clock_timestamp() - x.heartbeat_at)::int),
      greatest(1, ceil(extract(epoch from x.stale_at - clock_timestamp()))::int)) order by x.pool_id))[:5], ', ')
  into v_count, v_pools from workers x
  where x.stale_at > clock_timestamp() and not x.ended and (p_policy is null or x.definitions ? p_policy);
  if v_count > 0 then
    raise exception 'dispatch_policy: %: live worker pools with %: %, expected none: %; %',
      p_verb, coalesce('policy ' || quote_literal(p_policy), 'the preset'), v_count, v_pools,
      case when p_policy is null then 'stop them and wait until killed ones count as dead, or force it'
        else 'take the policy out of their preset first' end
      using errcode = 'DPUSE';
  end if;
end
$$;
