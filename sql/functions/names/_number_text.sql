-- A number in JSON as JavaScript reads it, written as numberText in JavaScript writes it: never with an exponent. Null: an
-- integer beyond 2^53 - 1, or a number out of range. JavaScript reads several of those as one.
create or replace function _number_text(p_number text) returns text
language plpgsql immutable set extra_float_digits = 1 as $$
declare
  v_number float8;
begin
  v_number := p_number::float8 + 0;   -- -0 is 0
  return case when v_number <> trunc(v_number) then v_number::text::numeric::text
    when abs(v_number) <= 9007199254740991 then v_number::bigint::text end;
exception when numeric_value_out_of_range then
  return null;
end
$$;
