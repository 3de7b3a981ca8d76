-- When a throttle lets a job of `cost` through, by the rule of _lets_through. `spent` is a window's, null for a bucket.
-- `calendar` is a calendar window's: all that was spent in it returns at its end.
create or replace function _throttle_ready_at(
  tokens float8, rate float8, per float8, capacity float8, spent spending[],
  calendar text, cost float8, now timestamptz
) returns timestamptz language sql stable as $$
  select case
    when calendar is not null and rate > 0 then case
      when _lets_through(tokens, capacity, cost) then now
      else _calendar_ends_at(calendar, now, 0) end
    when spent is not null and rate > 0 then _window_ready_at(spent, per, capacity, cost, now)
    else now + make_interval(secs => case
      when rate <= 0 then per
      else least(greatest((least(cost, capacity) - tokens) * per / rate, 0), 1e9) end)
    end;
$$;
