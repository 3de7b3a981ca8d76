-- The partition key at the dotted paths of a definition: bare for one path, a json array of texts for several. Null
-- when the definition's partitionBy is a function.
create or replace function :DISPATCH_POLICY_SCHEMA._path_key(p_definition jsonb, p_payload json, p_task text)
returns text language plpgsql stable as $$
declare
  v_keys text[];
begin
  if jsonb_typeof(p_definition -> 'partitionPaths') is distinct from 'array' then
    return null;
  end if;
  select array_agg(case json_typeof(p_payload #> v.path)
      when 'string' then p_payload #>> v.path
      when 'number' then trim_scale((p_payload #>> v.path)::numeric)::text   -- 7.00 and 1e3 are 7 and 1000 to JavaScript
      end order by x.ordinality)
  into v_keys from jsonb_array_elements_text(p_definition -> 'partitionPaths') with ordinality x (path, ordinality)
  cross join lateral (select string_to_array(x.path, '.') as path) v;
  if array_position(v_keys, null) is not null then
    raise exception 'dispatch_policy: the payload of % has no string or number at partitionBy path %', p_task,
      p_definition -> 'partitionPaths' ->> (array_position(v_keys, null) - 1) using errcode = 'DPKEY';
  end if;
  return :DISPATCH_POLICY_SCHEMA._check_key(
    case when cardinality(v_keys) = 1 then v_keys[1] else to_json(v_keys)::text end);
end
$$;
