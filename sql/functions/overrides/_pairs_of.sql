-- The names of a context with their values, each pair as an object: those that a limit by context can ask for. A limit that
-- asks for several is found by the first of them.
create or replace function _pairs_of(context jsonb) returns jsonb[] language sql immutable as $$
  select array(
    select jsonb_build_object(e.key, e.value) from jsonb_each(context) e
    where jsonb_typeof(e.value) in ('string', 'number', 'boolean') order by e.key);
$$;
