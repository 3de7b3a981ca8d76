-- Leases: which pool leads which shard.

-- Bids for or renews the leases of a tick loop. For each it returns what the loop must know before it sleeps: whether it leads,
-- until when the leader's lease runs, when a partition becomes eligible, and whether arrivals wait.
--
-- It is part of a heartbeat, so it does not wait for a lease that another session has locked. A lease that runs for longer than
-- any lease does is void: a clock was ahead. A pool that has the definition in force takes the leases of pools that have another
-- one: see _leader_keys.
create or replace function _lease(
  p_holder text, p_policies text[], p_shards text[], p_ttl interval, p_bid boolean
) returns table (
  policy text, shard text, leads boolean, expires_in_ms float8, next_in_ms float8, waiting boolean
) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '500ms'
as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_void timestamptz := v_now + greatest(p_ttl, '30 seconds');
  v_takes text[] := case when p_bid then array(   -- those whose definition in force this pool has, and no leader
    select p.name from workers w
    join policies p on p.name = any(p_policies) and w.definitions #>> array[p.name, 'hash'] = p.definition_hash
    where w.pool_id = p_holder and not _leader_keys(p)) end;
begin
  if p_bid then
    begin
      insert into leases as l (policy, shard, holder, expires_at)
      select w.policy, w.shard, p_holder, v_now + p_ttl
      from _led_shards(p_policies, p_shards, true) w
      where w.policy = any(v_takes) or not exists (
        select from leases x
        where x.policy = w.policy and x.shard = w.shard and x.holder <> p_holder
          and x.expires_at > v_now and x.expires_at <= v_void)
      order by w.policy, w.shard
      on conflict on constraint leases_pkey do update
      set holder = excluded.holder, expires_at = excluded.expires_at
      where l.holder = excluded.holder or l.expires_at <= v_now or l.expires_at > v_void or l.policy = any(v_takes);
    exception when lock_not_available then null;   -- then it stays as it is
    end;
  end if;
  return query
  select w.policy, w.shard, coalesce(l.holder = p_holder and l.expires_at > v_now, false),
    case when l.expires_at <= v_void then (extract(epoch from l.expires_at - v_now) * 1000)::float8 end,
    -- each is made a number first: before PostgreSQL 17, infinity cannot be subtracted from a time
    (extract(epoch from _next_eligible_at(w.policy, w.shard)) - extract(epoch from v_now))::float8 * 1000,
    _is_to_route(w.policy) or _is_to_key(w.policy) or exists (select from events e where e.policy_id = w.policy_id)
      or _waits_in_vain(w.policy_id, w.ahead_limiter_id, v_now) or _with_new_shares(w.policy_id, 1) <> '{}'
  from _led_shards(p_policies, p_shards, p_bid) w
  left join leases l on l.policy = w.policy and l.shard = w.shard
  order by w.policy, w.shard;   -- the leader of the first one sweeps, so exactly one loop does
end
$$;

-- Every shard of these policies that has something to do or a leader, and always 'default'. `p_shards` null: of all shards.
--
--   p_idle   also the shards in `p_shards`, and those that had a leader. A shard whose partitions all wait for a job to end has
--            nothing to do, but its leader must stay, because it is notified of that end.
create or replace function _led_shards(p_policies text[], p_shards text[], p_idle boolean)
returns table (policy text, policy_id int, shard text, ahead_limiter_id bigint) language sql stable as $$
  select p.name, p.id, s.shard, p.ahead_limiter_id
  from policies p
  cross join lateral (
    select 'default' as shard
    union select unnest(_shards(p.id))
    union select a.shard from (select a.shard from arrivals a where a.policy = p.name order by a.id limit 100) a
    union select l.shard from leases l where l.policy = p.name and (p_idle or l.expires_at > clock_timestamp())
    -- a policy whose definition names its shard has no others
    union select u.shard from unnest(p_shards) u (shard) where p_idle and p.definition ->> 'shard' is null
  ) s
  where p.name = any(p_policies) and s.shard is not null
    and (p_shards is null or s.shard = any(p_shards) or p.shared);   -- a shared limit has one, whatever its policies have
$$;

-- Ends a pool's leases, so that the next loop need not wait until they run out. The rows stay, because the next loop learns
-- of the shards from them. A lease that was given up ended long ago: see _leader_keys.
create or replace function _step_down(p_holder text) returns void language sql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  with ended as (
    update leases l set expires_at = 'epoch' where l.holder = p_holder and l.expires_at > 'epoch' returning l.policy)
  select pg_notify('dispatch_policy', json_build_object(
    'schema', :'DISPATCH_POLICY_SCHEMA', 'policy', e.policy, 'vacant', true)::text) from ended e;
$$;
