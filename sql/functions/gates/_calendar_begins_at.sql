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
