-- One admission pass over one shard of a policy: claim, lock, allocate, admit, charge. It is one transaction. Its number
-- of statements does not grow with the partitions, unless it tries twice or admits in halves.
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
--   p_shard    null: all shards          p_claim    most partitions to look at
--   p_now      null: the database clock, read after the locks: when it was read before, a wait let a throttle overrun
--   p_bounded  keep the policy's jobs in flight just ahead of its workers
--   p_few      false: not even few jobs go the small way
--   p_routes   few arrivals are routed here as well, see _route_few
--   routed     how many that were, or -1. Null: nothing has happened, the caller routes first, and comes again
--   to_route   arrivals or freed rows wait for the router
--
-- It is longer than others, because a pass that meets a locked limiter rolls back and repeats one block: claim to charge.
create or replace function _admit(
  p_policy text, p_shard text, p_claim int, p_now timestamptz, p_bounded boolean, p_few boolean default true,
  p_routes boolean default false, out routed int, out claimed int, out admitted int, out denied jsonb, out quarantined int, out next_eligible_at timestamptz,
  out saturated text, out to_route boolean
) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off   -- as _route
set lock_timeout = '2s'                     -- an open transaction with a new queue name blocks add_jobs
as $$
declare
  v_policy policies;
  v_began timestamptz := clock_timestamp();
  v_now timestamptz := coalesce(p_now, v_began);
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
  claimed := 0; admitted := 0; denied := '{}'; quarantined := 0;
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
  -- all partitions use this one
  if v_busy ? v_policy.ahead_limiter_id::text
    and _locked_limiters(array[v_policy.ahead_limiter_id]) <> '{}' then
    next_eligible_at := v_now + interval '100 milliseconds';
    to_route := _is_to_route(v_policy.id, p_policy);
    return;
  end if;
  if p_routes then
    routed := _route_few(v_policy, p_bounded, v_now);
    if routed is null then
      return;
    end if;
  end if;
  if v_policy.paused_until <= v_now then
    -- More than once only if a limiter could not be locked, or if it is not for the small way. One subtransaction has all of it:
    -- a row that is locked outside and changed inside of one costs a multixact.
    loop
      claimed := 0;
      begin
        v_partition_ids := _claim(v_policy, p_shard, p_claim, v_now);
        exit when v_partition_ids is null;
        claimed := cardinality(v_partition_ids);
        if v_busy <> '{}' or v_again then
          v_locked := case when v_again
            then _lock_available_limiters(
              _limiters_of(v_partition_ids)) else '{}' end;
          -- all partitions use this one, and another pass may have it locked: they stay as they are
          if v_policy.ahead_limiter_id = any(v_locked) then
            claimed := 0;
            v_partition_ids := '{}';
          end if;
          v_partition_ids := _postpone(
            v_policy.id, v_partition_ids, v_busy, v_locked, p_bounded, v_now);
          exit when v_partition_ids = '{}';
        end if;
        perform _promote(v_partition_ids, v_now);
        v_claimed := _claimed(v_partition_ids);
        v_locking := not v_again;   -- in the second try they are locked by now
        v_limiters := _lock_limiters_soon(array(
          select distinct u.id from unnest(v_claimed) c cross join unnest(c.limiter_ids) u (id)));
        v_locking := false;
        if p_now is null then
          v_now := clock_timestamp();
        end if;
        -- while this pass waited for the locks, a removal of the policy may have moved its jobs elsewhere
        exit when exists (
          select from policies p where p.id = v_policy.id and p.paused_until > v_now);
        v_in_few := p_few and cardinality(v_claimed) <= _few() and v_policy.history_kept_for is null
          and _left_for(v_policy, v_now) is null;
        if v_in_few then
          v_pass := _pass_of_few(v_policy, v_claimed, v_limiters, p_bounded, v_now, v_began);
        else
          v_pass := _admit_locked(v_policy, v_claimed, v_limiters, v_now, p_bounded, v_began);
          claimed := coalesce(v_pass.claimed, claimed);
          quarantined := v_pass.quarantined;
        end if;
        admitted := v_pass.admitted; denied := v_pass.denied; saturated := v_pass.saturated;
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
  next_eligible_at := case when v_policy.ahead_limiter_id = any(v_locked) then v_now + interval '100 milliseconds'
    else _next_eligible_at(p_policy, p_shard, saturated is not null, p_now) end;
  to_route := _is_to_route(v_policy.id, p_policy);
end
$$;
