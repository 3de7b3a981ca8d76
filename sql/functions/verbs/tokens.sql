-- Verbs: code outside of jobs draws tokens, or says how many are left.

-- Draws tokens from a throttle for code outside jobs. It never waits for tokens: it answers whether it took them, and if
-- not, when to ask again. It answers the same if another transaction has the throttle locked for longer than a moment.
--
-- Its own transaction keeps the throttle locked until it ends, and stops all who use it. `key` is the scope key ('' or null
-- for a gate over the policy). A shadow gate always says yes: it takes the tokens if they are there, and counts a denial if
-- not. A key that no job has used has a full bucket, if the gate's numbers are constants.
create or replace function :DISPATCH_POLICY_SCHEMA.take(
  policy text, gate text, key text default null, cost float8 default 1, now timestamptz default null
) returns table (taken boolean, retry_at timestamptz) language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp set lock_timeout = '250ms' as $$
#variable_conflict use_column
declare
  v_policy policies := _policy_of_gate(take.policy, take.gate);
  v_asked timestamptz := clock_timestamp();
  v_bucket record; v_limiter room_before; v_has_room boolean;
begin
  perform _check_now('take', take.now);
  perform _check_limit(v_policy, take.gate);
  if (take.cost between 0 and 1e12) is not true then
    raise exception 'dispatch_policy: take: cost is %, expected 0 to 1e12', coalesce(take.cost::text, 'null')
      using errcode = 'DPARG';
  end if;
  begin
    v_bucket := _bucket_now('take', v_policy, take.gate, take.key, take.now);
    v_limiter := v_bucket.limiter;
    v_has_room := _lets_through(v_bucket.tokens, v_limiter.capacity, take.cost) and (v_limiter.rate > 0 or take.cost = 0);
    taken := v_has_room or v_limiter.shadow_tokens is not null;
    if v_has_room then
      perform _set_tokens(v_bucket.id, v_bucket.tokens - take.cost, case when v_limiter.spent is not null
        then _window_spend(v_limiter.spent, v_limiter.window_seconds, v_limiter.remembered, take.cost, v_bucket.at) end,
        v_bucket.at);
    elsif taken then
      insert into activity (policy_id, at, shadow_denied)
      values (v_policy.id, v_bucket.at, jsonb_build_object(take.gate, 1));
    else
      retry_at := _throttle_ready_at(v_limiter.tokens, v_limiter.rate, v_limiter.per, v_limiter.capacity, v_limiter.spent,
        v_limiter.calendar, take.cost, v_bucket.at);
    end if;
  exception when lock_not_available or deadlock_detected or query_canceled then
    if not _is_lock_timeout(sqlstate, v_asked) then
      raise;
    end if;
    taken := false;
    retry_at := coalesce(take.now, clock_timestamp()) + interval '250 milliseconds';
  end;
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.take from public;

-- Lowers a throttle to what the partner says is left of its limit, and never raises it. `key` is the scope key ('' or null
-- for a gate over the policy). `tokens` is what the throttle has then. Below 0 it is in debt, of what it gains in its `per`
-- at most.
--
-- With `reset_at` no more than `remaining` goes until that time. What a bucket gains until then is taken off as well, and
-- nothing that a sliding window has spent returns earlier. A calendar window goes by its calendar. If the time has passed,
-- nothing is lowered, because what the partner said is over.
--
-- Its own transaction keeps the throttle locked, as that of take. If another transaction has it locked for longer than a
-- moment, nothing is lowered, and `tokens` is null.
create or replace function :DISPATCH_POLICY_SCHEMA.sync(
  policy text, gate text, remaining float8, key text default null, reset_at timestamptz default null,
  now timestamptz default null
) returns table (lowered boolean, tokens float8) language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp set lock_timeout = '250ms' as $$
#variable_conflict use_column
declare
  v_policy policies := _policy_of_gate(sync.policy, sync.gate);
  v_asked timestamptz := clock_timestamp();
  v_bucket record; v_limiter room_before; v_then float8;
begin
  perform _check_now('sync', sync.now);
  perform _check_limit(v_policy, sync.gate);
  if (sync.remaining between 0 and 1e12) is not true then
    raise exception 'dispatch_policy: sync: remaining is %, expected 0 to 1e12', coalesce(sync.remaining::text, 'null')
      using errcode = 'DPARG';
  elsif not isfinite(sync.reset_at) then
    raise exception 'dispatch_policy: sync: reset_at is %, expected a time; leave it out if the partner does not say it',
      sync.reset_at using errcode = 'DPARG';
  end if;
  v_bucket := _bucket_now('sync', v_policy, sync.gate, sync.key, sync.now);
  v_limiter := v_bucket.limiter;
  v_then := case when v_limiter.spent is not null then sync.remaining
    else greatest(
      sync.remaining - coalesce(extract(epoch from sync.reset_at - v_bucket.at)::float8, 0)
        * greatest(v_limiter.rate, 0) / v_limiter.per,
      _lowest_tokens(v_limiter.rate, (select (l.numbers).rate from limiters l where l.id = v_bucket.id))) end;
  lowered := v_then < v_bucket.tokens and (sync.reset_at <= v_bucket.at) is not true;
  if lowered then
    perform _set_tokens(v_bucket.id, v_then, case when v_limiter.spent is not null then _window_lowered(
      v_limiter.spent, v_limiter.window_seconds, v_limiter.remembered, v_bucket.tokens - v_then,
      case when v_limiter.calendar is null then sync.reset_at end, v_bucket.at) end, v_bucket.at);
  end if;
  tokens := case when lowered then v_then else v_bucket.tokens end;
  return next;
exception when lock_not_available or deadlock_detected or query_canceled then
  if not _is_lock_timeout(sqlstate, v_asked) then
    raise;
  end if;
  lowered := false; tokens := null;
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.sync from public;
