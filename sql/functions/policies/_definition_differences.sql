-- In what two definitions of a policy differ, by option: [{ "option", "now", "here" }]. `now` is the value of the first, and
-- `here` that of the second. A gate's values are compared by its name, so that a gate that has moved differs in its position alone.
create or replace function _definition_differences(a jsonb, b jsonb) returns jsonb
language sql immutable
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  with side (side, definition) as (values ('a', a), ('b', b)),
  listed as (
    select s.side, e.key as option, e.value from side s cross join jsonb_each(s.definition) e where e.key <> 'gates'
    union all
    select s.side, 'gate ' || (g.value ->> 'name') || ', ' || e.key, e.value
    from side s
    cross join jsonb_array_elements(s.definition -> 'gates') g
    cross join jsonb_each(g.value) e
    -- the values have the constants, and the numbers of an override go by the kind
    where e.key not in ('name', 'overrides') and (e.key <> 'constants' or g.value -> 'values' = 'null')
  ),
  compared as (
    select coalesce(x.option, y.option) as option, x.value as now, y.value as here
    from (select l.* from listed l where l.side = 'a') x
    full join (select l.* from listed l where l.side = 'b') y on y.option = x.option
    where x.value is distinct from y.value
  )
  select coalesce(jsonb_agg(jsonb_build_object('option', c.option, 'now', c.now, 'here', c.here) order by c.option), '[]')
  from compared c;
$$;
