-- Raises if a limit, a scope or the weight of the policy is a function of the context. SQL would leave its old value in place.
create or replace function _refuse_functions(p_policy policies)
returns void language plpgsql as $$
declare
  v_functions text := (
    select string_agg(f.name, ', ' order by f.place) from (
      select 'gate ' || quote_literal(g.value ->> 'name') as name, (g.value ->> 'position')::int as place
      from jsonb_array_elements((p_policy).definition -> 'gates') g
      where coalesce(jsonb_typeof(g.value -> 'values'), 'null') = 'null' or g.value ->> 'scope' = 'key'
      union all
      select 'weight', -1 where (p_policy).definition ->> 'weight' is null) f);
begin
  if v_functions is not null then
    raise exception 'dispatch_policy: refresh_context: policy % has functions of the context, which SQL cannot call: %. Call utils.refreshContext in a process that has the policy, or the command refresh-context with --config',
      quote_literal((p_policy).name), v_functions using errcode = 'DPARG';
  end if;
end
$$;
