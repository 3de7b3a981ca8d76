-- Sliding window: what was spent in the last `seconds`, in at most 65 entries, oldest first. Spendings of the same 64th of
-- the window are one entry, as of the last of them: it counts for a 64th too long at most, never too short.

-- A rate below one is one in a longer window.
create or replace function :DISPATCH_POLICY_SCHEMA._window_seconds(rate float8, per float8)
returns float8 language sql immutable as $$
  select case when rate > 0 and rate < 1 then least(per / rate, 1e9) else per end;
$$;

create or replace function :DISPATCH_POLICY_SCHEMA._window_spent(
  spent :DISPATCH_POLICY_SCHEMA._private_spending[], seconds float8, now timestamptz
) returns float8 language plpgsql stable as $$
begin
  return (select coalesce(sum(s.cost), 0) from unnest(spent) s where s.at > now - make_interval(secs => seconds));
end
$$;

-- With `cost` spent at `now` (or at the last entry's time, should the clock have gone back since; an entry more than a
-- second ahead is a wrong clock's).
create or replace function :DISPATCH_POLICY_SCHEMA._window_spend(
  spent :DISPATCH_POLICY_SCHEMA._private_spending[], seconds float8, cost float8, now timestamptz
) returns :DISPATCH_POLICY_SCHEMA._private_spending[] language plpgsql stable as $$
begin
  return (
    select coalesce(array_agg(row(p.at, p.cost):::DISPATCH_POLICY_SCHEMA._private_spending order by p.at), '{}')
    from (
      select max(e.at) as at, sum(e.cost) as cost
      from (
        select case when s.at > now + interval '1 second' then now else s.at end as at, s.cost
        from unnest(spent) s where s.at > now - make_interval(secs => seconds)
        union all
        select greatest(now, (select max(s.at) from unnest(spent) s where s.at <= now + interval '1 second')), _window_spend.cost
        where _window_spend.cost > 0
      ) e
      group by floor(extract(epoch from e.at) * 64 / seconds)
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
