-- The text of a value that hash_key hashes: as PostgreSQL writes jsonb, with numbers as JavaScript reads them. Keys are
-- sorted by their length and bytes in UTF-8, so that databases of all encodings agree with hashKey in JavaScript. Raises for
-- a number that JavaScript reads as another one's.
create or replace function _canonical_json(p_value jsonb) returns text
language plpgsql immutable as $$
declare
  v_number text := case when jsonb_typeof(p_value) = 'number' then _number_text(p_value::text) end;
begin
  if jsonb_typeof(p_value) = 'number' and v_number is null then
    raise exception 'dispatch_policy: hash_key: the number %, expected an integer up to 2^53 - 1, because JavaScript reads others rounded: write it as a text',
      left(p_value::text, 60) using errcode = 'DPKEY';
  end if;
  return case jsonb_typeof(p_value)
    when 'object' then (
      select '{' || coalesce(string_agg(to_json(e.key)::text || ': ' || _canonical_json(e.value), ', '
        order by length(convert_to(e.key, 'UTF8')), convert_to(e.key, 'UTF8')), '') || '}'
      from jsonb_each(p_value) e)
    when 'array' then (
      select '[' || coalesce(string_agg(_canonical_json(e.value), ', ' order by e.ordinality), '') || ']'
      from jsonb_array_elements(p_value) with ordinality e)
    when 'number' then v_number
    else p_value::text end;
end
$$;
