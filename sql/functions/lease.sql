-- Takes or renews the leases of a tick loop, and says for each what the loop needs to know before it sleeps: whether
-- it leads, until when the leader's lease runs, when something becomes eligible, and whether arrivals or notes wait.
-- One statement, so that an idle process asks little. A lease that another session keeps locked is not waited for: this
-- is part of a heartbeat. One that runs for longer than any lease does is of a clock that was ahead, and void.
create or replace function :DISPATCH_POLICY_SCHEMA._lease(
  p_holder text, p_policies text[], p_shards text[], p_ttl interval, p_bid boolean
) returns table (
  policy text, shard text, leads boolean, expires_in_ms float8, next_in_ms float8, waiting boolean
) language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '500ms'
as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
begin
  if p_bid then
    begin
      insert into :DISPATCH_POLICY_SCHEMA._private_leases as l (policy, shard, holder, expires_at)
      select w.policy, w.shard, p_holder, v_now + p_ttl
      from :DISPATCH_POLICY_SCHEMA._led_shards(p_policies, p_shards, true) w
      where not exists (
        select from :DISPATCH_POLICY_SCHEMA._private_leases x
        where x.policy = w.policy and x.shard = w.shard and x.holder <> p_holder
          and x.expires_at > v_now and x.expires_at <= v_now + greatest(p_ttl, '30 seconds'))
      order by w.policy, w.shard
      on conflict on constraint _private_leases_pkey do update
      set holder = excluded.holder, expires_at = excluded.expires_at
      where l.holder = excluded.holder or l.expires_at <= v_now or l.expires_at > v_now + greatest(p_ttl, '30 seconds');
    exception when lock_not_available then null;   -- as it stands, then
    end;
  end if;
  return query
  select w.policy, w.shard, coalesce(l.holder = p_holder and l.expires_at > v_now, false),
    case when l.expires_at <= v_now + greatest(p_ttl, '30 seconds') then (extract(epoch from l.expires_at - v_now) * 1000)::float8 end,
    -- each of them a number first: before PostgreSQL 17 there is no difference between a time and infinity
    (extract(epoch from :DISPATCH_POLICY_SCHEMA._next_eligible_at(w.policy, w.shard)) - extract(epoch from v_now))::float8
      * 1000,
    :DISPATCH_POLICY_SCHEMA._is_to_route(w.policy_id, w.policy)
      or exists (select from :DISPATCH_POLICY_SCHEMA._private_keyless_jobs k
        where k.policy = w.policy and k.retry_at <= v_now)
      or :DISPATCH_POLICY_SCHEMA._waits_in_vain(w.policy_id, w.ahead_limiter_id)
  from :DISPATCH_POLICY_SCHEMA._led_shards(p_policies, p_shards, p_bid) w
  left join :DISPATCH_POLICY_SCHEMA._private_leases l on l.policy = w.policy and l.shard = w.shard
  order by w.policy, w.shard;   -- who leads the first one sweeps: of all loops there is always one that does
end
$$;

-- Stepping down: the next loop need not wait for the lease to run out. The row stays, so that it knows of the shard.
create or replace function :DISPATCH_POLICY_SCHEMA._step_down(p_holder text) returns void language plpgsql
set search_path = pg_catalog, pg_temp as $$
declare
  v_policy text;
begin
  for v_policy in
    update :DISPATCH_POLICY_SCHEMA._private_leases l set expires_at = clock_timestamp()
    where l.holder = p_holder and l.expires_at > clock_timestamp() returning l.policy
  loop
    perform pg_notify('dispatch_policy', json_build_object(
      'schema', :'DISPATCH_POLICY_SCHEMA', 'policy', v_policy, 'vacant', true)::text);
  end loop;
end
$$;

-- Every shard of these policies that has something to do, with 'default' always among them; `p_shards` null: all.
--
--   p_idle   also the shards in `p_shards`, and those that have a leader or had one. A shard whose partitions all wait for
--            a job to end has nothing to do. Its leader must stay all the same: it is the one that hears of that end.
create or replace function :DISPATCH_POLICY_SCHEMA._led_shards(p_policies text[], p_shards text[], p_idle boolean)
returns table (policy text, policy_id int, shard text, ahead_limiter_id bigint) language sql stable as $$
  select p.name, p.id, s.shard, p.ahead_limiter_id
  from :DISPATCH_POLICY_SCHEMA._private_policies p
  cross join lateral (
    select 'default' as shard
    union select unnest(:DISPATCH_POLICY_SCHEMA._shards(p.id))
    union select a.shard from (
      select a.shard from :DISPATCH_POLICY_SCHEMA._private_arrivals a where a.policy = p.name order by a.id limit 100) a
    union select l.shard from :DISPATCH_POLICY_SCHEMA._private_leases l where l.policy = p.name and p_idle
    -- a policy whose definition says the shard has no others
    union select u.shard from unnest(p_shards) u (shard) where p_idle and p.definition ->> 'shard' is null
  ) s
  where p.name = any(p_policies) and s.shard is not null and (p_shards is null or s.shard = any(p_shards));
$$;

-- A shard that no partition is of needs no leader any more. Called when partitions were removed.
create or replace function :DISPATCH_POLICY_SCHEMA._forget_shards() returns void language sql volatile as $$
  delete from :DISPATCH_POLICY_SCHEMA._private_leases l
  where l.shard <> 'default'
    and not exists (
      select from :DISPATCH_POLICY_SCHEMA._private_partitions q
      join :DISPATCH_POLICY_SCHEMA._private_policies p on p.id = q.policy_id
      where p.name = l.policy and q.shard = l.shard)
    and not exists (
      select from :DISPATCH_POLICY_SCHEMA._private_arrivals a where a.policy = l.policy and a.shard = l.shard);
$$;

-- A pool's heartbeat and its leases in one statement. `busy`: something is staged or in flight, or a pool is silent or has
-- ended lately, so that a sweep has something to look at.
create or replace function :DISPATCH_POLICY_SCHEMA._beat(
  p_pool_id text, p_slots int, p_tasks text[], p_host text, p_pid int, p_stale_after interval,
  p_policies text[], p_shards text[], p_ttl interval, p_bid boolean, p_clock_behind interval default '0'
) returns table (
  policy text, shard text, leads boolean, expires_in_ms float8, next_in_ms float8, waiting boolean, busy boolean
) language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
#variable_conflict use_column
begin
  perform :DISPATCH_POLICY_SCHEMA._worker_alive(p_pool_id, p_slots, p_tasks, p_host, p_pid, p_stale_after,
    p_clock_behind);
  return query
  select l.*, exists (select from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs)
    or exists (select from :DISPATCH_POLICY_SCHEMA._private_staged_jobs)
    or exists (
      select from :DISPATCH_POLICY_SCHEMA._private_workers w
      where w.stale_at < clock_timestamp() and (w.gone or w.buried_at is null))
  from :DISPATCH_POLICY_SCHEMA._lease(p_pool_id, p_policies, p_shards, p_ttl, p_bid) l;
end
$$;
