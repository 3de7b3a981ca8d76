-- A tick, and the pass that it runs.

-- One admission pass over one shard of a policy: claim, lock, allocate, admit, charge. It is one transaction. Its number
-- of statements does not grow with the partitions, unless it tries twice or admits in halves. It claims partitions that are
-- eligible, and those that limiters with room call (waiters.sql), which may be of any shard.
--
-- Passes that keep to the ahead bound run one after another. So none skips partitions that another has locked. A second one
-- beside the first would rank only its own claim. Once the first has unlocked the bound, it would use all the room.
--
-- If an application's transaction has a limiter locked, only those who use it are stopped. After a short wait their
-- partitions are postponed for a moment, and the others go on in the same pass.
--
-- Locks: the turn "admit" if it keeps to the ahead bound, partitions, staged rows that become due, limiters ascending.
-- Then staged rows, Graphile Worker's job rows, in-flight rows. Partitions and staged rows that are locked are skipped. In
-- the second try, limiters come before the rows that become due. The order of all is in docs/engine.md.
--
--   p_shard    null: all shards
--   p_claim    most eligible partitions to look at. As many limiters with a freed row call others, each as many at most, and as many
--     of those are looked at
--   p_now      null: the database clock, read after the locks: when it was read before, a wait let a throttle overrun
--   p_bounded  keep the policy's jobs in flight just ahead of its workers
--   p_few      false: not even few jobs go the small way
--   p_routes   few arrivals are routed here as well, see _route_few
--   routed     how many that were, or -1. Null: nothing has happened, the caller routes first, and comes again
--   served     at how many limiters it has looked for good: nobody has to look again at once
--   to_route   arrivals wait for the router
--
-- It is longer than others, because a pass that meets a locked limiter rolls back and repeats one block: claim to charge.
create or replace function _admit(
  p_policy text, p_shard text, p_claim int, p_now timestamptz, p_bounded boolean, p_few boolean default true,
  p_routes boolean default false, out routed int, out claimed int, out served int, out admitted int, out denied jsonb, out quarantined int,
  out next_eligible_at timestamptz, out saturated text, out to_route boolean
) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off   -- as _route
set lock_timeout = '2s'                     -- an open transaction with a new queue name blocks add_jobs
as $$
declare
  v_policy policies;
  v_began timestamptz := clock_timestamp();
  v_now timestamptz := coalesce(p_now, v_began);
  v_looks boolean;         -- at those who wait for limiters
  v_looked_at bigint[];    -- these limiters
  v_call record;
  v_lined bigint[];        -- others at which somebody waits
  v_called claimed[];      -- which call these partitions
  v_partition_ids uuid[];
  v_claimed claimed[];
  v_limiters limiters[];
  v_busy jsonb;
  v_locked bigint[] := '{}';
  v_locking boolean := false;
  v_again boolean := false;
  v_in_few boolean := false;
  v_message text;
  v_context text;
  v_pass record;
begin
  perform _check_isolation('a tick');
  claimed := 0; admitted := 0; denied := '{}'; quarantined := 0; served := 0;
  if current_setting('dispatch_policy.server', true) is distinct from :'DISPATCH_POLICY_SCHEMA' and not _meet_server() then
    next_eligible_at := v_now + interval '100 milliseconds';   -- when pools have said what they run
    to_route := _is_to_route(p_policy);
    return;
  end if;
  select * into v_policy from policies p where p.name = p_policy;
  if v_policy.id is null then
    perform _unknown_policy(p_policy);
  end if;
  if p_bounded then
    v_busy := (
      select u.busy from turns u
      where u.policy_id = v_policy.id and u.step = 'admit' and u.place = 0 for update);
    v_now := coalesce(p_now, clock_timestamp());
  else
    v_busy := (
      select u.busy from turns u
      where u.policy_id = v_policy.id and u.step = 'admit' and u.place = 0);
  end if;
  if v_busy <> '{}' then   -- as passes before found them
    v_locked := _locked_limiters(array(select k::bigint from jsonb_object_keys(v_busy) k));
  end if;
  if v_policy.ahead_limiter_id = any(v_locked) then   -- all partitions use this one
    next_eligible_at := v_now + interval '100 milliseconds';
    to_route := _is_to_route(p_policy);
    return;
  end if;
  if p_routes then
    routed := _route_few(v_policy, v_now);
    if routed is null then
      return;
    end if;
  end if;
  if v_policy.paused_until <= v_now then
    -- of two that look at once, the second one would call those who stand further behind
    v_looks := v_policy.enabled and (p_bounded or _try_lock_turn(v_policy.id, 'route'));
    -- More than once only if a limiter could not be locked, or if it is not for the small way. One subtransaction has all of it:
    -- a row that is locked outside and changed inside of one costs a multixact.
    loop
      claimed := 0;
      begin
        v_called := '{}';
        v_looked_at := case when v_looks then _limiters_to_look_at(v_policy, p_claim, v_locked, v_now, p_bounded) else '{}' end;
        if v_looked_at <> '{}' and v_policy.class_shares is not null then   -- whose the next places are is read under the locks
          if v_again then
            perform _lock_available_limiters(v_looked_at || v_policy.ahead_limiter_id);
          else
            v_locking := true;
            perform _lock_limiters_soon(v_looked_at || v_policy.ahead_limiter_id);   -- others lock this one first as well
            v_locking := false;
          end if;
        end if;
        if v_looked_at <> '{}' then
          v_call := _call(v_policy, case when not p_bounded then p_shard end, v_looked_at, p_claim, p_bounded, v_now);
          v_called := v_call.called;
        end if;
        v_partition_ids := _claim(v_policy, p_shard, p_claim, v_now);
        if v_called <> '{}' then
          v_partition_ids := array(select unnest(v_partition_ids) union select unnest(v_call.chosen));
        end if;
        exit when v_partition_ids is null and v_looked_at = '{}';
        v_partition_ids := coalesce(v_partition_ids, '{}');
        if v_policy.by_cost and v_looks and v_partition_ids <> '{}' then
          v_lined := _lines_beside(v_partition_ids, v_looked_at || v_locked);
          if v_lined <> '{}' then
            v_call := _call(v_policy, case when not p_bounded then p_shard end, v_lined, p_claim, p_bounded, v_now);
            v_called := v_called || v_call.called;
            v_looked_at := v_looked_at || v_lined;
            v_partition_ids := array(select unnest(v_partition_ids) union select unnest(v_call.chosen));
          end if;
        end if;
        claimed := cardinality(v_partition_ids);
        if v_busy <> '{}' or v_again then
          if v_again then
            v_locked := v_locked || _lock_available_limiters(_limiters_of(v_partition_ids) || v_looked_at);
          end if;
          -- all partitions use this one, and another pass may have it locked: they stay as they are
          if v_policy.ahead_limiter_id = any(v_locked) then
            claimed := 0;
            v_partition_ids := '{}';
          end if;
          v_partition_ids := _postpone(
            v_policy.id, v_partition_ids, v_busy, v_locked, p_bounded, v_now);
          v_looked_at := array(select u.id from unnest(v_looked_at) u (id) where u.id <> all (v_locked));
          exit when v_partition_ids = '{}' and v_looked_at = '{}';
        end if;
        perform _promote(v_partition_ids, v_now);
        v_claimed := _claimed(v_partition_ids, array(select c from unnest(v_called) c where c.first_jobs > 0));
        v_locking := not v_again;   -- in the second try they are locked by now
        v_limiters := _lock_limiters_soon(v_looked_at || array(
          select distinct u.id from unnest(v_claimed) c cross join unnest(c.limiter_ids) u (id)));
        v_locking := false;
        if p_now is null then
          v_now := clock_timestamp();
        end if;
        -- while this pass waited for the locks, a removal of the policy may have moved its jobs elsewhere
        exit when exists (
          select from policies p where p.id = v_policy.id and p.paused_until > v_now);
        if v_claimed <> '{}' then
          v_in_few := p_few and cardinality(v_claimed) <= _few() and _left_for(v_policy, v_now) is null;
          if v_in_few then
            v_pass := _pass_of_few(v_policy, v_claimed, v_limiters, p_bounded, v_now, v_began);
          else
            v_pass := _admit_locked(v_policy, v_claimed, v_limiters, v_now, p_bounded, v_began);
            claimed := coalesce(v_pass.claimed, claimed);
            quarantined := v_pass.quarantined;
            v_partition_ids := v_pass.looked_at;
          end if;
          v_in_few := false;
          admitted := v_pass.admitted; denied := v_pass.denied; saturated := v_pass.saturated;
        end if;
        if v_looked_at <> '{}' then
          served := _look_again(v_policy, p_shard, v_looked_at, v_partition_ids, p_bounded, v_now);
        end if;
        if saturated = 'workers' and (
          select _may_end(l, v_now) from limiters l where l.id = v_policy.ahead_limiter_id) = 0 then
          saturated := 'gate';
        end if;
        exit;
      exception
        when lock_not_available or deadlock_detected then
          if not (v_locking or v_in_few) then
            raise;
          end if;
          v_again := v_again or v_locking;
          p_few := p_few and not v_in_few;
          v_locking := false; v_in_few := false;
        when others then
          if not v_in_few then
            raise;
          end if;
          get stacked diagnostics v_message = message_text, v_context = pg_exception_context;
          if sqlstate <> 'DPOUT' then
            perform _left_to_pass(v_policy.id, _left_for_error(sqlstate, v_context), v_message, v_now);
          end if;
          p_few := false;
          v_in_few := false;
      end;
    end loop;
  end if;
  if p_shard is not null and exists (select from unnest(v_called) c where c.shard <> p_shard) then
    perform _notify_shards(p_policy, array(   -- their loops do not know that these go on at a time, or at once
      select distinct q.shard from partitions q
      where q.id = any(array(select c.id from unnest(v_called) c)) and q.shard <> p_shard and q.eligible_at < 'infinity'));
  end if;
  next_eligible_at := case when v_policy.ahead_limiter_id = any(v_locked) then v_now + interval '100 milliseconds'
    else _next_eligible_at(p_policy, p_shard, saturated is not null, p_now, p_bounded) end;
  if next_eligible_at = '-infinity' then
    next_eligible_at := v_now;
  end if;
  to_route := _is_to_route(p_policy);
end
$$;

-- Whether there are arrivals to route.
create or replace function _is_to_route(p_policy text) returns boolean
language plpgsql stable as $$
begin
  return exists (select from arrivals a where a.policy = p_policy);
end
$$;

-- When something may be admitted next. The first partition is eligible then, or a shared bucket that somebody waits for
-- gets its next token. Or an override starts or ends that concerns waiters, or the pause of the whole policy ends. -infinity:
-- at once, because a limiter has room that others may use. Null: not before something happens.
--
--   p_saturated   no partition may go, however eligible, until a job ends. Who waits for another limiter with room has to be looked
--     at all the same: it waits in the wrong line
--   p_bounded     false: of limiters with room only those count for which partitions of this shard wait
--   p_now         the time that the caller gives, which may be ahead of the clock. Then an override that only has to be
--     announced again, by the clock, is nothing to tick for. Null: the caller goes by the clock
create or replace function _next_eligible_at(
  p_policy text, p_shard text, p_saturated boolean default false, p_now timestamptz default null, p_bounded boolean default true
)
returns timestamptz language plpgsql stable as $$
begin
  return (
  select nullif(case when e.at is not null then greatest(p.paused_until, e.at) end, 'infinity')
  from policies p
  cross join lateral (select least(
    (select min(x.eligible_at) from unnest(
        case when p_saturated then '{}' when p_shard is null then _shards(p.id) else array[p_shard] end) s (shard)
      cross join lateral (
        (select q.eligible_at from partitions q
          where q.policy_id = p.id and q.shard = s.shard and q.eligible_at < 'infinity' and not q.ready
          order by q.eligible_at, q.visited limit 1)
        union all
        (select q.eligible_at from partitions q
          where q.policy_id = p.id and q.shard = s.shard and q.ready order by q.fair_key limit 1)
      ) x),
    case when exists (
        select from freed f
        where f.policy_id = p.id and (p_bounded or p_shard is null or exists (
          select from partitions q where q.blocked_on = f.limiter_id and q.shard = p_shard)))
      or (p.enabled and _with_new_shares(p.id, 1) <> '{}') then timestamptz '-infinity' end,
    (select l.wake_at from limiters l
      where l.policy_id = p.id and l.wake_at is not null order by l.wake_at limit 1),
    case when p.shared_ids <> '{}' then (
      select min(l.wake_at) from limiters l where l.policy_id = any(p.shared_ids) and l.wake_at is not null) end,
    case when not p.enabled then null when exists (
        select from overrides o where o.policy_id = p.id and o.to_announce <> '{}')
      then '-infinity' when p_now is not null then (
        select min(case when o.announce_again_at <= p_now then o.announce_at else least(o.announce_at, o.announce_again_at) end)
        from overrides o where o.policy_id = p.id)
      else (
        select least(o.announce_at, o.announce_again_at) from overrides o
        where o.policy_id = p.id order by least(o.announce_at, o.announce_again_at) limit 1) end
  ) as at) e
  where p.name = p_policy);
end
$$;

-- _admit for a session that has not admitted any jobs yet. Its first pass plans its statements, which takes 50 ms and more,
-- between the time that throttles charge for and the commit. Its jobs would start so much late and the next ones in time: a
-- second saw more starts than the rate. So a pass that admits jobs is rolled back, and the answer is null: the caller does it
-- again, in a transaction of its own, with its plans.
--
-- What it costs: ids of Graphile Worker's jobs are left out, as by any transaction that is rolled back.
create or replace function _admit_cold(
  p_policy text, p_shard text, p_claim int, p_now timestamptz, p_bounded boolean,
  p_few boolean, p_routes boolean, out routed int, out claimed int, out served int, out admitted int, out denied jsonb, out quarantined int,
  out next_eligible_at timestamptz, out saturated text, out to_route boolean
) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
declare
  v_pass record;
begin
  begin
    v_pass := _admit(p_policy, p_shard, p_claim, p_now, p_bounded, false, p_routes);   -- for the plans of the large way
    raise exception using errcode = 'DPOUT';
  exception when sqlstate 'DPOUT' then null;
  end;
  v_pass := _admit(p_policy, p_shard, p_claim, p_now, p_bounded, p_few, p_routes);
  if v_pass.admitted > 0 then
    raise exception using errcode = 'DPOUT';
  end if;
  routed := v_pass.routed; claimed := v_pass.claimed; served := v_pass.served; admitted := v_pass.admitted; denied := v_pass.denied; quarantined := v_pass.quarantined;
  next_eligible_at := v_pass.next_eligible_at; saturated := v_pass.saturated; to_route := v_pass.to_route;
exception when sqlstate 'DPOUT' then null;
end
$$;

-- Records that the crontab's tick has ticked these policies. It skips a policy that another session has locked.
create or replace function _crontab_ticked(p_policies text[]) returns void language sql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  update policies p set crontab_ticked_at = clock_timestamp()
  where p.id = any(array(
    select x.id from policies x where x.name = any(p_policies)
    order by x.id for no key update skip locked));
$$;

-- Whether jobs wait for a process that has the policy and works out their partitions.
create or replace function _is_to_key(p_policy text) returns boolean language plpgsql stable
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
begin
  return exists (
    select from keyless_jobs k
    where k.policy = p_policy and k.retry_at <= clock_timestamp());
end
$$;

-- Whether events wait for somebody who reads them. Volatile, so that it sees those of the pass before it in the same statement.
create or replace function _is_to_tell(p_policy text) returns boolean language plpgsql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
begin
  return exists (
    select from policies p join events e on e.policy_id = p.id where p.name = p_policy
  );
end
$$;
