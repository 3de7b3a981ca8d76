-- Sliding window: what was spent in the last `seconds`, in at most 65 entries, oldest first. Spendings of the same 64th of
-- the window are one entry, as of the last of them: it counts for a 64th too long at most, never too short. What is older
-- than the window and still remembered, since a longer one may come back, is in 65 entries more, by 64ths of that.

-- A rate below one is one in a longer window. A window of more than 1e9 seconds would begin before PostgreSQL's first
-- timestamp, and fail each tick of its policy: it is 1e9 seconds long.
create or replace function :DISPATCH_POLICY_SCHEMA._window_seconds(rate float8, per float8)
returns float8 language sql immutable as $$
  select least(case when rate > 0 and rate < 1 then per / rate else per end, 1e9);
$$;

-- The longest window that a limiter has had, of those that are remembered.
create or replace function :DISPATCH_POLICY_SCHEMA._longest_window(
  limiter :DISPATCH_POLICY_SCHEMA._private_limiters, now timestamptz
) returns float8 language sql stable as $$
  select case when limiter.sliding then greatest(
    :DISPATCH_POLICY_SCHEMA._window_seconds(limiter.rate, limiter.per),
    case when limiter.longest_until > now then limiter.longest end) end;
$$;

create or replace function :DISPATCH_POLICY_SCHEMA._window_spent(
  spent :DISPATCH_POLICY_SCHEMA._private_spending[], seconds float8, now timestamptz
) returns float8 language plpgsql stable as $$
begin
  return (select coalesce(sum(s.cost), 0) from unnest(spent) s where s.at > now - make_interval(secs => seconds));
end
$$;

-- With `cost` spent at `now` (or at the last entry's time, should the clock have gone back since; an entry more than a
-- second ahead is a wrong clock's), and what is older than `remembered` seconds forgotten.
create or replace function :DISPATCH_POLICY_SCHEMA._window_spend(
  spent :DISPATCH_POLICY_SCHEMA._private_spending[], seconds float8, remembered float8, cost float8, now timestamptz
) returns :DISPATCH_POLICY_SCHEMA._private_spending[] language plpgsql stable as $$
declare
  v_since timestamptz := now - make_interval(secs => seconds);
begin
  return (
    select coalesce(array_agg(row(p.at, p.cost):::DISPATCH_POLICY_SCHEMA._private_spending order by p.at), '{}')
    from (
      select max(e.at) as at, sum(e.cost) as cost
      from (
        select case when s.at > now + interval '1 second' then now else s.at end as at, s.cost
        from unnest(spent) s where s.at > now - make_interval(secs => remembered)
        union all
        select greatest(now, (select max(s.at) from unnest(spent) s where s.at <= now + interval '1 second')), _window_spend.cost
        where _window_spend.cost > 0
      ) e
      group by e.at > v_since,
        floor(extract(epoch from e.at) * 64 / case when e.at > v_since then seconds else remembered end)
    ) p);
end
$$;

-- What is left of a window.
create or replace function :DISPATCH_POLICY_SCHEMA._window_left(
  spent :DISPATCH_POLICY_SCHEMA._private_spending[], rate float8, per float8, now timestamptz
) returns float8 language sql stable as $$
  select greatest(rate, 1)
    - :DISPATCH_POLICY_SCHEMA._window_spent(spent, :DISPATCH_POLICY_SCHEMA._window_seconds(rate, per), now);
$$;

-- When enough has left the window for `cost`; for all of it where the cost is more than the window holds.
create or replace function :DISPATCH_POLICY_SCHEMA._window_ready_at(
  spent :DISPATCH_POLICY_SCHEMA._private_spending[], seconds float8, capacity float8, cost float8, now timestamptz
) returns timestamptz language plpgsql stable as $$
declare
  v_may_stay float8 := greatest(capacity - cost, 0) + 1e-9;
begin
  if :DISPATCH_POLICY_SCHEMA._window_spent(spent, seconds, now) <= v_may_stay then
    return now;
  end if;
  return (
    select min(e.at) + make_interval(secs => seconds)
    from (
      select s.at, coalesce(sum(s.cost) over (order by s.at desc rows between unbounded preceding and 1 preceding), 0)
        as left_then
      from unnest(spent) s where s.at > now - make_interval(secs => seconds)
    ) e
    where e.left_then <= v_may_stay);
end
$$;
