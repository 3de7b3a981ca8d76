-- The numbers of a gate, if a pass can reckon with them. Others would fail each pass of the policy: so they fail the arrival that
-- brings them, and no other. It is no CHECK of `limiters`: PostgreSQL parses those anew for each statement that writes a row,
-- and of what a freed slot cost, a tenth went there.
create or replace function _valid_numbers(numbers gate_numbers) returns gate_numbers language plpgsql stable as $$
declare
  v_wrong text := case
    when not (numbers.per between 1e-12 and 1e12) then 'per is ' || numbers.per || ', expected seconds between 1e-12 and 1e12'
    when not (abs(numbers.rate) <= 1e12) then 'rate is ' || numbers.rate || ', expected a number up to 1e12'
    when numbers.max < 0 then 'max is ' || numbers.max || ', expected 0 or more'
    when split_part(numbers.calendar, ' ', 1) not in ('minute', 'hour', 'day', 'week', 'month')
      then 'calendar is "' || numbers.calendar || '", expected minute, hour, day, week or month and a time zone' end;
begin
  if v_wrong is not null then
    raise exception 'dispatch_policy: the numbers of a gate: %', v_wrong using errcode = 'DPARG';
  end if;
  if numbers.calendar is not null then
    perform timestamptz '2000-01-01Z' at time zone split_part(numbers.calendar, ' ', 2);   -- raises if the server does not know it
  end if;
  return numbers;
end
$$;
