-- The text of a value that hash_key hashes: as PostgreSQL writes jsonb, without zeros at the end of fractions. Keys are
-- sorted by their length and bytes in UTF-8, so that databases of all encodings agree with hashKey in JavaScript.
create or replace function :DISPATCH_POLICY_SCHEMA._canonical_json(p_value jsonb) returns text
language plpgsql immutable as $$
begin
  return case jsonb_typeof(p_value)
    when 'object' then (
      select '{' || coalesce(string_agg(to_json(e.key)::text || ': ' || :DISPATCH_POLICY_SCHEMA._canonical_json(e.value), ', '
        order by length(convert_to(e.key, 'UTF8')), convert_to(e.key, 'UTF8')), '') || '}'
      from jsonb_each(p_value) e)
    when 'array' then (
      select '[' || coalesce(string_agg(:DISPATCH_POLICY_SCHEMA._canonical_json(e.value), ', ' order by e.ordinality), '') || ']'
      from jsonb_array_elements(p_value) with ordinality e)
    when 'number' then trim_scale(p_value::numeric)::text
    else p_value::text end;
end
$$;
