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
