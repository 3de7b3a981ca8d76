-- The id of the trace that a traceparent names. Null: there is none.
create or replace function _trace_id_of(traceparent text) returns text language sql immutable as $$
  select nullif(split_part(traceparent, '-', 2), '');
$$;
