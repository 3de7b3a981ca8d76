-- The limits of a policy whose gates are constants.
create or replace function _constant_limits(p_definition jsonb)
returns jsonb language plpgsql immutable as $$
begin
  return (
    select coalesce(jsonb_agg(
      (g.value -> 'values') || jsonb_build_object(
        'gate', g.value -> 'name', 'kind', g.value -> 'kind', 'scope', g.value -> 'scope', 'position', g.value -> 'position')
      order by (g.value ->> 'position')::int), '[]')
    from jsonb_array_elements(p_definition -> 'gates') g);
end
$$;
