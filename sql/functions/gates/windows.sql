-- A throttle that remembers what was spent: sliding windows, and calendar ones.

-- Whether a throttle is a window: it remembers what was spent, and has no tokens that flow in.
create or replace function _is_window(numbers gate_numbers) returns boolean language sql immutable as $$
  select (numbers).sliding is true or (numbers).calendar is not null;
$$;

-- What a window has left.
create or replace function _window_left(spent spending[], numbers gate_numbers, now timestamptz)
returns float8 language sql stable as $$
  select _throttle_capacity(numbers) - _window_spent(spent, _window_seconds(numbers, now), now);
$$;

-- What was spent in the last `seconds`.
create or replace function _window_spent(spent spending[], seconds float8, now timestamptz)
returns float8 language plpgsql stable as $$
begin
  return (select coalesce(sum(s.cost), 0) from unnest(spent) s where s.at > now - make_interval(secs => seconds));
end
$$;

-- Of how many seconds until `now` a window counts what was spent.
--
-- A sliding window counts its length. A rate below one is one in a longer window. A window of more than 1e9 seconds would
-- begin before PostgreSQL's first timestamp, and fail each tick of its policy. So it is 1e9 seconds long. A calendar window
-- counts from its beginning, which is in it: hence the microsecond.
create or replace function _window_seconds(numbers gate_numbers, now timestamptz)
returns float8 language sql stable as $$   -- immutable it would not be inlined
  select case
    when (numbers).calendar is not null then
      extract(epoch from now - _calendar_begins_at((numbers).calendar, now))::float8 + 1e-6
    when (numbers).rate > 0 and (numbers).rate < 1 then least((numbers).per / (numbers).rate, 1e9)
    else least((numbers).per, 1e9) end;
$$;

-- When the calendar's minute, hour, day, week or month that has `at` in it began. `calendar` is the unit and the time zone,
-- such as "day America/New_York".
--
-- A minute and an hour are lengths of time. A day begins at midnight of the zone's clocks, so it may have 23 or 25 hours. If
-- clocks skip midnight, it begins when they do. If they show midnight twice, it begins with the second one, and the hour
-- before belongs to the day before.
create or replace function _calendar_begins_at(calendar text, at timestamptz)
returns timestamptz language plpgsql stable as $$
declare
  v_unit text := split_part(calendar, ' ', 1);
  v_zone text := split_part(calendar, ' ', 2);
  v_local timestamp;
begin
  if v_unit in ('minute', 'hour') then
    return date_trunc(v_unit, at, v_zone);
  end if;
  v_local := date_trunc(v_unit, at at time zone v_zone);
  if v_local at time zone v_zone > at then
    v_local := v_local - ('1 ' || v_unit)::interval;
  end if;
  return v_local at time zone v_zone;
end
$$;

-- What a window remembers after `cost` was spent at `now`, without what is older than `remembered` seconds. If the clock
-- has gone back since the last entry, that entry's time counts. An entry more than a second ahead comes from a wrong clock.
--
-- A window remembers what was spent in at most 65 entries, oldest first. Spendings of the same 64th of the window are one
-- entry, with the time of the last of them. So it counts for a 64th too long at most, never too short. Older spendings,
-- which are remembered because a longer window may come back, are 65 entries more, by 64ths of that.
create or replace function _window_spend(spent spending[], seconds float8, remembered float8, cost float8, now timestamptz)
returns spending[] language plpgsql stable as $$
declare
  v_since timestamptz := now - make_interval(secs => seconds);
begin
  return (
    select coalesce(array_agg(row(p.at, p.cost)::spending order by p.at), '{}')
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

-- What a window remembers after its rest was lowered by `cost` at `now`. `reset_at`: so much, and nothing that was spent
-- before, returns earlier than that (null: what is lowered counts as spent now). No window counts for longer than its
-- length, so a later time than that changes nothing more.
create or replace function _window_lowered(
  spent spending[], seconds float8, remembered float8, cost float8, reset_at timestamptz, now timestamptz
) returns spending[] language plpgsql stable as $$
declare
  v_since timestamptz := now - make_interval(secs => seconds);
  v_at timestamptz := least(reset_at - make_interval(secs => seconds), now);
begin
  if reset_at is null then
    return _window_spend(spent, seconds, remembered, cost, now);
  end if;
  return (
    select array_agg(row(p.at, p.cost)::spending order by p.at)
    from (
      select e.at, sum(e.cost) as cost
      from (
        select case when s.at > v_since then greatest(s.at, v_at) else s.at end as at, s.cost from unnest(spent) s
        union all
        select v_at, _window_lowered.cost
      ) e
      group by e.at
    ) p);
end
$$;

-- When enough has left the window for `cost`, or everything if the cost is more than the capacity: by the rule of
-- _lets_through.
create or replace function _window_ready_at(spent spending[], seconds float8, capacity float8, cost float8, now timestamptz)
returns timestamptz language plpgsql stable as $$
begin
  if _lets_through(capacity - _window_spent(spent, seconds, now), capacity, cost) then
    return now;
  end if;
  return (
    select min(e.at) + make_interval(secs => seconds)
    from (
      select s.at, coalesce(sum(s.cost) over (order by s.at desc rows between unbounded preceding and 1 preceding), 0)
        as left_then
      from unnest(spent) s where s.at > now - make_interval(secs => seconds)
    ) e
    where _lets_through(capacity - e.left_then, capacity, cost));
end
$$;

-- For how many seconds a window must know what was spent. A calendar window also remembers the one before: if a clock goes
-- back over its beginning, that one has no more than it had.
create or replace function _window_remembered(numbers gate_numbers, now timestamptz)
returns float8 language sql stable as $$   -- immutable it would not be inlined
  select case when (numbers).calendar is not null then 2 * (numbers).per else _window_seconds(numbers, now) end;
$$;

-- When the calendar's minute, hour, day, week or month that has `at` in it ends, or the one so many `later`.
create or replace function _calendar_ends_at(calendar text, at timestamptz, later int)
returns timestamptz language plpgsql stable as $$
declare
  v_unit text := split_part(calendar, ' ', 1);
  v_zone text := split_part(calendar, ' ', 2);
  v_begins_at timestamptz := _calendar_begins_at(calendar, at);
begin
  if v_unit in ('minute', 'hour') then
    return v_begins_at + make_interval(secs => case v_unit when 'minute' then 60 else 3600 end * (later + 1));
  end if;
  return (date_trunc(v_unit, v_begins_at at time zone v_zone) + (later + 1) * ('1 ' || v_unit)::interval) at time zone v_zone;
end
$$;
